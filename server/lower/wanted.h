// Results of operations that a step's audit needed and its trace does not hold: what the client is asked to observe.
#pragma once

#include <compare>
#include <string>

namespace plumbline {

struct WantedResult {
  std::string op;      // Operations of this name are meant, such as "aten::max.dim".
  bool fused = false;  // Only those inside of a compiled region are meant, whose results nobody can observe.
  friend auto operator<=>(const WantedResult&, const WantedResult&) = default;
};

}  // namespace plumbline
