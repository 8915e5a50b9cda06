// Is |legal execution - exact result| <= the bound? One line for any primitive:
//   const Tally tally = check(Primitive::kSum, {Format::kFloat32, Format::kBFloat16, &profile}, effort, random);
#pragma once

#include <string>

#include "tests/soundness/legal.h"

namespace plumbline::soundness {

struct Tally {
  std::int64_t executions = 0;  // Elements of results that were held against their bound.
  std::int64_t violations = 0;
  double witness = 0;  // Largest error over its bound.
  std::string first;   // What the first violation was, if any.

  void add(const Tally& other);
};

struct Effort {
  int problems = 40;
  int executions = 16;     // Each problem is executed so often.
  std::int64_t size = 64;  // Elements of a result.
  std::int64_t terms = 96;
  bool until_violation = false;
};

// A problem with its exact result and its bound.
class Checked {
 public:
  // The arithmetic must outlive it.
  Checked(Problem problem, const Arithmetic& arithmetic);
  Tally run(int executions, Random& random);
  // The largest error of each element, over so many executions.
  std::vector<double> largest_errors(int executions, Random& random);
  const Problem& problem() const { return problem_; }
  const std::vector<double>& bound() const { return limit_; }
  const std::vector<Exact>& truth() const { return truth_; }

 private:
  void execute(Random& random, bool elided, double* out);
  void hold(const double* out, const char* what, Tally& tally) const;

  Problem problem_;
  Arithmetic arithmetic_;
  std::vector<Exact> truth_;
  std::vector<double> limit_, divisor_, replay_;
  std::vector<unsigned char> eligible_;
  std::int64_t count_ = 0;
  std::unique_ptr<Execution> executions_;
};

Tally check(Primitive primitive, const Arithmetic& arithmetic, const Effort& effort, Random& random);

// A format that inputs of a problem may be held in: the compute format, or a narrower one.
Format random_input_format(const Arithmetic& arithmetic, Random& random);

// Greatest witness found by climbing from random problems: inputs and executions are changed a little at a time, and
// kept where the error came nearer to the bound. Inputs in arithmetic.input, where it names one.
struct Witness {
  double ratio = 0;
  Format input = Format::kUnknown;
  Problem problem;
};
Witness climb(Primitive primitive, const Arithmetic& arithmetic, int steps, Random& random, std::int64_t terms = 64);

}  // namespace plumbline::soundness
