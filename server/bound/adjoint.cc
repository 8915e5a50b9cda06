#include "server/bound/adjoint.h"

#include "kernels/cpu/sums.h"
#include "server/bound/arithmetic.h"

namespace plumbline {
namespace {

void add(Array& into, const Array& cotangent) {
  if (!into) {
    into = cotangent.materialize();
    return;
  }
  const Array source = cotangent.materialize();
  Array sum = into.unique() ? into : Array::uninitialized(into.shape());
  for (std::int64_t i = 0; i < source.count(); ++i) sum.data()[i] = into.data()[i] + source.data()[i];
  into = sum;
}

Array scaled(const Array& weights, double factor) {
  const Array source = weights.materialize();
  if (factor == 1) return source;
  Array result = Array::uninitialized(source.shape());
  for (std::int64_t i = 0; i < source.count(); ++i) result.data()[i] = factor * source.data()[i];
  return result;
}

}  // namespace

std::vector<Envelope> adjoint_envelopes(const Graph& graph, const Replay& replay, const std::vector<Probe>& probes,
                                        const Profile& profile, const Overrides& anchors) {
  const std::size_t count = probes.size(), nodes = graph.nodes.size();
  std::vector<Envelope> envelopes(count);
  std::vector<std::vector<Array>> adjoints(count, std::vector<Array>(nodes));  // flowing back from consumers
  std::vector<std::map<NodeId, Array>> seeds(count);                           // of the probes' own taps
  for (std::size_t p = 0; p < count; ++p) {
    envelopes[p].by_origin.assign(graph.origins.size(), 0.0);
    for (const Probe::Part& part : probes[p].parts)
      for (const GraphTap::Term& term : graph.taps[part.tap].terms)
        add(seeds[p][term.node], scaled(part.weights, term.weight).reshape(graph.nodes[term.node].shape));
  }
  // Cotangents are only carried towards nodes that have an error of their own or lie after one that has: not into
  // leaves, nor into the reshaped weights that come straight from one.
  std::vector<bool> carries(nodes, false);
  for (NodeId id = 0; id < nodes; ++id) {
    const Node& node = graph.nodes[id];
    if (!is_float(node.result) || node.primitive == Primitive::kLeaf) continue;
    carries[id] =
        !traits(node.primitive).bitwise || node.primitive == Primitive::kCast || node.primitive == Primitive::kConstant;
    for (NodeId input : node.inputs) carries[id] = carries[id] || carries[input];
  }

  std::vector<Array> inputs;
  for (NodeId id = static_cast<NodeId>(nodes); id-- > 0;) {
    const Node& node = graph.nodes[id];
    const bool anchored = anchors.count(id) != 0;
    Bound target_error, own_error;
    bool errors_known = false;
    for (std::size_t p = 0; p < count; ++p) {
      Array cotangent = anchored ? Array() : std::move(adjoints[p][id]);
      adjoints[p][id] = Array();
      if (const auto seed = seeds[p].find(id); seed != seeds[p].end()) {
        if (cotangent && !cotangent.unique()) cotangent = scaled(cotangent, 1);
        add(cotangent, seed->second);
        seeds[p].erase(seed);
      }
      if (!cotangent || !carries[id]) continue;
      cotangent = cotangent.reshape(node.shape);
      const PrimitiveTraits& primitive = traits(node.primitive);
      inputs.clear();
      for (NodeId input : node.inputs) inputs.push_back(replay.values[input]);
      const auto computed = replay.computed.find(id);
      const Array& value = computed == replay.computed.end() ? replay.values[id] : computed->second;
      if (!errors_known) {
        target_error = primitive.local_error(node.attributes, arithmetic_of(graph, node, profile), inputs, value);
        own_error = primitive.local_error(node.attributes, replay_arithmetic(), inputs, value);
        errors_known = true;
      }
      if (target_error) {
        const double part = cpu::weighted_bound(cotangent, target_error);
        envelopes[p].error += part;
        envelopes[p].by_origin[node.origin] += part;
      }
      if (own_error) envelopes[p].rho += 2 * cpu::weighted_bound(cotangent, own_error);
      std::vector<Array*> into(node.inputs.size(), nullptr);
      bool any = false;
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (carries[node.inputs[i]] && !(anchors.count(node.inputs[i]) != 0)) {
          into[i] = &adjoints[p][node.inputs[i]];
          any = true;
        }
      if (any) primitive.pull_back(node.attributes, inputs, value, cotangent, into);
    }
  }
  return envelopes;
}

}  // namespace plumbline
