// What of the watched models a step audited. A verdict never speaks of more.
#pragma once

#include "server/ingest/trace.h"
#include "server/judge/verdict.h"
#include "server/lower/graph.h"

namespace plumbline {

// Fills the coverage of modules and parameters; of a partial step, the sentence says it too.
void cover_modules(const Trace& trace, const GraphCoverage& operations, Verdict* verdict);

}  // namespace plumbline
