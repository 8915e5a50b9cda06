// How the audited computation, and our own replay of it, produced a node.
#pragma once

#include <algorithm>
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

// The unit roundoffs of the roundings of some nodes; 0: none rounds.
struct Roundoffs {
  double finest = 0, coarsest = 0;
};
inline Roundoffs roundoffs(const Graph& graph, const std::vector<bool>& needed) {
  Roundoffs found;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    const bool cast = node.primitive == Primitive::kCast;
    if (!needed[id] || !is_float(node.result) || (traits(node.primitive).bitwise && !cast)) continue;
    for (const Format format : {cast ? node.result : node.compute, node.result}) {
      const double u = unit_roundoff(format);
      found.finest = found.finest == 0 ? u : std::min(found.finest, u);
      found.coarsest = std::max(found.coarsest, u);
    }
  }
  return found;
}

// Our own replay, on the backend that the calling thread computes on; whatever the audited device does.
inline const Arithmetic& replay_arithmetic() { return current_operations().arithmetic; }

}  // namespace plumbline
