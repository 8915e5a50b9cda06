// Two programs' operations side by side, with what parts them: fields as in proto/plumbline/v1/verdict.proto.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "server/lower/graph.h"

namespace plumbline {

struct AlignedPair {
  std::optional<NodeId> target, reference;  // Results, one at least.
  double deviation = std::numeric_limits<double>::quiet_NaN();
  double allowed = std::numeric_limits<double>::quiet_NaN();
  std::uint64_t elements = 0, element = 0;
  double target_value = std::numeric_limits<double>::quiet_NaN();
  double reference_value = std::numeric_limits<double>::quiet_NaN();
  bool elsewhere = false;
  double drift = std::numeric_limits<double>::quiet_NaN();

  bool paired() const { return target && reference; }
  // It deviates, and what rounding may make of it has no bound.
  bool open() const { return paired() && deviation > 0 && allowed == std::numeric_limits<double>::infinity(); }
  // No rounding is the reason that its values are not the other program's.
  bool differs() const { return paired() ? !(deviation <= allowed) : !elsewhere; }
};

struct ProgramAlignment {
  std::vector<AlignedPair> operations;
  std::uint64_t before = 0, after = 0;
  std::optional<std::size_t> parts;  // Index into `operations`.
  std::uint64_t agree = 0, differ = 0, target_alone = 0, reference_alone = 0;
};

}  // namespace plumbline
