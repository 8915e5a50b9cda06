// The taps that two programs have in common, by name.
#pragma once

#include <optional>
#include <vector>

#include "server/bound/bounds.h"
#include "server/bound/match/computed.h"

namespace plumbline {

struct PairedTap {
  std::size_t target = 0, reference = 0;  // Indices into the graphs' taps.
};

// In the target's order. Of a gradient that a program reads in two ways (readings.h) one reading of either program is
// paired, those that lie closest together, and the others are left out. Notes in `bounds` which have no counterpart, or
// one of another shape, or are left out since one side found an overflow and skipped its update.
std::vector<PairedTap> pair_taps(const Graph& target, const Graph& reference, Bounds* bounds);

// Where a program has several readings, pairs those that lie closest together in exact arithmetic, since roundings say
// little of readings that are nearly alike; of those that are alike the same ones.
void settle_readings(const MatchSide& target, const MatchSide& reference, std::vector<PairedTap>* pairs);

// The pair's first readings: a loss and gradients as backward left them, but for scalings that the program tells.
PairedTap first_readings(const Graph& target, const Graph& reference, const PairedTap& pair);

// What the target's loss is times the reference's where gradients that backward left are so many times the reference's,
// too, and pairs of other readings say what the optimizers are given: a mean over micro-batches that is taken late, in
// whatever way. Such losses are compared here, and their pairs left out. Empty: there are none.
std::optional<double> leave_out_scaled_losses(const MatchSide& target, const MatchSide& reference,
                                              std::vector<PairedTap>* pairs);

}  // namespace plumbline
