#include "server/bound/findings/hazards.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <map>
#include <set>

#include "kernels/checks.h"
#include "server/bound/findings/grid_hazards.h"

namespace plumbline {
namespace {

// A tenth of a step, or of a sum's terms, is lost: as much as makes an envelope say nothing.
constexpr double kLostMin = 0.1;
// Additions by one line of the program that make a running sum; fewer are a formula.
constexpr std::size_t kRunningSumMin = 8;

// Whether the format's exponents reach less far than fp32's, so that ordinary values of a network leave its range.
bool short_range(Format format) { return traits(format).exponent_max < traits(Format::kFloat32).exponent_max; }

// A float that arithmetic made or a cast rounded.
bool rounds(const Node& node) {
  return node.primitive != Primitive::kLeaf && node.primitive != Primitive::kConstant && is_float(node.result) &&
         node.result != Format::kFloat64 && !(traits(node.primitive).bitwise && node.primitive != Primitive::kCast);
}

double share(double part, double whole) { return whole == 0 ? 0 : part / whole; }

// Overflow and underflow. What is lost below the normal range counts where it exceeds, in norm, what rounding to
// nearest may do to the whole tensor: u norm(x). A tensor of typical size s has its error of eta below s u only from
// s = eta / u on, the smallest normal; the long tail of small elements that every gradient has does no such harm.
void find_range_hazards(const Graph& graph, const Replay& values, bool not_finite,
                        std::vector<HazardFinding>* findings) {
  std::optional<HazardFinding> overflow, underflow;
  int scale_min = -(1 << 16), scale_max = 1 << 16;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (!values.has(id) || !rounds(node) || !(short_range(node.result) || not_finite)) continue;
    const Phase phase = graph.origins[node.origin].phase;
    const FormatRange range = range_of(node.result, values.computed(id));
    if (range.nonzero == 0) continue;
    const bool gradient = phase == Phase::kBackward;
    const double typical = std::sqrt(range.squares / range.nonzero);
    if (gradient) {
      scale_max = std::min(scale_max, std::ilogb(largest_finite(node.result) / range.largest));
      scale_min = std::max(scale_min, std::ilogb(smallest_normal(node.result) / typical) + 1);
    }
    if (range.overflowing > 0 && !overflow)
      overflow = HazardFinding{HazardKind::kOverflow, id, share(range.overflowing, range.nonzero), 1, {}, {}};
    if (!gradient && phase != Phase::kOptimizer) continue;
    const double rounding = unit_roundoff(node.result) * std::sqrt(range.squares);
    if (!(std::sqrt(range.lost_squares) > rounding)) continue;
    const double harm = std::sqrt(range.lost_squares / range.squares);
    if (!underflow || harm > underflow->harm)
      underflow = HazardFinding{HazardKind::kUnderflow, id, share(range.underflowing, range.nonzero), harm, {}, {}};
  }
  for (const auto& found : {overflow, underflow}) {
    if (!found) continue;
    findings->push_back(*found);
    // Where gradients overflow as well, a smaller loss scale keeps what lies before them too.
    const bool gradient = graph.origins[graph.nodes[found->node].origin].phase == Phase::kBackward;
    if (!gradient && !(found->kind == HazardKind::kOverflow && scale_max < 0)) continue;
    findings->back().scale_min = scale_min;
    findings->back().scale_max = scale_max;
  }
}

// What a node accumulates into: a weight, optimizer state or carried gradient, or the last addition of a running sum.
struct Accumulator {
  enum class Kind : std::uint8_t { kNone, kWeight, kState, kSum } kind = Kind::kNone;
  Format format = Format::kUnknown;  // The leaf is held in it.
  std::size_t chain = 0;             // It is set for kState and kSum.
};

// An addition that is looked at, and what is found there.
struct Addition {
  std::optional<std::size_t> into;  // The operand that accumulates, in `format`:
  Format format = Format::kUnknown;
  std::optional<std::size_t> chain;  // A running sum, or else a weight.
  bool may_cancel = false;

  struct Found {
    Absorbed absorbed;
    Cancelled cancelled;

    void join(const Found& other) {
      absorbed.elements += other.absorbed.elements;
      absorbed.lost_elements += other.absorbed.lost_elements;
      absorbed.total += other.absorbed.total;
      absorbed.lost += other.absorbed.lost;
      cancelled.terms_squares += other.cancelled.terms_squares;
      cancelled.squares += other.cancelled.squares;
    }
  };
  // There is one for each tile.
  std::vector<Later<Absorbed>> absorbed;
  std::vector<Later<Cancelled>> cancelled;

  // In all: tiles that were not shown are taken for what the others are.
  Found found() const {
    Found in_all;
    for (const Later<Absorbed>& part : absorbed) in_all.join({part.get(), {}});
    for (const Later<Cancelled>& part : cancelled) in_all.join({{}, part.get()});
    const auto scale = [](std::size_t tiles, std::initializer_list<double*> sums) {
      if (tiles <= kSampledTiles) return;
      for (double* sum : sums) *sum *= static_cast<double>(tiles) / static_cast<double>(kSampledTiles);
    };
    Absorbed& lost = in_all.absorbed;
    scale(absorbed.size(), {&lost.elements, &lost.lost_elements, &lost.total, &lost.lost});
    scale(cancelled.size(), {&in_all.cancelled.terms_squares, &in_all.cancelled.squares});
    return in_all;
  }
};
using Additions = std::map<NodeId, Addition>;

// Additions into one running sum, from one line of the program, or into weights of one format.
struct Chain {
  std::vector<NodeId> additions;
  NodeId worst = 0;
  double worst_lost = 0;
  Addition::Found found;  // In all.

  bool loses() const { return found.absorbed.lost > kLostMin * found.absorbed.total; }
};

class Accumulations {
 public:
  // Adds to `additions` what it wants to be looked at.
  Accumulations(const Graph& graph, const Replay& values, Additions* additions)
      : graph_(graph), values_(values), additions_(additions), into_(graph.nodes.size()) {
    for (const GraphLeaf& leaf : graph.leaves) {
      if (!is_float(leaf.format)) continue;
      if (leaf.role == LeafRole::kParameter) into_[leaf.node] = {Accumulator::Kind::kWeight, leaf.format, 0};
      if (leaf.role == LeafRole::kState) into_[leaf.node] = {Accumulator::Kind::kState, leaf.format, new_chain()};
    }
    narrowest_cast_.assign(graph.nodes.size(), Format::kUnknown);
    constant_.assign(graph.nodes.size(), false);
    for (const Node& node : graph_.nodes)
      if (node.primitive == Primitive::kCast && is_float(node.result)) narrowest_cast_[node.inputs[0]] = node.result;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) visit(id);
  }

  void find(std::vector<HazardFinding>* findings) {
    for (const auto& [id, addition] : *additions_) {
      if (!addition.into) continue;
      Chain& chain = addition.chain ? chains_[*addition.chain] : weights_[addition.format];
      const Addition::Found found = addition.found();
      chain.found.join(found);
      if (found.absorbed.lost_elements < chain.worst_lost) continue;
      chain.worst = id;
      chain.worst_lost = found.absorbed.lost_elements;
    }
    for (const auto& [format, weights] : weights_)
      if (weights.loses()) findings->push_back(finding(HazardKind::kLostUpdates, weights));
    const Chain* worst = nullptr;
    for (const Chain& chain : chains_)
      if (chain.loses() &&
          (worst == nullptr || chain.found.absorbed.lost_elements > worst->found.absorbed.lost_elements))
        worst = &chain;
    if (worst != nullptr) findings->push_back(finding(HazardKind::kStagnation, *worst));
  }

 private:
  std::size_t new_chain() {
    chains_.emplace_back();
    return chains_.size() - 1;
  }

  HazardFinding finding(HazardKind kind, const Chain& chain) const {
    const Absorbed& all = chain.found.absorbed;
    return {kind, chain.worst, share(all.lost_elements, all.elements), all.lost / all.total, {}, {}};
  }

  void visit(NodeId id) {
    const Node& node = graph_.nodes[id];
    if (!values_.has(id)) return;
    constant_[id] = node.primitive == Primitive::kConstant || node.primitive == Primitive::kIota;
    if (!node.inputs.empty()) {
      bool all = true;
      for (NodeId input : node.inputs) all = all && constant_[input];
      constant_[id] = all;
    }
    switch (node.primitive) {
      case Primitive::kCast:
      case Primitive::kWindow:
        into_[id] = into_[node.inputs[0]];
        return;
      case Primitive::kMul:  // Decay by a number.
        for (std::size_t i : {0, 1})
          if (count(graph_.nodes[node.inputs[1 - i]].shape) == 1 &&
              into_[node.inputs[i]].kind != Accumulator::Kind::kSum)
            into_[id] = into_[node.inputs[i]];
        return;
      case Primitive::kAdd:
      case Primitive::kSub:
        if (is_float(node.result)) visit_addition(id);
        return;
      default:
        return;
    }
  }

  void visit_addition(NodeId id) {
    const Node& node = graph_.nodes[id];
    for (std::size_t i : {0, 1}) {
      const NodeId before = node.inputs[i], addend = node.inputs[1 - i];
      const Accumulator& accumulator = into_[before];
      if (accumulator.kind == Accumulator::Kind::kNone || (i == 1 && node.primitive == Primitive::kSub)) continue;
      if (constant_[addend] || graph_.nodes[before].shape != node.shape) continue;
      Format format = node.result;
      if (narrowest_cast_[id] == accumulator.format) format = accumulator.format;  // Read wide, stored as it was.
      if (accumulator.kind == Accumulator::Kind::kWeight) {
        if (into_[addend].kind == Accumulator::Kind::kWeight) continue;  // A sum of weights is no step.
        look_at(id, i, format, {});
        return;
      }
      Chain& chain = chains_[accumulator.chain];
      const bool same_line = chain.additions.empty() || source(chain.additions.back()) == source(id);
      if (accumulator.kind == Accumulator::Kind::kSum && !same_line) continue;
      chain.additions.push_back(id);
      if (accumulator.kind == Accumulator::Kind::kState || chain.additions.size() >= kRunningSumMin)
        look_at(id, i, format, accumulator.chain);
      into_[id] = {Accumulator::Kind::kSum, accumulator.format, accumulator.chain};
      return;
    }
    const std::size_t chain = new_chain();
    chains_[chain].additions.push_back(id);
    into_[id] = {Accumulator::Kind::kSum, node.result, chain};
  }

  void look_at(NodeId id, std::size_t into, Format format, std::optional<std::size_t> chain) {
    Addition& addition = (*additions_)[id];
    addition.into = into;
    addition.format = format;
    addition.chain = chain;
  }

  const std::string& source(NodeId id) const { return graph_.origins[graph_.nodes[id].origin].source; }

  const Graph& graph_;
  const Replay& values_;
  Additions* const additions_;
  std::vector<Accumulator> into_;  // There is one for each node.
  std::vector<Format> narrowest_cast_;
  std::vector<bool> constant_;
  std::vector<Chain> chains_;
  std::map<Format, Chain> weights_;
};

// The node that made what `id` hands on.
NodeId made(const Graph& graph, NodeId id) {
  while (graph.nodes[id].primitive == Primitive::kWindow) id = graph.nodes[id].inputs[0];
  return id;
}

// Operations that an equation defines, which Newton's steps solve from what was observed: their residuals, which are
// zero by mathematics, are ours and no sums of the program.
std::set<std::uint32_t> solved(const Graph& graph) {
  std::map<NodeId, std::uint32_t> starts;
  for (const GraphLeaf& leaf : graph.leaves)
    if (leaf.anchor) starts[leaf.node] = graph.nodes[leaf.node].origin;
  std::set<std::uint32_t> origins;
  for (const Node& node : graph.nodes)
    for (NodeId input : node.inputs)
      if (const auto start = starts.find(input); start != starts.end() && start->second == node.origin)
        origins.insert(node.origin);
  return origins;
}

// Sums of two computed terms. Not in backward: a gradient cancels at every optimum, by design.
void add_what_may_cancel(const Graph& graph, const Replay& values, Additions* additions) {
  const std::set<std::uint32_t> ours = solved(graph);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.primitive != Primitive::kSub && node.primitive != Primitive::kAdd) continue;
    if (!values.has(id) || !is_float(node.result) || node.shape != graph.nodes[node.inputs[0]].shape) continue;
    if (graph.origins[node.origin].phase == Phase::kBackward || ours.contains(node.origin)) continue;
    if (rounds(graph.nodes[made(graph, node.inputs[0])]) && rounds(graph.nodes[made(graph, node.inputs[1])]))
      (*additions)[id].may_cancel = true;
  }
}

// Less than half of the format's digits are kept: norm(|a| + |b|) > norm(a + b) / sqrt(u).
void find_cancellation(const Graph& graph, const Additions& additions, std::vector<HazardFinding>* findings) {
  std::optional<HazardFinding> worst;
  for (const auto& [id, addition] : additions) {
    if (!addition.may_cancel) continue;
    const Cancelled found = addition.found().cancelled;
    const double factor = std::sqrt(found.terms_squares / found.squares);
    if (!std::isfinite(factor) || !(factor * std::sqrt(unit_roundoff(graph.nodes[id].result)) > 1)) continue;
    if (!worst || factor > worst->harm) worst = HazardFinding{HazardKind::kCancellation, id, 1, factor, {}, {}};
  }
  if (worst) findings->push_back(*worst);
}

}  // namespace

struct HazardSearch::State {
  State(const Graph& of, const Replay& by, const Replay& added) : graph(of), values(by), between(added) {
    add_what_may_cancel(graph, between, &additions);
  }

  const Graph& graph;
  const Replay& values;
  const Replay& between;
  Additions additions;
  Accumulations accumulations{graph, between, &additions};
};

HazardSearch::HazardSearch(const Graph& graph, const Replay& values, const Replay& between)
    : state_(std::make_unique<State>(graph, values, between)) {}
HazardSearch::~HazardSearch() = default;

namespace {

// Has `found` say of each tile what `look_at` sees in an addition's terms and its sum, as the replay has them.
template <class Seen, class LookAt>
Look look_of(const Graph& graph, const Replay& replay, NodeId id, std::vector<Later<Seen>>* found, LookAt look_at) {
  const Node& node = graph.nodes[id];
  found->resize(count_parts(count(node.shape)), Seen());
  const auto of_tile = [found, look_at](std::int64_t index, const Tile&, std::span<const Array> ends) {
    (*found)[static_cast<std::size_t>(index)] = look_at({ends[1], ends[2]}, ends[0]);
  };
  const auto whole = [found, look_at, &node, id, &replay] {
    found->assign(1, look_at({replay.value(node.inputs[0]), replay.value(node.inputs[1])}, replay.value(id)));
  };
  return {{id}, of_tile, whole, /*operands=*/true, /*sampled=*/true};
}

Look look_of_cancelled(const Graph& graph, const Replay& replay, NodeId id, Addition* addition) {
  return look_of(graph, replay, id, &addition->cancelled, [](const std::array<Array, 2>& terms, const Array& sum) {
    return cancelled(sum, terms[0], terms[1]);
  });
}

Look look_of_absorbed(const Graph& graph, const Replay& replay, NodeId id, Addition* addition) {
  return look_of(graph, replay, id, &addition->absorbed, [addition](const std::array<Array, 2>& terms, const Array&) {
    return absorbed(terms[*addition->into], terms[1 - *addition->into], addition->format);
  });
}

// Whether what cancels at the node is looked for in exact values.
bool asked_of_values(const Graph& graph, const Replay& values, NodeId id) {
  return graph.origins[graph.nodes[id].origin].phase != Phase::kOptimizer && values.has(id);
}

}  // namespace

std::vector<Look> HazardSearch::looks() {
  std::vector<Look> looks;
  for (auto& [id, addition] : state_->additions)
    if (addition.may_cancel && asked_of_values(state_->graph, state_->values, id))
      looks.push_back(look_of_cancelled(state_->graph, state_->values, id, &addition));
  return looks;
}

std::vector<Look> HazardSearch::looks_between() {
  std::vector<Look> looks;
  for (auto& [id, addition] : state_->additions) {
    if (addition.into) looks.push_back(look_of_absorbed(state_->graph, state_->between, id, &addition));
    if (addition.may_cancel && !asked_of_values(state_->graph, state_->values, id))
      looks.push_back(look_of_cancelled(state_->graph, state_->between, id, &addition));
  }
  return looks;
}

std::vector<HazardFinding> HazardSearch::find(bool not_finite) {
  std::vector<HazardFinding> findings;
  find_range_hazards(state_->graph, state_->values, not_finite, &findings);
  state_->accumulations.find(&findings);
  find_cancellation(state_->graph, state_->additions, &findings);
  find_grid_hazards(state_->graph, state_->values, &findings);
  return findings;
}

}  // namespace plumbline
