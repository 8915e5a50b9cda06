// Legal executions of a primitive in real float or double arithmetic. What varies from one to the next: order and shape
// of sums, FMA or not, split sums, the algorithm of a variance or a softmax, functions off by up to their ULPs, flushed
// operands and results, rounding toward zero where the profile allows it, the widths of a matrix unit.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tests/soundness/exact.h"
#include "tests/soundness/problem.h"

namespace plumbline::soundness {

class Execution {
 public:
  virtual ~Execution() = default;
  // One execution: a value for every element of the result, held by the compute format.
  virtual void run(Random& random, double* out) = 0;
};

// Executions of `problem`, whose exact result is `truth`. Null for a primitive that has none: every row of the registry
// must have them. The arithmetic must outlive them.
std::unique_ptr<Execution> legal_executions(const Problem& problem, std::span<const Exact> truth,
                                            const Arithmetic& arithmetic);

// The families behind it; null where the primitive is not theirs.
std::unique_ptr<Execution> legal_elementwise(const Problem&, std::span<const Exact>, const Arithmetic&);
std::unique_ptr<Execution> legal_movement(const Problem&, const Arithmetic&);
std::unique_ptr<Execution> legal_reduction(const Problem&, const Arithmetic&);
std::unique_ptr<Execution> legal_contraction(const Problem&, const Arithmetic&);
std::unique_ptr<Execution> legal_softmax(const Problem&, const Arithmetic&);

}  // namespace plumbline::soundness
