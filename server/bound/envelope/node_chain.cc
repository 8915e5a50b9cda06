#include "server/bound/envelope/node_chain.h"

#include <algorithm>
#include <set>

#include "kernels/cpu/parallel.h"
#include "kernels/device.h"
#include "kernels/operations.h"

namespace plumbline {
namespace {

constexpr std::size_t kStepsMax = 32;    // Each that is open has its errors and cotangents written.
constexpr std::int64_t kTile = 1 << 14;  // Elements that a thread takes at a time.
// From so many elements on, what elements share is found by draws within the pass. Fewer stay near the processor.
constexpr std::int64_t kDrawnFrom = 1 << 13;

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
    pullback_.steps[s].exact_at_zero = exact_at_zero(graph, chain[s]);
    for (std::size_t k = 0; k < node.inputs.size(); ++k)  // One number for all tells nothing apart.
      if (count(graph.nodes[node.inputs[k]].shape) > 1)
        pullback_.steps[s].told_by.emplace_back(static_cast<int>(k), RoundTo(graph.nodes[node.inputs[k]].result));
  }
  pullback_.chain.ask(steps);
}

void ChainPullback::for_each_tile(const OfTile& of_tile) const {
  const std::int64_t n = count(shape_);
  cpu::parallel_for((n + kTile - 1) / kTile, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t) of_tile(t, t * kTile, std::min(kTile, n - t * kTile));
  });
}

bool ChainPullback::by_chance(const ChainFunctional& functional, std::size_t step) const {
  return (functional.target && of_target(step)) || (functional.own_by_chance && of_own(step));
}

Functional ChainPullback::asking(const ChainFunctional& functional, std::size_t step) const {
  return {functional.probe,
          {},
          functional.target && of_target(step),
          functional.own_by_chance && of_own(step),
          functional.squares};
}

// Whether the pass is to draw elements of the step by the functional's weights.
bool ChainPullback::draws(const ChainFunctional& functional, std::size_t step) const {
  return by_chance(functional, step) && count(shape_) >= kDrawnFrom && current_device() == nullptr;
}

// Has the step's cotangent written, and what its elements' weights are made of.
void ChainPullback::show(ChainFunctional* functional, std::size_t step, PulledFunctional* asked) {
  const std::int64_t n = count(shape_);
  const bool on_host = current_device() == nullptr;
  const Shape& shape = graph_.nodes[chain_[step]].shape;
  Array& shown = asked->shown[step];
  if (!shown) shown = Array::uninitialized(shape);
  if (on_host && !errors_[step]) errors_[step] = Array::uninitialized(shape);
  if (on_host && n > kTile) functional->weights[step].emplace(n, kTile);
  functional->cotangents[step] = shown;
}

void ChainPullback::weigh(ChainFunctional* functional, std::int64_t t, std::int64_t begin, std::int64_t length) const {
  for (std::size_t s = 0; s < chain_.size(); ++s)
    if (functional->weights[s])
      functional->weights[s]->weigh(t, {functional->cotangents[s].address() + begin, static_cast<std::size_t>(length)},
                                    errors_[s].address() + begin);
}

PulledFunctional ChainPullback::asked_of(ChainFunctional* functional, const Adjoints& adjoint) {
  const std::int64_t n = count(shape_);
  PulledFunctional asked;
  asked.of_target = functional->target;
  asked.own_by_chance = functional->own_by_chance;
  for (const Array& seed : functional->seeds) asked.seeds.push_back(seed ? seed.materialize() : Array());
  asked.reach(pullback_.chain);
  functional->reached.assign(asked.reached.end() - std::ssize(chain_), asked.reached.end());
  functional->weights.resize(chain_.size());
  functional->cotangents.resize(chain_.size());
  functional->open.assign(chain_.size(), false);
  asked.shown.resize(chain_.size());
  asked.shown.back() = asked.seeds.back();  // No step reads the last one.
  for (std::size_t s = 0; s < chain_.size(); ++s) {
    if (!functional->reached[s] || !by_chance(*functional, s) || draws(*functional, s)) continue;
    functional->open[s] = true;
    show(functional, s, &asked);
  }
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    PulledFunctional::Target& into = asked.into.emplace_back();
    const Array* const gathered = adjoint(functional->probe, sources_[i]);
    into.asked = gathered != nullptr && asked.reached[i];
    if (into.asked && pullback_.one(i) && current_device() != nullptr) into.cotangent = Array::uninitialized({1});
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
    if (pullback_.one(i) && !into.cotangent)
      current_operations().add_summed(*gathered, shape, Array::full(shape, found.sources[i]));
    else if (pullback_.one(i))
      current_operations().add_summed(*gathered, shape, into.cotangent.reshape(shape));
    else if (count(shape) == count(shape_))
      *gathered = into.cotangent.reshape(shape);
    else
      current_operations().add_summed(*gathered, shape, into.cotangent);
  }
}

// Lets each functional that draws know how far its draws lie apart: by a few elements, spread over all.
void ChainPullback::space_draws(const std::vector<ChainFunctional>& functionals,
                                std::vector<PulledFunctional>* asked) const {
  constexpr std::int64_t kPieces = 32, kPiece = 64;
  std::vector<PulledFunctional> pilots;
  for (const PulledFunctional& one : *asked) {
    PulledFunctional& pilot = pilots.emplace_back(one);
    pilot.shown.assign(chain_.size(), {});
    pilot.into.assign(sources_.size(), {});
  }
  const std::int64_t n = count(shape_);
  const std::vector<Array> no_errors(chain_.size());
  std::vector<PulledBack> few(pilots.size());
  for (std::int64_t piece = 0; piece < kPieces; ++piece) {
    const std::vector<PulledBack> found =
        plumbline::pull_back(pullback_, pilots, no_errors, n / kPieces * piece, kPiece);
    for (std::size_t p = 0; p < few.size(); ++p) few[p].add(found[p]);
  }
  const double scale = static_cast<double>(n) / (kPieces * kPiece);
  for (std::size_t p = 0; p < functionals.size(); ++p) {
    const ChainFunctional& functional = functionals[p];
    std::vector<double>& every = (*asked)[p].draw_every;
    every.resize(chain_.size());
    for (std::size_t s = 0; s < chain_.size(); ++s) {
      if (!functional.reached[s] || !draws(functional, s)) continue;
      Charges about = few[p].steps[s];
      for (Charge* charge : {&about.target, &about.own}) {
        charge->whole *= scale;
        charge->noise.squares *= scale;
      }
      every[s] = draw_every(asking(functional, s), graph_.nodes.size(), about, n);
    }
  }
}

// Where draws did not say enough, the pass is made again for what is open, and hands nothing on.
void ChainPullback::show_open(std::vector<ChainFunctional>* functionals, std::vector<PulledFunctional> asked) {
  for (std::size_t p = 0; p < asked.size(); ++p) {
    asked[p].draw_every.clear();
    asked[p].into.assign(sources_.size(), {});
    for (std::size_t s = 0; s < chain_.size(); ++s)
      if ((*functionals)[p].open[s] && !(*functionals)[p].cotangents[s]) show(&(*functionals)[p], s, &asked[p]);
  }
  for_each_tile([&](std::int64_t t, std::int64_t begin, std::int64_t length) {
    plumbline::pull_back(pullback_, asked, errors_, begin, length);
    for (ChainFunctional& functional : *functionals) weigh(&functional, t, begin, length);
  });
}

void ChainPullback::pull_back_later(std::vector<ChainFunctional>* functionals,
                                    const std::vector<PulledFunctional>& asked, const Adjoints& adjoint) {
  const auto found = plumbline::pull_back(pullback_, asked, errors_, 0, count(shape_));
  for (std::size_t p = 0; p < functionals->size(); ++p) {
    ChainFunctional& functional = (*functionals)[p];
    hand_on(asked[p], {}, functional.probe, adjoint);
    for (std::size_t s = 0; s < chain_.size(); ++s)
      functional.charges.push_back(found.then([p, s](const std::vector<PulledBack>& all) { return all[p].steps[s]; }));
  }
}

void ChainPullback::pull_back(std::vector<ChainFunctional>* functionals, const Adjoints& adjoint) {
  std::vector<PulledFunctional> asked;
  for (ChainFunctional& functional : *functionals) asked.push_back(asked_of(&functional, adjoint));
  if (current_device() != nullptr) return pull_back_later(functionals, asked, adjoint);
  bool drawn = false;
  for (const ChainFunctional& functional : *functionals)
    for (std::size_t s = 0; s < chain_.size(); ++s) drawn = drawn || (functional.reached[s] && draws(functional, s));
  if (drawn) space_draws(*functionals, &asked);

  const std::int64_t n = count(shape_);
  std::vector<std::vector<PulledBack>> parts(static_cast<std::size_t>((n + kTile - 1) / kTile));
  for_each_tile([&](std::int64_t t, std::int64_t begin, std::int64_t length) {
    parts[static_cast<std::size_t>(t)] = plumbline::pull_back(pullback_, asked, errors_, begin, length);
    for (ChainFunctional& functional : *functionals) weigh(&functional, t, begin, length);
  });

  bool open = false;
  for (std::size_t p = 0; p < functionals->size(); ++p) {
    ChainFunctional& functional = (*functionals)[p];
    PulledBack whole;
    for (const std::vector<PulledBack>& part : parts) whole.add(part[p]);
    hand_on(asked[p], whole, functional.probe, adjoint);
    for (std::size_t s = 0; s < chain_.size(); ++s) {
      if (!functional.reached[s] || !draws(functional, s)) continue;
      functional.open[s] = !charge_by_draws(asking(functional, s), graph_.nodes.size(), whole.drawn[s],
                                            asked[p].draw_every[s], n, &whole.steps[s]);
      open = open || functional.open[s];
    }
    functional.charges.assign(whole.steps.begin(), whole.steps.end());
  }
  if (open) show_open(functionals, std::move(asked));
}

}  // namespace plumbline
