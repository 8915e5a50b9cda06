// How the audited computation, and our own replay of it, produced a node.
#pragma once

#include <optional>
#include <vector>

#include "kernels/operations.h"
#include "server/lower/graph.h"

namespace plumbline {

inline Arithmetic arithmetic_of(const Graph& graph, const Node& node, const Profile& profile) {
  Format input = Format::kUnknown;  // The widest, but for what a product's sum begins with.
  const bool product = node.primitive == Primitive::kMatmul;
  for (std::size_t i = 0; i < (product ? 2 : node.inputs.size()); ++i) {
    const Format format = graph.nodes[node.inputs[i]].result;
    if (is_float(format) && traits(format).precision > traits(input).precision) input = format;
  }
  return {.compute = node.compute,
          .result = node.result,
          .profile = &profile,
          .input = input,
          .own_kernel = graph.origins[node.origin].defined,
          .convolution = graph.origins[node.origin].convolution};
}

// What the profile says that no result of the node leaves. Held by the node's format: rounding to nearest is monotone.
struct PromisedRange {
  double low = -FunctionError::kInfinity, high = FunctionError::kInfinity;
};
inline PromisedRange promised_range(const Node& node, const Profile& profile) {
  const auto range = [&](Function function) -> PromisedRange {
    const FunctionError& stated = profile.functions[static_cast<int>(function)];
    return {round_to(node.result, stated.low), round_to(node.result, stated.high)};
  };
  switch (node.primitive) {
    case Primitive::kSin:
      return range(Function::kSin);
    case Primitive::kCos:
      return range(Function::kCos);
    case Primitive::kTanh:
      return range(Function::kTanh);
    case Primitive::kErf:
      return range(Function::kErf);
    case Primitive::kSigmoid:
      return range(Function::kSigmoid);
    default:
      return {};
  }
}

// The unit roundoff of all roundings of the nodes that are `needed`; nothing: they have several, or none rounds.
inline std::optional<double> only_roundoff(const Graph& graph, const std::vector<bool>& needed) {
  double only = 0;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    const bool cast = node.primitive == Primitive::kCast;
    if (!needed[id] || !is_float(node.result) || (traits(node.primitive).bitwise && !cast)) continue;
    for (const Format format : {cast ? node.result : node.compute, node.result}) {
      const double u = unit_roundoff(format);
      if (only != 0 && u != only) return std::nullopt;
      only = u;
    }
  }
  return only > 0 ? std::optional(only) : std::nullopt;
}

// Our own replay, on the backend that the calling thread computes on; whatever the audited device does.
inline const Arithmetic& replay_arithmetic() { return current_operations().arithmetic; }

}  // namespace plumbline
