// Which operations of two programs stand side by side, as lines do in a comparison of two texts: both orders are kept.
// Equal values come first; what lies between them is told by its operation and module, and in the end by its place.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "server/bound/replay/replay.h"

namespace plumbline {

// An operation, by its result: the last node that it made.
struct ListedOperation {
  NodeId node = 0;
  // The other program computes its values, if not in this place: it is not put beside what it is not.
  bool elsewhere = false;
};

// The operations of the program that have a result, in its order.
std::vector<ListedOperation> listed_operations(const Graph& graph, const Replay& replay);

// Indices into the lists of both programs. Both ascend.
using SideBySide = std::vector<std::pair<std::size_t, std::size_t>>;

// One program: what it does, and what that gives.
struct ListedProgram {
  const Graph& graph;
  const Replay& replay;
  const std::vector<ListedOperation>& operations;
};

SideBySide pair_by_value(const ListedProgram& target, const ListedProgram& reference);

// Adds pairs between those that are there, of operations that are not `elsewhere`.
void pair_by_place(const ListedProgram& target, const ListedProgram& reference, SideBySide* pairs);

}  // namespace plumbline
