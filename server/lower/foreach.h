// Foreach operations: each stands for one functional operation an element of its lists.
#pragma once

#include <string_view>
#include <vector>

#include "server/ingest/trace.h"

namespace plumbline {

// The arguments of the functional operation `base` for element i. Throws LowerError: a list is shorter. Throws
// Unsupported: numbers come in a tensor.
std::vector<TraceArgument> element_arguments(const TraceOp& op, std::string_view base, std::size_t i);

}  // namespace plumbline
