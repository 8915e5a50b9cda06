// What a comparison of two values of a tap, element by element, answers.
#pragma once

#include "kernels/comparison.h"
#include "server/bound/bounds.h"
#include "server/lower/graph.h"

namespace plumbline {

// The worst element's ratio, in units of the radii's norm over the tap's scale; without one, over the centres' norm.
Answer answer_of(const Comparison& found, const GraphTap& tap);

}  // namespace plumbline
