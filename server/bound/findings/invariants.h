// Bitwise invariants between consecutive audited steps of one run: parameters, buffers, state and the gradients that
// are added to at the start of a step equal what the step before left. They see silent corruption and aliasing bugs
// that no envelope sees.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/ingest/trace.h"

namespace plumbline {

// "hex:bytes" of some content; the size tells a whole storage from a tensor that fills only part of one.
std::string content_digest(const std::vector<std::uint8_t>& bytes);

using Digests = std::map<std::string, std::string>;  // Keys are the names of leaves: "param:w", "state:w.exp_avg".

struct DigestsAfter {
  // These are digests of what the step wrote, from its update and state taps and those of gradients that it leaves, and
  // of what it left alone as the step before did. Only tensors that fill their storage row-major are taken, since a
  // leaf is digested as a whole storage.
  Digests left;
  // These are digests of what it left alone. What was left alone once may be what the program writes between all its
  // steps (an optimizer that runs outside of them), so that nothing follows from it yet.
  Digests untouched;
};
// `untouched`: of an earlier step.
DigestsAfter digests_after(const Trace& trace, const Digests& untouched);

// Names of leaves of the same size whose content differs from `digests`.
std::vector<std::string> changed_leaves(const Trace& trace, const Digests& digests);

// Parameters that are not the same on all ranks of a joined trace. Ranks that hold and compute the same have one leaf
// and one tap in it (ingest/join.h).
struct Divergence {
  std::string leaf;  // "param:w"
  std::string tap;   // The update that parts them, "rank1/update:w"; it is empty where they differed before the step.
  bool replica_before = false;  // They were equal before, and of a content that is no coincidence.
};
std::vector<Divergence> diverged_parameters(const Trace& trace);

}  // namespace plumbline
