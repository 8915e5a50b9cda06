#include "server/bound/match/reached.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "server/bound/match/transplant.h"

namespace plumbline {
namespace {

// Of nodes that something is handed on to, which elements: not 0.
using Reached = std::map<NodeId, Array>;

bool any(const Array& elements) {
  const Array x = elements.materialize().on_host();
  return std::any_of(x.data(), x.data() + x.count(), [](double each) { return each != 0; });
}

class HandingOn {
 public:
  HandingOn(const Graph& graph, const Replay& replay, const std::vector<NodeId>& from)
      : graph_(graph), replay_(replay) {
    for (NodeId id : from) reached_[id] = Array::full(graph.nodes[id].shape, 1);
  }

  // Nodes go in ascending order.
  void take(NodeId id) {
    const Node& node = graph_.nodes[id];
    if (std::ranges::none_of(node.inputs, [&](NodeId input) { return reached_.count(input) != 0; })) return;
    const Array elements = of(node);
    if (any(elements)) reached_[id] = elements;
  }
  bool reaches(NodeId id) const { return reached_.count(id) != 0; }

 private:
  Array at(NodeId id) const {
    const auto found = reached_.find(id);
    return found == reached_.end() ? Array::zeros(graph_.nodes[id].shape) : found->second.materialize();
  }

  Array of(const Node& node) const {
    const Array all = Array::full(node.shape, 1);
    if (!std::ranges::all_of(node.inputs, [&](NodeId input) { return replay_.has(input); })) return all;
    const auto carried = [&](std::vector<Array> inputs) {
      return traits(node.primitive).evaluate(node.attributes, node.shape, inputs);
    };
    switch (node.primitive) {
      case Primitive::kWindow:
      case Primitive::kAssemble: {
        std::vector<Array> inputs;
        for (NodeId input : node.inputs) inputs.push_back(at(input));
        return carried(std::move(inputs));
      }
      case Primitive::kGatherRows:
      case Primitive::kScatterAdd:
        return reaches(node.inputs[1]) ? all : carried({at(node.inputs[0]), replay_.value(node.inputs[1])});
      default:
        return is_elementwise(node.primitive) ? of_each(node) : all;
    }
  }

  Array of_each(const Node& node) const {
    std::vector<Array> inputs;
    for (NodeId input : node.inputs) inputs.push_back(at(input).expand(node.shape).on_host());
    const bool selects = node.primitive == Primitive::kSelect;
    const Array chosen = selects ? replay_.value(node.inputs[0]).expand(node.shape).on_host() : Array();
    Array elements = Array::uninitialized(node.shape);
    for (std::int64_t i = 0; i < elements.count(); ++i) {
      const auto reached = [&](const Array& input) { return input.data()[i] != 0; };
      elements.data()[i] = selects ? reached(inputs[0]) || reached(inputs[chosen.data()[i] != 0 ? 1 : 2])
                                   : std::ranges::any_of(inputs, reached);
    }
    return elements;
  }

  const Graph& graph_;
  const Replay& replay_;
  Reached reached_;
};

}  // namespace

std::set<const OpaqueCall*> calls_that_reach_taps(const Graph& graph, const Replay& replay) {
  std::set<const OpaqueCall*> calls;
  const std::vector<bool> used = used_through_calls(graph);
  const auto counts = [&](const OpaqueCall& call) {
    return std::ranges::any_of(call.outputs, [&](NodeId id) { return bool{used[id]}; });
  };
  for (const OpaqueCall& call : graph.opaque) {
    if (!counts(call)) continue;
    if (!call.inputs.empty()) {
      calls.insert(&call);
      continue;
    }
    HandingOn handing(graph, replay, call.outputs);
    for (NodeId id = 0; id < graph.nodes.size(); ++id) handing.take(id);
    const auto by_tap = [&](const GraphTap& tap) {
      return std::ranges::any_of(tap.terms, [&](const auto& term) { return handing.reaches(term.node); });
    };
    const auto by_call = [&](const OpaqueCall& other) {
      return counts(other) && std::ranges::any_of(other.inputs, [&](NodeId id) { return handing.reaches(id); });
    };
    if (std::ranges::any_of(graph.taps, by_tap) || std::ranges::any_of(graph.opaque, by_call)) calls.insert(&call);
  }
  return calls;
}

}  // namespace plumbline
