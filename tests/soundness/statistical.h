// The statistical envelope held against legal executions of whole graphs.
#pragma once

#include <string>
#include <vector>

#include "tests/soundness/random.h"

namespace plumbline::soundness {

struct StatisticalOutcome {
  std::string graph;
  int executions = 0;
  int violations = 0;   // |loss - exact loss| beyond the envelope at `alpha`.
  double expected = 0;  // alpha * executions: at most so many are allowed on average.
  double largest = 0;   // Largest |loss - exact loss| over its envelope.
  bool nearest = true;  // Round to nearest, fp32, functions correctly rounded: counts for the ratio.
};

// An MLP and a transformer's block with shared constants, a stagnating mean, and both under truncation and with
// functions off by their ULPs; `executions` of each, over several draws of the data.
std::vector<StatisticalOutcome> statistical_outcomes(int executions, double alpha, Random& random);

}  // namespace plumbline::soundness
