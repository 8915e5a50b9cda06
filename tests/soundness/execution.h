// Legal executions of primitives in real float and double arithmetic, and their exact results. What varies: order and
// shape of sums, FMA or not, split sums, the algorithm of a variance or a softmax, functions off by up to their ULPs.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "kernels/primitive/primitive.h"

namespace plumbline::soundness {

struct Problem {
  Primitive primitive;
  Attributes attributes;
  Shape shape;
  std::vector<Array> inputs;  // Row-major; every value is held by the compute format.
  std::string regime;
};

using Random = std::mt19937_64;

// Whether there are executions of it: the test demands it of every primitive that can have a local error.
bool has_executions(Primitive primitive);

// Inputs in one of several regimes: ordinary, wide range, cancelling, subnormal, few bits.
Problem random_problem(Primitive primitive, Format compute, Random& random);

// The exact result, in 64-bit precision (elementary functions and sums of the sizes used here are good to 2^-58).
std::vector<long double> exact(const Problem& problem);

// One legal execution in `compute` (fp32 or fp64), the results rounded to `result`.
std::vector<double> execute(const Problem& problem, Format compute, Format result, const Profile& profile,
                            Random& random);

}  // namespace plumbline::soundness
