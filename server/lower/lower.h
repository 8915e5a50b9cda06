// Trace -> Graph: framework operations to primitives.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/ingest/trace.h"
#include "server/lower/error.h"
#include "server/lower/graph.h"

namespace plumbline {

// Lowers a validated step. Operations without a rule, and those whose arguments no rule models or its rule finds
// contradictory (coverage then tells why), are opaque: their observed results become anchor leaves. Throws LowerError
// where the trace contradicts itself and where a payload has the wrong size; ResultsMissing, with all of them, where
// results are needed that are neither modelled nor observed. Thread-safe.
//
// A leaf without payload (a reference's parameters, buffers and state) gets null bytes; so does a tap's term that is
// a window on such a leaf.
Graph lower(const Trace& trace);

// Qualified names ("aten::add.Tensor") whose results need not be observed, sorted. lower() models a few more where it
// can, whose common forms are opaque.
std::vector<std::string> lowered_operations();

// Those among them whose outcome is a decision: 1, the positive side of the first result (relu and kin); 2, the
// results themselves (comparisons).
std::map<std::string, int> decision_operations();

}  // namespace plumbline
