// One verdict for a step whose ranks stream to several daemons, from what each of them says of its own
// (node_part.proto).
//
// What it claims. A node's TYPE_I says that each of its operations is a legal rounding of its own inputs, what came
// from other nodes taken as it was received and what was sent to them judged where it was computed. That, and that what
// was received is a legal result of what was sent, make up a legal execution of the whole: the chain has no other
// links. So TYPE_I on all nodes with all crossings compared is TYPE_I for the job, of the weakest grade among them;
// where a crossing was compared by projections, or not at all, it is not PROVEN. One daemon alone would beside that
// replay the whole step from its leaves: what gathers over nodes, each node's share within its own bounds, is not asked
// here.
//
// Any node's TYPE_II is that of the job. What crossed wrongly comes before what follows from it (replicas that differ).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "plumbline/v1/node_part.pb.h"
#include "plumbline/v1/verdict.pb.h"
#include "server/ingest/trace.h"

namespace plumbline {

// The rank in the identity of a verdict of all ranks, when each node's own has that of its lowest one.
inline constexpr std::int32_t kAllRanks = -1;

// What is there of a step when it is judged.
struct StepOfNodes {
  StepIdentity step;  // Of rank kAllRanks.
  std::int32_t ranks_of_run = 0;
  std::vector<std::string> parts;  // Serialized node parts, ascending by their lowest rank.
  std::string fault;               // Why the parts are not one step's; empty: they are.
  std::string waited;              // What ranks that are not there were waited for, such as "5m".
};

// The verdict, complete but for `time` and `node`; the same for the same parts. Parts that cannot be read, or are of a
// newer version, make it INCONCLUSIVE.
v1::Verdict combine(const StepOfNodes& of);

}  // namespace plumbline
