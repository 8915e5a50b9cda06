// Memory that a step found, wrote and leaves, and on which nothing depends but what outlives the step: what a program
// keeps under no name, as an optimizer of its own does.
#pragma once

#include "server/lower/graph.h"
#include "server/lower/storage.h"

namespace plumbline {

// Sets graph->kept of a trace that was lowered. What cannot be read is left out.
void note_kept(const Trace& trace, Storage* storage, Graph* graph);

}  // namespace plumbline
