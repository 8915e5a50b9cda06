// From an envelope to the answer of one question.
#pragma once

#include "server/bound/bounds.h"

namespace plumbline {

// |deviation| against the envelope, both relative to `scale`, at Hoeffding's `lambda` (adjoint.h). `extra`: what the
// deviation may have beside the execution's rounding.
Answer answer_of(double deviation, const Envelope& envelope, double lambda, double extra, double scale);

}  // namespace plumbline
