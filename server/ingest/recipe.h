// What an operation of a trace computes, whoever does.
#pragma once

#include <string>

#include "server/ingest/trace.h"

namespace plumbline {

// Equal for operations that compute the same of the same values: without lines, modules and what was observed.
std::string recipe(const TraceOp& op);

}  // namespace plumbline
