// Judging against a golden run: a reference's step of which only digests of its leaves, exact values of small taps and
// projections of large ones are kept.
//
// Where the target's leaves equal those of the golden step bit by bit, both programs were replayed on one copy of them,
// and the question of mathematics is the matched gap (pairing.h) with the reference's side read from the record: for
// each of its probes x, |<x, M_T> - <x, M_R>| <= rho_T + rho_R. The probes' weights come from a seed that the record
// fixes, taken from the golden trace's digest: they were drawn after that trace, and long before the target.
#pragma once

#include <cstdint>
#include <string>

#include "server/bound/input.h"
#include "server/ingest/golden_step.h"

namespace plumbline {

// Throws as lower() and replay() do.
GoldenStep record_golden(const Trace& trace, std::uint64_t seed, const Profile& profile);

// The golden step's first leaf that the trace was not given alike, in words; empty: there is none. Constants of one
// element, and data that only one of the two reads, are left to the question of mathematics.
std::string first_foreign_leaf(const Trace& trace, const GoldenStep& golden);

// Adds the answers of mathematics to bounds->findings. `numbers`: those of the target that are not known exactly.
void pair_with_golden(const BoundsInput& input, const Replay& target_exact, const Uncertainty& numbers, Bounds* bounds);

}  // namespace plumbline
