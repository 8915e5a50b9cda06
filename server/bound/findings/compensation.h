// Where roundings themselves are the content: compensated sums, error feedback. Mathematics says that what they carry
// is zero, so that the two programs of a pair agree whatever they do with it, a wrong sign included. Their errors tell.
#pragma once

#include "server/bound/findings/hazards.h"

namespace plumbline {

// One program of a pair: its graph, exact replay, and how far its taps lie from that.
struct CompensatedSide {
  const Graph& graph;
  const Replay& exact;
  double error = 0;
};

// A hazard at the target's first value that is zero by mathematics and reaches a tap, where the target's error is
// several times the reference's, which carries such a value too and holds its values in the same formats.
std::optional<HazardFinding> find_compensation(const CompensatedSide& target, const CompensatedSide& reference);

}  // namespace plumbline
