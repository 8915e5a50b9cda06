// Results of operations that a step's audit needed and its trace does not hold: what the client is asked to observe.
#pragma once

#include <compare>
#include <string>

namespace plumbline {

struct WantedResult {
  std::string op;      // Of operations of this name: "aten::max.dim".
  bool fused = false;  // Of those inside of a compiled region alone, whose results nobody can observe.
  friend auto operator<=>(const WantedResult&, const WantedResult&) = default;
};

}  // namespace plumbline
