// Where two programs that compute different mathematics part: the first operation of the target whose inputs agree
// with values of the reference and whose result does not, in exact arithmetic on the same leaves.
//
// Values are compared by their rows (last dimension), so that a batch agrees with its split. Partial sums are innocent:
// an addition, sum, product or movement of agreeing values need not occur in the reference, since sums may be grouped
// in another way; so is scaling by a factor that the reference also scales by. A factor or divisor that the reference
// never uses is not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/bound/replay.h"

namespace plumbline {

struct Suspicion {
  NodeId node = 0;
  std::string detail;
  bool normalisation = false;  // A scaling by something that the reference does not scale by.
};

// Looks among the nodes that `failing` (nodes of a failing tap) depend on.
std::optional<Suspicion> localize(const Graph& target, const Replay& target_replay, const Graph& reference,
                                  const Replay& reference_replay, const std::vector<NodeId>& failing);

}  // namespace plumbline
