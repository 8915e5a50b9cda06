// What a comparison of two values of a tap, element by element, answers.
#pragma once

#include "kernels/comparison.h"
#include "server/bound/bounds.h"

namespace plumbline {

// The worst element's ratio, in units of the radii's norm over `scale`; 0: over the centres' norm.
Answer answer_of(const Comparison& found, double scale);

}  // namespace plumbline
