#include "server/bound/envelope/node_chain.h"

#include <algorithm>
#include <set>

#include "kernels/cpu/parallel.h"
#include "kernels/device.h"
#include "kernels/operations.h"

namespace plumbline {
namespace {

constexpr std::size_t kStepsMax = 4;     // Each has its errors and cotangents written where it is charged by chance.
constexpr std::int64_t kTile = 1 << 14;  // Elements that a thread takes at a time.

}  // namespace

NodeChains::NodeChains(const Graph& graph, const Replay& replay, const std::vector<bool>& carries,
                       const std::function<bool(NodeId)>& alone)
    : chain_of_(graph.nodes.size(), kNone) {
  std::vector<std::vector<NodeId>> readers(graph.nodes.size());
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    if (carries[id])
      for (NodeId input : graph.nodes[id].inputs) readers[input].push_back(id);
  const auto elementwise = [&](NodeId id) {
    return carries[id] && is_elementwise(graph.nodes[id].primitive) && chain_of_[id] == kNone && replay.has(id) &&
           !alone(id);
  };
  for (NodeId end = static_cast<NodeId>(graph.nodes.size()); end-- > 0;) {
    if (!elementwise(end) || count(graph.nodes[end].shape) == 0) continue;
    NodeChain chain;
    std::set<NodeId> open = {end};
    while (!open.empty() && chain.size() < kStepsMax) {
      const NodeId id = *open.rbegin();  // All that may read it have had their turn.
      open.erase(id);
      const auto inside = [&](NodeId reader) { return chain_of_[reader] == chains_.size(); };
      const bool hidden = count(graph.nodes[id].shape) == count(graph.nodes[end].shape) && !replay.overridden(id) &&
                          std::ranges::all_of(readers[id], inside);
      if (!elementwise(id) || (id != end && !hidden)) continue;
      chain_of_[id] = chains_.size();
      chain.push_back(id);
      open.insert(graph.nodes[id].inputs.begin(), graph.nodes[id].inputs.end());
    }
    std::ranges::reverse(chain);
    chains_.push_back(std::move(chain));
  }
}

const NodeChain* NodeChains::ending_at(NodeId id) const {
  return chain_of_[id] != kNone && chains_[chain_of_[id]].back() == id ? &chains_[chain_of_[id]] : nullptr;
}

ChainPullback::ChainPullback(const Graph& graph, const Replay& replay, const NodeChain& chain,
                             const std::vector<std::optional<Arithmetic>>& target, const Arithmetic* own)
    : graph_(graph), chain_(chain), shape_(graph.nodes[chain.back()].shape), errors_(chain.size()) {
  const auto step_of = [&](NodeId id) {
    return static_cast<std::size_t>(std::ranges::lower_bound(chain, id) - chain.begin());
  };
  const auto is_step = [&](NodeId id) { return std::ranges::binary_search(chain, id); };
  std::vector<Chain::Source> chain_sources;
  for (NodeId id : chain)
    for (NodeId input : graph.nodes[id].inputs) {
      if (is_step(input) || std::ranges::find(sources_, input) != sources_.end()) continue;
      sources_.push_back(input);
      pullback_.sources.push_back(Pullback::source_of(replay.value(input), graph.nodes[id].shape));
      chain_sources.push_back({pullback_.sources.back().count() == 1, false});
    }
  pullback_.chain = Chain(chain_sources, false);
  std::vector<std::size_t> steps;
  for (std::size_t s = 0; s < chain.size(); ++s) {
    const Node& node = graph.nodes[chain[s]];
    std::vector<std::size_t> inputs;
    for (NodeId input : node.inputs)
      inputs.push_back(is_step(input)
                           ? sources_.size() + step_of(input)
                           : static_cast<std::size_t>(std::ranges::find(sources_, input) - sources_.begin()));
    pullback_.chain.add(node.primitive, node.attributes, inputs, {});
    steps.push_back(sources_.size() + s);
    const auto rounding = [&](const Arithmetic* arithmetic) {
      if (arithmetic == nullptr) return primitive::ElementRounding{};
      return primitive::rounding_of(node.primitive, node.attributes, *arithmetic);
    };
    pullback_.steps.push_back({rounding(target[s] ? &*target[s] : nullptr), rounding(own)});
  }
  pullback_.chain.ask(steps);
}

PulledFunctional ChainPullback::asked_of(ChainFunctional* functional, const Adjoints& adjoint) {
  const std::int64_t n = count(shape_);
  const bool on_host = current_device() == nullptr;
  PulledFunctional asked;
  asked.of_target = functional->target;
  asked.own_by_chance = functional->own_by_chance;
  for (const Array& seed : functional->seeds) asked.seeds.push_back(seed ? seed.materialize() : Array());
  asked.reach(pullback_.chain);
  functional->reached.assign(asked.reached.end() - std::ssize(chain_), asked.reached.end());
  functional->weights.resize(chain_.size());
  for (std::size_t s = 0; s < chain_.size(); ++s) {
    Array& shown = asked.shown.emplace_back();
    const bool by_chance = (functional->target && of_target(s)) || (functional->own_by_chance && of_own(s));
    if (!functional->reached[s] || !by_chance) continue;
    const Shape& shape = graph_.nodes[chain_[s]].shape;
    shown = s + 1 == chain_.size() ? asked.seeds[s] : Array::uninitialized(shape);
    if (on_host && !errors_[s]) errors_[s] = Array::uninitialized(shape);
    if (on_host && n > kTile) functional->weights[s].emplace(n, kTile);
  }
  functional->cotangents = asked.shown;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    PulledFunctional::Target& into = asked.into.emplace_back();
    const Array* const gathered = adjoint(functional->probe, sources_[i]);
    into.asked = gathered != nullptr && asked.reached[i];
    if (!into.asked || pullback_.one(i)) continue;
    into.add = *gathered && gathered->count() == n;
    if (into.add && gathered->unique() && gathered->contiguous()) {
      into.cotangent = *gathered;
    } else {
      into.cotangent = Array::uninitialized(shape_);
      if (into.add) current_operations().copy(into.cotangent, gathered->reshape(shape_));
    }
  }
  return asked;
}

void ChainPullback::hand_on(const PulledFunctional& asked, const PulledBack& found, std::size_t probe,
                            const Adjoints& adjoint) const {
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const PulledFunctional::Target& into = asked.into[i];
    if (!into.asked) continue;
    Array* const gathered = adjoint(probe, sources_[i]);
    const Shape& shape = graph_.nodes[sources_[i]].shape;
    if (pullback_.one(i))
      current_operations().add_summed(*gathered, shape, Array::full(shape, found.sources[i]));
    else if (count(shape) == count(shape_))
      *gathered = into.cotangent.reshape(shape);
    else
      current_operations().add_summed(*gathered, shape, into.cotangent);
  }
}

void ChainPullback::pull_back(std::vector<ChainFunctional>* functionals, const Adjoints& adjoint) {
  std::vector<PulledFunctional> asked;
  for (ChainFunctional& functional : *functionals) asked.push_back(asked_of(&functional, adjoint));

  const std::int64_t n = count(shape_);
  const std::int64_t tile = current_device() != nullptr ? n : kTile, tiles = (n + tile - 1) / tile;
  std::vector<std::vector<PulledBack>> parts(static_cast<std::size_t>(tiles));
  cpu::parallel_for(tiles, 2, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) {
      const std::int64_t begin = t * tile, length = std::min(tile, n - begin);
      parts[static_cast<std::size_t>(t)] = plumbline::pull_back(pullback_, asked, errors_, begin, length);
      for (ChainFunctional& functional : *functionals)
        for (std::size_t s = 0; s < chain_.size(); ++s)
          if (functional.weights[s])
            functional.weights[s]->weigh(t,
                                         {functional.cotangents[s].address() + begin, static_cast<std::size_t>(length)},
                                         errors_[s].address() + begin);
    }
  });

  for (std::size_t p = 0; p < functionals->size(); ++p) {
    PulledBack whole;
    for (const std::vector<PulledBack>& part : parts) whole.add(part[p]);
    hand_on(asked[p], whole, (*functionals)[p].probe, adjoint);
    (*functionals)[p].charges = std::move(whole.steps);
  }
}

}  // namespace plumbline
