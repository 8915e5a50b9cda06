// What was observed of two programs, beside each other and beside exact arithmetic.
#pragma once

#include <optional>
#include <vector>

#include "server/bound/bounds.h"
#include "server/bound/input.h"
#include "server/bound/match/paired_taps.h"
#include "server/bound/pair/replays.h"

namespace plumbline {

// How far the taps that both have lie from exact arithmetic, relative to their size, together.
struct Distances {
  double ours = 0, theirs = 0;
};

// Whether these tell something of two programs of one mathematics: what the reference drew or held otherwise it also
// executed with.
bool distances_tell(const Correspondence& match);

// Notes what the observed taps say of each other. Their distances are found where `exact` is given and not all of them
// are equal.
std::optional<Distances> compare_observed(const BoundsInput& input, const std::vector<PairedTap>& pairs,
                                          const PairReplays* exact, Bounds* bounds);

// Says what the distances tell.
void compare_errors(const BoundsInput& input, const PairReplays& replays, const Distances& distances, Bounds* bounds);

}  // namespace plumbline
