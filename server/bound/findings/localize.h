// Where two programs that compute different mathematics part: the first operation of the target whose inputs agree
// with values of the reference and whose result does not, in exact arithmetic on the same leaves (agreement.h).
//
// Only operations count from which a failing tap is reached through values that all differ: what differs on the way and
// comes out right again was written in another way. Partial results are innocent: an addition, sum, product or movement
// of agreeing values need not occur in the reference, since sums may be grouped in another way; so is scaling by a
// factor that the reference also scales by. A factor or divisor that the reference never uses is not. Where the first
// operation that cannot be innocent was fed a differing sum, that sum is suspected, and of several partial results the
// addition that they meet in. Where all are innocent, terms are missing or too many: that addition, too.
//
// The same search with the programs exchanged tells what the reference has in that place. It is suspected itself where
// the target lacks it: where the reference goes on with the target's operation, and sooner than the target does with
// the reference's, or where the target's values begin to differ in several places and the reference's in this one.
// Where the target's result is a value that the reference goes on from, what it goes on with is suspected. Data of
// which one program reads less than the other comes before all of this (unread.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/bound/replay/replay.h"

namespace plumbline {

struct Suspicion {
  NodeId node = 0;
  std::string detail;
  bool normalisation = false;  // A scaling by something that the reference does not scale by.
  bool in_reference = false;   // The node is the reference's: the target lacks it.
};

// A program on its side of the pairing; `failing` are the nodes of the failing tap.
struct LocalizeSide {
  const Graph& graph;
  const Replay& replay;
  std::vector<NodeId> failing;
};

Suspicion localize(const LocalizeSide& target, const LocalizeSide& reference);

// Where what `with` alone gives (its `failing`) leaves the values that the other program has; nothing: nowhere.
std::optional<NodeId> departure(const LocalizeSide& with, const LocalizeSide& without);

}  // namespace plumbline
