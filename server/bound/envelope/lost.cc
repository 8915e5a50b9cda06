#include "server/bound/envelope/lost.h"

#include <cmath>

#include "kernels/operations.h"
#include "server/bound/envelope/adjoint.h"
#include "server/bound/envelope/answer.h"
#include "server/bound/replay/arithmetic.h"

namespace plumbline {

bool lost_in_own_rounding(const Graph& graph, const Replay& replay, const ProbeTap& tap, const Profile& profile,
                          double lambda) {
  const Probe probe = signs_probe(tap.name, {tap}, 0);
  Envelope envelope;
  for (const GraphTap::Term& term : graph.taps[tap.index].terms) {
    const Node& node = graph.nodes[term.node];
    if (node.primitive == Primitive::kLeaf || !is_float(node.result)) continue;
    const Arithmetic arithmetic = arithmetic_of(graph, node, profile);
    std::vector<Array> inputs;
    for (NodeId input : node.inputs) inputs.push_back(replay.value(input));
    const Array value = replay.computed(term.node);
    const PrimitiveTraits& primitive = traits(node.primitive);
    const Bound error = primitive.local_error(node.attributes, arithmetic, inputs, value);
    if (!error) continue;
    const Array weights = probe.parts[0].weights.array().reshape(node.shape);
    const Charge charge =
        primitive.charges(node.attributes, arithmetic, inputs, value, error, {&weights, 1}).get().front();
    envelope.error += std::fabs(term.weight) * charge.whole;
    envelope.noise.bias += std::fabs(term.weight) * charge.noise.bias;
    envelope.noise.squares += term.weight * term.weight * charge.noise.squares;
  }
  return answer_of(0, envelope, lambda, 0, probe.scale).vacuous();
}

}  // namespace plumbline
