// Guards: the user's word on taps, checked against what rounding can do. "Rounding alone can make lr negative."
//
// For each limit of a guarded tap two elements are looked at: the one observed furthest beyond it and the one that
// exact arithmetic brings nearest to it. There the values of legal executions lie in [M - E, M + E], E the worst-case
// adjoint envelope with rho (first order), cut to what no rounding can change (certain.h).
#pragma once

#include <optional>
#include <vector>

#include "kernels/profile.h"
#include "server/bound/replay/replay.h"

namespace plumbline {

struct GuardFinding {
  enum class Why {
    kRounding,     // The exact value keeps the guard; a legal execution breaks it, or can.
    kMathematics,  // The exact value breaks it, beyond rho.
    kExecution     // Broken, though neither exact arithmetic nor a legal rounding breaks it.
  };
  std::size_t tap = 0;  // It is a tap of the target's graph.
  double limit = 0;
  bool minimum = true;  // The limit is the guard's minimum; otherwise its maximum.
  Why why = Why::kRounding;
  std::uint64_t element = 0;           // Row-major.
  double exact = 0, observed = 0;      // M and T there.
  double low = 0, high = 0;            // What a legal execution can give there.
  double share = 0;                    // This share of the tap's elements was observed beyond the limit.
  std::optional<std::uint32_t> owner;  // Origin with the largest part of the envelope.
};

// Guards that are broken or can be. `exact` is the exact replay on the target's decisions. Costs nothing where no tap
// is guarded; otherwise one sweep.
std::vector<GuardFinding> check_guards(const Graph& graph, const Replay& exact, const Profile& profile);

}  // namespace plumbline
