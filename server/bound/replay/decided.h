// Decisions that the target's execution told: comparisons, choices, roundings to integers. Exact arithmetic follows
// them where rounding may have turned them.
#pragma once

#include "server/bound/replay/replay.h"

namespace plumbline {

// How far x lies from what rounds to the integer `code`.
double distance_to_code(Primitive rounding, double x, double code);

// `overrides`: observed sides of the graph's decisions, only where they differ from exact arithmetic that has followed
// those before them. `differing` counts the elements; `illegal` lists decisions with an element whose margin there is
// too large for rounding to turn (more than 2^-4 of the compared values' root mean square in 16-bit formats and where
// products may run in tf32, 2^-12 otherwise).
struct DecisionCheck {
  Overrides overrides;
  Overrides choices;  // All that were told, differing or not.
  std::uint64_t total = 0;
  std::uint64_t differing = 0;
  std::vector<NodeId> illegal;
};

// The exact replay that follows the execution's decisions. `exact`: the one that follows none, where it is at hand
// (null: it is not): what both have in common is read there, and where no decision differs it is the replay itself.
// `of`, `later`: as replay() takes them; all that decisions depend on must be in `of`.
struct Followed {
  Replay replay;
  DecisionCheck decisions;
};
Followed follow_decisions(const Graph& graph, const std::vector<LeafValue>& leaves, const Profile& profile,
                          const Replay* exact = nullptr, const std::vector<NodeId>* of = nullptr,
                          const std::vector<bool>* later = nullptr);

// A margin that rounding can hardly bridge, relative to the spread of what is compared: see DecisionCheck.
double illegal_share(const Graph& graph, NodeId operand, const Profile& profile);

}  // namespace plumbline
