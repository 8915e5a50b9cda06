// What a comparison of two programs does not know exactly.
#pragma once

#include <map>
#include <vector>

#include "kernels/array.h"
#include "server/bound/replay/python_numbers.h"

namespace plumbline {

// How far each element of a node may legally lie from the value that the replay used, by node, in the node's shape.
using Freedoms = std::map<NodeId, Array>;

// Empty: everything is known.
struct Slack {
  Uncertainty numbers;   // Constants that Python computed out of sight.
  Freedoms freedoms;     // Items without a counterpart, and what open decisions make jump.
  Freedoms handed = {};  // Data that Python may have computed out of sight (match/handed.h).
  // How far items lie from what stands in their place (match/computed.h): it was taken for rounding, so that no more is
  // told of what the programs compute.
  Freedoms replaced = {};
  // Whether something of the node's own is not known.
  bool at(NodeId id) const {
    return numbers.count(id) + freedoms.count(id) + handed.count(id) + replaced.count(id) > 0;
  }
  bool empty() const { return numbers.empty() && freedoms.empty() && handed.empty() && replaced.empty(); }
};

// What Python computed out of sight.
inline std::vector<NodeId> of_python(const Slack& slack) {
  std::vector<NodeId> nodes;
  for (const auto& [node, width] : slack.numbers) nodes.push_back(node);
  for (const auto& [node, width] : slack.handed) nodes.push_back(node);
  return nodes;
}

}  // namespace plumbline
