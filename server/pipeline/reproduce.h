// A step reduced to one operation: its operands, and the enclosure of what any legal execution of it can give.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/profile.h"
#include "server/ingest/trace.h"
#include "server/judge/verdict.h"

namespace plumbline {

struct Reproducer {
  struct Operand {
    TensorRef tensor;   // Its value is its place among the operands, from 1; its strides are those of the step.
    Bytes content;      // Row-major.
    bool exact = true;  // Its bits are those of the step: observed, or computed from observed bits without rounding.
  };
  struct Expected {
    TensorRef tensor;
    std::string argument;           // That was written; empty: returned.
    std::vector<double> low, high;  // Each element has one, row-major; NaN means that nothing is promised.
  };
  TraceOp op;  // Its tensors are operands; its results are `results`, in order.
  std::vector<Operand> operands;
  std::vector<Expected> results;  // Those that the step had (None is left out).
};

// Reduces the record's step (or its reference's, where the verdict's suspect is there) to the operation that `verdict`
// suspects. Operands that were not observed are those of our own rounded replay. Throws std::runtime_error with a
// sentence where there is no such operation, its operands cannot be had, or nothing bounds it.
Reproducer reproduce(const TraceRecord& record, const Verdict& verdict, const Profile& profile);

}  // namespace plumbline
