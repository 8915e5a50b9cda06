// How the audited computation, and our own replay of it, produced a node.
#pragma once

#include "kernels/cpu/gemm.h"
#include "server/lower/graph.h"

namespace plumbline {

inline Arithmetic arithmetic_of(const Graph& graph, const Node& node, const Profile& profile) {
  Format input = Format::kUnknown;  // The widest.
  for (const NodeId id : node.inputs) {
    const Format format = graph.nodes[id].result;
    if (is_float(format) && traits(format).precision > traits(input).precision) input = format;
  }
  return {node.compute, node.result, &profile, input};
}

// Our own replay: fp64, rounded to nearest, functions good to an ulp, products summed in blocks, whatever the device
// does.
inline const Arithmetic& replay_arithmetic() {
  static const Profile profile = [] {
    Profile own = ieee();
    own.products[static_cast<int>(ProductClass::kFp64)].promote_every = static_cast<int>(cpu::kSumBlock);
    return own;
  }();
  static const Arithmetic arithmetic{Format::kFloat64, Format::kFloat64, &profile, Format::kFloat64, true};
  return arithmetic;
}

}  // namespace plumbline
