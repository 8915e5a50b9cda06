#include "server/bound/envelope/adjoint.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "kernels/primitive/error_model.h"
#include "kernels/sums.h"
#include "server/bound/envelope/charge.h"
#include "server/bound/envelope/node_chain.h"
#include "server/bound/envelope/sweep.h"
#include "server/bound/replay/arithmetic.h"

namespace plumbline {
namespace {

void accumulate(Noise& total, const Noise& part, double factor = 1) {
  total.bias += factor * part.bias;
  total.squares += factor * factor * part.squares;
}

// The sources of the chain that a node in it adds up, and how often, where it and what lies before it in the chain does
// nothing else: a gradient that is accumulated. Otherwise none.
std::map<NodeId, double> summands(const Graph& graph, const NodeChain& chain, NodeId sum) {
  std::map<NodeId, double> sources, open = {{sum, 1}};
  while (!open.empty()) {
    const auto [id, times] = *std::prev(open.end());  // All that may add it have had their turn.
    open.erase(std::prev(open.end()));
    const Node& node = graph.nodes[id];
    if (node.shape != graph.nodes[sum].shape) return {};
    if (!std::ranges::binary_search(chain, id)) {
      sources[id] = times;
      continue;
    }
    const bool cast = node.primitive == Primitive::kCast && is_float(node.result);
    if (!cast && node.primitive != Primitive::kAdd) return {};
    for (NodeId input : node.inputs) open[input] += times;
  }
  return sources;
}

// The envelopes of all probes, node by node and chain by chain.
class EnvelopeSweep {
 public:
  EnvelopeSweep(const Graph& graph, const Replay& replay, const std::vector<Probe>& probes, const Profile& profile,
                Executions executions, const Slack& slack, const TappedProducts& by_factors, const Closely& closely)
      : graph_(graph),
        replay_(replay),
        probes_(probes),
        profile_(profile),
        of_target_(executions != Executions::kOwn),
        own_(executions != Executions::kTarget ? &replay_arithmetic() : nullptr),
        slack_(slack),
        single_(executions_of(graph) == Executions::kTarget),
        closely_(closely),
        by_factors_(by_factors),
        sweep_(graph, replay, probes, slack, by_factors),
        chains_(graph, replay, sweep_.carries(),
                [&](NodeId id) { return slack.at(id) || replay.passed(id) || closely.unmoved.contains(id); }),
        envelopes_(probes.size()) {
    for (Envelope& envelope : envelopes_) {
      envelope.by_origin.assign(graph.origins.size(), 0.0);
      envelope.noise_by_origin.assign(graph.origins.size(), {});
    }
  }

  // From the last node to the first.
  void pass(NodeId id) {
    if (const NodeChain* const chain = chains_.ending_at(id))
      pass_chain(*chain);
    else if (!chains_.within(id))
      pass_node(id);
  }
  // As far as it has passed, on a device maybe less.
  const std::vector<Envelope>& envelopes() const { return envelopes_; }
  std::vector<Envelope> take_envelopes() {
    settle();
    for (const auto& [p, part] : read_) envelopes_[p].read += part.get();
    return std::move(envelopes_);
  }

 private:
  // Whether the probe asks about the target's execution, and whether it asks about our own roundings by chance and not
  // only whole.
  bool asks_target(std::size_t probe) const {
    return of_target_ && probes_[probe].of_execution && !probes_[probe].of_mathematics;
  }
  bool own_by_chance(std::size_t probe) const {
    return !probes_[probe].of_mathematics && (!single_ || probes_[probe].of_one_element());
  }
  Functional functional(std::size_t probe, const Array& cotangent) const {
    const double squares = envelopes_[probe].noise.squares + envelopes_[probe].own_noise.squares;
    return {probe, cotangent, asks_target(probe), own_by_chance(probe), squares};
  }

  void add(NodeId id, const Functional& functional, const Charges& charges) {
    Envelope& envelope = envelopes_[functional.probe];
    const std::size_t origin = graph_.nodes[id].origin;
    envelope.error += charges.target.whole;
    envelope.by_origin[origin] += charges.target.whole;
    accumulate(envelope.noise, charges.target.noise);
    accumulate(envelope.noise_by_origin[origin], charges.target.noise);
    if (by_factors_.contains(id)) {
      const double error = reading_error(id) * charges.target.whole;
      envelope.error += error;
      envelope.noise.bias += error;
    }
    envelope.rho += 2 * charges.own.whole;
    accumulate(envelope.own_noise, functional.own_by_chance ? charges.own.noise : Noise{charges.own.whole, 0}, 2);
  }

  // Of a product that is read by its factors, relative to its charge.
  double reading_error(NodeId id) const {
    const Node& node = graph_.nodes[id];
    const auto terms = graph_.nodes[node.inputs[0]].shape.back();
    const auto sums = static_cast<double>(node.shape[0] + node.shape[1] + terms);
    const double roundings = sums + dot_roundings(count(node.shape)) + dot_roundings(terms) + 8;
    const double factor =
        primitive::product_error(arithmetic_of(graph_, node, profile_), std::max(node.attributes.size, terms)).factor;
    return factor > 0 ? roundings * 0x1.01p-53 / factor : HUGE_VAL;
  }

  // What the node adds to the functionals is to be added when it is settled, in order.
  void add_later(NodeId id, std::vector<Functional> functionals, const OpenCharges& charges) {
    for (Functional& functional : functionals) functional.cotangent = Array();
    open_.push_back({id, std::move(functionals), charges});
    if (current_device() == nullptr || open_.size() >= kOpenMax) settle();
  }
  void settle() {
    for (const Open& open : std::exchange(open_, {})) {
      std::vector<double> squares;
      for (const Functional& one : open.functionals) squares.push_back(functional(one.probe, {}).squares);
      const std::vector<Charges> charges = open.charges(squares);
      for (std::size_t i = 0; i < charges.size(); ++i) add(open.id, open.functionals[i], charges[i]);
    }
  }

  void pass_chain(const NodeChain& chain) {
    std::vector<ChainFunctional> functionals;
    // Weights that come to sums alone go on as such, to the sources of the chain: by probe.
    struct Handed {
      Weights weights;
      std::map<NodeId, double> to;
    };
    std::map<std::size_t, Handed> handed;
    bool executed = false;
    for (std::size_t p = 0; p < probes_.size(); ++p) {
      ChainFunctional functional{p, asks_target(p), own_by_chance(p), {}};
      std::size_t seeds = 0;
      Handed weights;
      for (NodeId id : chain) {
        Cotangent cotangent = sweep_.take(p, id);
        functional.seeds.push_back(cotangent.elements());
        if (!functional.seeds.back()) continue;
        ++seeds;
        if (cotangent.weights()) weights = {*cotangent.weights(), summands(graph_, chain, id)};
      }
      if (seeds == 0) continue;
      if (seeds == 1 && !weights.to.empty()) handed.emplace(p, std::move(weights));
      executed = executed || functional.target;
      functional.squares = envelopes_[p].noise.squares + envelopes_[p].own_noise.squares;
      functionals.push_back(std::move(functional));
    }
    if (functionals.empty()) return;
    std::vector<std::optional<Arithmetic>> target(chain.size());
    for (std::size_t s = 0; s < chain.size() && executed; ++s)
      target[s] = arithmetic_of(graph_, graph_.nodes[chain[s]], profile_);
    ChainPullback pullback(graph_, replay_, chain, target, own_);
    pullback.pull_back(&functionals, [&](std::size_t p, NodeId source) {
      return handed.contains(p) ? nullptr : sweep_.adjoint(p, source);
    });
    for (const auto& [p, one] : handed)
      for (const auto& [source, times] : one.to)
        sweep_.hand_on(p, source, one.weights.rows, one.weights.columns, times);
    for (std::size_t s = chain.size(); s-- > 0;) {
      const NodeId id = chain[s];
      const Bound error{pullback.errors(s)};
      SharedRoundings::Side of_target{pullback.of_target(s) ? &*target[s] : nullptr, {}};
      SharedRoundings::Side of_own{pullback.of_own(s) ? own_ : nullptr, {}};
      (of_target.arithmetic != nullptr ? of_target : of_own).error = error;
      SharedRoundings shared(graph_, id, of_target, of_own, [this, id] { return sweep_.operands(id); });
      std::vector<ChainFunctional*> open;
      std::vector<Functional> asked;
      std::vector<Later<Charges>> charges;
      for (ChainFunctional& seen : functionals) {
        if (!seen.reached[s] || !(pullback.of_own(s) || (seen.target && pullback.of_target(s)))) continue;
        if (!seen.open[s] && seen.charges[s].known()) {
          add(id, functional(seen.probe, {}), seen.charges[s]);
          continue;
        }
        open.push_back(&seen);
        asked.push_back(functional(seen.probe, seen.cotangents[s]));
        charges.push_back(seen.charges[s]);
      }
      if (current_device() != nullptr) {
        const OpenCharges later = shared.open(asked, std::move(charges));
        add_later(id, std::move(asked), later);
        continue;
      }
      std::vector<Charges> found;
      found.reserve(asked.size());
      std::vector<SharedRoundings::Charged> charged;
      for (std::size_t i = 0; i < asked.size(); ++i) {
        found.push_back(charges[i]);
        charged.push_back({asked[i], std::move(open[i]->weights[s]), &found[i]});
      }
      shared.charge(std::move(charged));
      for (std::size_t i = 0; i < asked.size(); ++i) add(id, asked[i], found[i]);
    }
  }

  // How far a number of the node moves the functional: a constant's value, or what is added under a root, which moves
  // the result by less than half of its own relative change.
  double by_number(NodeId id, const Array& cotangents, double width) const {
    const Node& node = graph_.nodes[id];
    if (node.primitive == Primitive::kConstant) return std::fabs(cotangents.item()) * width;
    Array moved = Array::uninitialized(node.shape);
    current_operations().scale(moved, 0.5 * width / std::fabs(node.attributes.scalar), replay_.value(id).materialize());
    return weighted_bound(cotangents, Bound{moved});
  }

  // The cotangent where roundings may move the node.
  Array moved(NodeId id, const Array& cotangent) const {
    const auto unmoved = closely_.unmoved.find(id);
    if (unmoved == closely_.unmoved.end()) return cotangent;
    const std::vector<Array> where{unmoved->second, cotangent, Array::scalar(0)};
    return traits(Primitive::kSelect).evaluate({}, cotangent.shape(), where);
  }

  // `seen`: by probe. What the rounding is made of is given up at once.
  void charge_node(NodeId id, bool executed, std::vector<Cotangent>* seen) {
    if (const auto all = closely_.unmoved.find(id); all != closely_.unmoved.end() && !all->second) return;
    Arithmetic target = arithmetic_of(graph_, graph_.nodes[id], profile_);
    // Norms do for what is held in few bits: it loses most where it is rounded.
    target.magnitudes = closely_.magnitudes;
    const NodeRounding rounding(graph_, id, sweep_.operands(id), executed ? &target : nullptr, own_);
    std::vector<Functional> functionals;
    for (std::size_t p = 0; p < probes_.size(); ++p)
      if ((*seen)[p] && (rounding.of_own() || (rounding.of_target() && asks_target(p))))
        functionals.push_back(functional(p, moved(id, (*seen)[p].elements())));
    const OpenCharges charges = rounding.charges(functionals);
    add_later(id, std::move(functionals), charges);
  }

  void pass_node(NodeId id) {
    std::vector<Cotangent> seen;
    bool reached = false, executed = false;
    for (std::size_t p = 0; p < probes_.size(); ++p) {
      seen.push_back(sweep_.take(p, id));
      reached = reached || seen.back();
      executed = executed || (seen.back() && asks_target(p));
    }
    if (!reached) return;
    charge_node(id, executed, &seen);
    for (std::size_t p = 0; p < probes_.size(); ++p) {
      if (!seen[p]) continue;
      if (const auto number = slack_.numbers.find(id); number != slack_.numbers.end())
        envelopes_[p].python += by_number(id, seen[p].elements(), number->second);
      if (const auto data = slack_.handed.find(id); data != slack_.handed.end())
        envelopes_[p].python += weighted_bound(seen[p].elements(), Bound{data->second});
      if (const auto free = slack_.freedoms.find(id); free != slack_.freedoms.end())
        envelopes_[p].freedom += weighted_bound(seen[p].elements(), Bound{free->second});
      if (const auto item = slack_.replaced.find(id); item != slack_.replaced.end())
        envelopes_[p].replaced += weighted_bound(seen[p].elements(), Bound{item->second});
      if (by_factors_.contains(id)) {
        read_.emplace_back(p, sweep_.read_by_factors(p, id, seen[p].weights().value()));
        continue;
      }
      sweep_.pull_back(p, id, std::move(seen[p]), single_);
    }
  }

  // A node whose charges may still be on a device, which is waited for when so many are.
  struct Open {
    NodeId id;
    std::vector<Functional> functionals;  // Without their cotangents.
    OpenCharges charges;
  };
  static constexpr std::size_t kOpenMax = 512;

  const Graph& graph_;
  const Replay& replay_;
  const std::vector<Probe>& probes_;
  const Profile& profile_;
  const bool of_target_;
  const Arithmetic* const own_;  // Null: our own roundings are not asked about.
  const Slack& slack_;
  // Cotangents differ by as much between the exact execution and one that rounds to fp32: of second order.
  const bool single_;
  const Closely& closely_;
  const TappedProducts& by_factors_;
  Sweep sweep_;
  const NodeChains chains_;
  std::vector<Envelope> envelopes_;
  std::vector<Open> open_;
  std::vector<std::pair<std::size_t, Later<double>>> read_;  // By probe.
};

}  // namespace

double statistical(const Noise& noise, double lambda) { return noise.bias + lambda * std::sqrt(noise.squares); }

double hoeffding_lambda(double tests, double alpha) { return std::sqrt(2 * std::log(2 * tests / alpha)); }

double replay_error(const std::vector<const Envelope*>& envelopes, double lambda) {
  double worst = 0;
  Noise noise;
  for (const Envelope* envelope : envelopes) {
    worst += envelope->rho;
    accumulate(noise, envelope->own_noise);
  }
  const double chance = 10 * statistical(noise, lambda);
  return chance < worst ? chance : worst;
}

Executions executions_of(const Graph& graph) {
  for (const Node& node : graph.nodes)
    if (node.compute == Format::kFloat64 && !traits(node.primitive).bitwise) return Executions::kBoth;
  return Executions::kTarget;
}

std::vector<Envelope> adjoint_envelopes(const Graph& graph, const Replay& replay, const std::vector<Probe>& probes,
                                        const Profile& profile, Executions executions, const Slack& slack, bool last,
                                        const TappedProducts& by_factors, const Closely& closely) {
  EnvelopeSweep sweep(graph, replay, probes, profile, executions, slack, by_factors, closely);
  for (NodeId id = static_cast<NodeId>(graph.nodes.size()); id-- > 0;) {
    sweep.pass(id);
    if (last) replay.give_up(id);
  }
  return sweep.take_envelopes();
}

Envelope adjoint_envelope_until(const std::function<bool(const Envelope&)>& enough, const Graph& graph,
                                const Replay& replay, const Probe& probe, const Profile& profile, Executions executions,
                                const Slack& slack) {
  const std::vector<Probe> one = {probe};
  const TappedProducts none;
  const Closely closely;
  EnvelopeSweep sweep(graph, replay, one, profile, executions, slack, none, closely);
  for (auto id = static_cast<NodeId>(graph.nodes.size()); id-- > 0 && !enough(sweep.envelopes().front());)
    sweep.pass(id);
  return sweep.take_envelopes().front();
}

std::vector<double> second_order_remainders(const Graph& graph, const Replay& exact, const Replay& rounded,
                                            const std::vector<Probe>& probes, const Profile& profile) {
  std::vector<double> remainders(probes.size(), 0.0);
  Sweep centre(graph, exact, probes), moved(graph, rounded, probes);
  for (NodeId id = static_cast<NodeId>(graph.nodes.size()); id-- > 0;) {
    const Node& node = graph.nodes[id];
    for (std::size_t p = 0; p < probes.size(); ++p) {
      Cotangent at_centre = centre.take(p, id), at_moved = moved.take(p, id);
      if (!at_centre && !at_moved) continue;
      const auto [inputs, value] = centre.operands(id);
      const Bound error =
          traits(node.primitive).local_error(node.attributes, {node.compute, node.result, &profile}, inputs, value);
      if (error) {
        Array change = at_moved ? at_moved.elements().materialize() : Array::zeros(node.shape);
        if (at_centre) {
          Array difference = Array::uninitialized(node.shape);
          const Array c = at_centre.elements().materialize();
          for (std::int64_t i = 0; i < difference.count(); ++i)
            difference.data()[i] = change.data()[i] == c.data()[i] ? 0 : change.data()[i] - c.data()[i];
          change = difference;
        }
        remainders[p] += weighted_bound(change, error);
      }
      if (at_centre) centre.pull_back(p, id, std::move(at_centre));
      if (at_moved) moved.pull_back(p, id, std::move(at_moved));
    }
  }
  return remainders;
}

}  // namespace plumbline
