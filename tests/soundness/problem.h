// Applications of primitives with random inputs: what executions, exact results and bounds are computed of.
#pragma once

#include <string>
#include <vector>

#include "kernels/primitive/primitive.h"
#include "tests/soundness/random.h"

namespace plumbline::soundness {

struct Problem {
  Primitive primitive;
  Attributes attributes;
  Shape shape;
  std::vector<Array> inputs;  // Row-major; every value is held by the format of the inputs.
  std::string regime;
};

// Classes of primitives, by what their executions may vary.
enum class PrimitiveClass { kElementwise, kReduction, kContraction, kFused, kMovement, kCount };
PrimitiveClass class_of(Primitive primitive);
std::string_view name_of(PrimitiveClass primitive_class);

// Inputs in one of several regimes: ordinary, wide, cancelling, subnormal, few bits, edges (of domains and binades),
// and for sums stagnating ones. About `size` elements of the result; sums have up to `terms` terms.
Problem random_problem(Primitive primitive, Format input, Random& random, std::int64_t size = 64,
                       std::int64_t terms = 96);

}  // namespace plumbline::soundness
