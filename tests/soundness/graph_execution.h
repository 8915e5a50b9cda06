// Legal executions of whole graphs: each node by the generator, on what its inputs came out as.
#pragma once

#include "server/lower/graph.h"
#include "tests/soundness/random.h"

namespace plumbline::soundness {

// The value of `result` in one execution. Nodes must have the shapes of random problems: reductions over one dimension
// of a matrix, matrix products and softmax of two dimensions. Throws std::runtime_error for a primitive without one.
Array execute_graph(const Graph& graph, const Profile& profile, NodeId result, Random& random);

}  // namespace plumbline::soundness
