// Items of one program that the other computes: a table kept in a buffer against one made in the step, a draw with its
// scale against a plain one that is scaled, a number that went through Python.
//
// An item is a legal rounding of a node of the other program where every element lies within the node's enclosure and
// the item's own freedom: |item - M_node| <= E_node + freedom; and, where it lies farther away than its own format
// explains, random signs find it no farther than what rounds there by chance (envelope/adjoint.h) moves the node, twice
// over, since another formula may have made it. The node's exact value then stands for the item, or for the window on
// it that was compared.
//
// It replaces content, so that it needs evidence. Many numbers that each lie near another are no accident, and neither
// is one that lies within 2^-14; a lone number within a percent of another is. Where the item lies no farther from the
// exact value than its own format explains, hardly anything is replaced. Any other match is weak, also that of many
// numbers which no rounding of this formula explains, though that of one which loses up to half of the format's digits
// would (|x|^2 + |y|^2 - 2 x y for |x - y|^2, the factors of a matrix for its inverse). It is not made: the
// item keeps its own content. Where that accuses, and the weak match would explain it, nothing is decided
// (pair/pairing.h). An accusation on the ground of a match that is not beyond doubt is also asked without it.
#pragma once

#include "kernels/profile.h"
#include "server/bound/match/correspondence.h"

namespace plumbline {

// One program of a pair, with a replay of the content that the correspondence gives it.
struct MatchSide {
  const Graph& graph;
  const Replay& replay;
  const Profile* profile = nullptr;  // What its device promises; null: nothing.
};

// Looks for what stands free in `found` and for buffers that differ; fills its computed values, and takes the freedoms
// of what was found. `seed`, `alpha`: of the random signs, and of the chance that they refuse what is legal.
void match_computed(const MatchSide& target, const MatchSide& reference, const Profile& profile, std::uint64_t seed,
                    double alpha, Correspondence* found);

}  // namespace plumbline
