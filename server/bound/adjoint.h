// The adjoint envelope: how far rounding could have moved a scalar functional of the taps.
//
// Let f be a functional <x, taps>. To first order, an execution whose node k deviates by e_k from the exact function
// of its own inputs moves f by sum_k <a_k, e_k>, a_k the adjoint of f at node k; with |e_k| <= delta_k elementwise
// |f - f_exact| <= E = sum_k <|a_k|, delta_k>. Worst case over all executions within delta, to first order
// (FIRST_ORDER). Adjoints of one node are summed over its consumers before the absolute value is taken: an error shared
// by all consumers of a value (a mean, a maximum subtracted from a row) cancels as it does in the execution.
//
// The same sweep at u = 2^-53 bounds our own replay; rho is twice that.
#pragma once

#include <vector>

#include "server/bound/probe.h"
#include "server/bound/replay.h"

namespace plumbline {

struct Envelope {
  double error = 0;               // E.
  double rho = 0;                 // Of our own fp64 replay.
  std::vector<double> by_origin;  // E's parts, by Graph::origins.
};

// One reverse sweep for all probes. Nodes in `anchors` have a value that was observed: nothing is carried back through
// them, except for the probes' own taps there. `replay` must hold the values that consumers saw.
std::vector<Envelope> adjoint_envelopes(const Graph& graph, const Replay& replay, const std::vector<Probe>& probes,
                                        const Profile& profile, const Overrides& anchors = {});

}  // namespace plumbline
