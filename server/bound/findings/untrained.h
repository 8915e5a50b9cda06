// Parameters that get a gradient and that the step, which changes others, leaves as they were: nobody gave them to an
// optimizer, or something skipped them.
#pragma once

#include <vector>

#include "server/lower/graph.h"

namespace plumbline {

// Their gradients' taps, in the graph's order, of those whose gradient is not zero everywhere.
std::vector<std::size_t> untrained(const Graph& graph);

}  // namespace plumbline
