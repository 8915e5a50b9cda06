// A run whose ranks stream to several daemons, such as those of their nodes: each daemon joins and judges its own
// ranks. What comes from the others is taken as it was received, what is sent to them is judged. Thread-safe: no state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/ingest/violation.h"
#include "server/judge/verdict.h"
#include "server/store/node_part.h"
#include "server/work/run_registry.h"

namespace plumbline {

namespace v1 {
class NodePart;
}

// Which of a run's `ranks` ranks are joined here: those that rank `own` was opened with, ascending; all where it names
// none. What is wrong with them otherwise; `here` is then left as it was.
Violation check_ranks_here(const std::vector<std::int32_t>& given, std::int32_t ranks, std::int32_t own,
                           std::vector<std::int32_t>* here);

// "rank 2", "ranks 0 to 3", "ranks 0, 2, 5".
std::string ranks_text(const std::vector<std::int32_t>& ranks);

// Says in a verdict of these ranks alone what it is not a verdict of, and whether there will be one of all ranks
// (nodes_verdict.h). It claims no proof that all is well: what the other ranks sent was not computed here.
void tell_ranks_here(const std::vector<std::int32_t>& here, std::int32_t ranks, bool judged_as_a_whole,
                     Verdict* verdict);

// What the other daemons are told of a step, with the verdict of these ranks as it was judged.
NodePartRow node_part_row(const Run& run, const Verdict& verdict, v1::NodePart* part);

}  // namespace plumbline
