// Bitwise invariants between consecutive audited steps of one run: parameters and optimizer state at the start of a
// step equal what the step before left. They see silent corruption and aliasing bugs that no envelope sees.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/ingest/trace.h"

namespace plumbline {

// "hex:bytes" of some content; the size tells a whole storage from a tensor that fills only part of one.
std::string content_digest(const std::vector<std::uint8_t>& bytes);

// Digest by name ("param:w", "state:w.exp_avg") of what the step left, from its update and state taps. Only tensors
// that fill their storage row-major are taken, since a leaf is digested as a whole storage.
std::map<std::string, std::string> digests_after(const Trace& trace);

// Names of leaves of the same size whose content differs from `digests`.
std::vector<std::string> changed_leaves(const Trace& trace, const std::map<std::string, std::string>& digests);

// Parameters that are not the same on all ranks of a joined trace. Ranks that hold and compute the same have one leaf
// and one tap in it (ingest/join.h).
struct Divergence {
  std::string leaf;  // "param:w"
  std::string tap;   // Of the update that parts them, "rank1/update:w"; empty: they differed before the step.
  bool replica_before = false;  // They were equal before, and of a content that is no coincidence.
};
std::vector<Divergence> diverged_parameters(const Trace& trace);

}  // namespace plumbline
