#include "server/bound/pairing.h"

#include <algorithm>
#include <cmath>

#include "kernels/sums.h"
#include "server/bound/range.h"
#include "server/bound/taps.h"
#include "server/bound/updates.h"

namespace plumbline {
namespace {

constexpr std::size_t kDrilledMax = 4;

bool same_node(const Node& a, const Node& b) {
  return a.primitive == b.primitive && a.inputs == b.inputs && a.attributes == b.attributes && a.shape == b.shape &&
         a.result == b.result && a.compute == b.compute;
}

bool same_terms(const GraphTap& a, const GraphTap& b) {
  return a.name == b.name && std::equal(a.terms.begin(), a.terms.end(), b.terms.begin(), b.terms.end(),
                                        [](const GraphTap::Term& x, const GraphTap::Term& y) {
                                          return x.node == y.node && x.weight == y.weight;
                                        });
}

bool same_program(const Graph& target, const std::vector<LeafValue>& target_leaves, const Graph& reference,
                  const std::vector<LeafValue>& reference_leaves) {
  if (!std::equal(target.nodes.begin(), target.nodes.end(), reference.nodes.begin(), reference.nodes.end(),
                  same_node) ||
      !std::equal(target.taps.begin(), target.taps.end(), reference.taps.begin(), reference.taps.end(), same_terms) ||
      target.leaves.size() != reference.leaves.size())
    return false;
  for (std::size_t i = 0; i < target.leaves.size(); ++i) {
    if (target.leaves[i].node != reference.leaves[i].node || !target_leaves[i] != !reference_leaves[i]) return false;
    if (target_leaves[i] && !bitwise_equal(target_leaves[i], reference_leaves[i])) return false;
  }
  return true;
}

// What a pairing keeps at hand: both graphs, both replays, the taps they share.
struct Pairing {
  const BoundsInput& input;
  const Replay& target_exact;
  Replay reference_exact;
  std::vector<PairedTap> pairs;  // In the target's order.
  Uncertainty target_numbers = {}, reference_numbers = {};
  bool one_program = false;  // Both replays are one.

  // M_T(z), M_R(z).
  Array of_target(const PairedTap& pair) const { return replayed_value(input.target->taps[pair.target], target_exact); }
  Array of_reference(const PairedTap& pair) const {
    return replayed_value(input.reference->taps[pair.reference], reference_exact);
  }

  const PairedTap* find(std::size_t target_tap) const {
    const auto found = std::lower_bound(pairs.begin(), pairs.end(), target_tap,
                                        [](const PairedTap& pair, std::size_t tap) { return pair.target < tap; });
    return found != pairs.end() && found->target == target_tap ? &*found : nullptr;
  }

  // The same probe of the reference's taps.
  Probe reindexed(const Probe& probe) const {
    Probe result = probe;
    for (Probe::Part& part : result.parts) part.tap = find(part.tap)->reference;
    return result;
  }

  // <x, M_T - M_R>, relative to the probe's scale.
  double gap(const Probe& probe) const {
    double sum = 0;
    for (const Probe::Part& part : probe.parts) {
      const PairedTap& pair = *find(part.tap);
      sum += dot_difference(part.weights.array(), of_target(pair), of_reference(pair));
    }
    return std::fabs(sum) / probe.scale;
  }

  // Norm of the difference over the reference's norm.
  double tap_gap(const PairedTap& pair) const {
    const Array r = of_reference(pair);
    const double norm = norm2(r), difference = norm2_difference(of_target(pair), r);
    return difference == 0 ? 0 : difference / (norm > 0 ? norm : 1);
  }

  std::vector<Envelope> own_envelopes(const std::vector<Probe>& probes) const {
    return adjoint_envelopes(*input.target, target_exact, probes, *input.profile, Executions::kOwn, target_numbers);
  }

  // `own`: the errors of the target's replay, by probe.
  std::vector<Answer> ask(const std::vector<Probe>& probes, const std::vector<Envelope>& own) const {
    if (probes.empty()) return {};
    std::vector<Probe> other;
    other.reserve(probes.size());
    for (const Probe& probe : probes) other.push_back(reindexed(probe));
    const std::vector<Envelope> theirs = one_program
                                             ? own
                                             : adjoint_envelopes(*input.reference, reference_exact, other,
                                                                 *input.profile, Executions::kOwn, reference_numbers);
    const double lambda = hoeffding_lambda(static_cast<double>(probes.size()), input.alpha);
    std::vector<Answer> answers;
    for (std::size_t p = 0; p < probes.size(); ++p) {
      const double host = own[p].host + theirs[p].host, scale = probes[p].scale;
      answers.push_back({true, gap(probes[p]), (replay_error({&own[p], &theirs[p]}, lambda) + host) / scale,
                         (own[p].rho + theirs[p].rho + host) / scale, host / scale});
    }
    return answers;
  }
};

void set_mathematics(const Probe& probe, const Answer& answer, Bounds* bounds) {
  for (Finding& finding : bounds->findings)
    if (finding.name == probe.name) finding.mathematics = answer;
}
// By tap, of those that were enclosed.
void set_mathematics(const std::map<std::size_t, Answer>& answers, Bounds* bounds) {
  for (Finding& finding : bounds->findings) {
    if (!finding.proven || finding.taps.size() != 1) continue;
    if (const auto found = answers.find(finding.taps[0]); found != answers.end()) finding.mathematics = found->second;
  }
}

// Answers of mathematics at updates and state, by tap of the target that `asked` tells.
template <class Asked>
std::map<std::size_t, Answer> updates_of(const std::vector<PairedTap>& pairs, const PairedSide& target,
                                         const PairedSide& reference, const Asked& asked) {
  std::vector<std::size_t> updates;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::size_t tap = pairs[i].target;
    if (outlives_step(target.graph.taps[tap].kind) && asked(tap)) updates.push_back(i);
  }
  std::map<std::size_t, Answer> answers;
  for (const auto& [pair, answer] : compare_updates(target, reference, pairs, updates))
    answers[pairs[pair].target] = answer;
  return answers;
}

NodeId position(const Graph& graph, std::size_t tap) {
  NodeId last = 0;
  for (const GraphTap::Term& term : graph.taps[tap].terms) last = std::max(last, term.node);
  return last;
}

// T = (1 + c) R elementwise, to a millionth of the gap: an error of scale.
std::optional<double> scale_error(const Array& target, const Array& reference) {
  const Array t = target.on_host(), r = reference.on_host();
  const double rr = dot(r, r);
  if (!(rr > 0) || t.count() == 1) return std::nullopt;
  const double factor = dot(r, t) / rr;
  double residual = 0;
  for (std::int64_t i = 0; i < t.count(); ++i) residual += std::pow(t.data()[i] - factor * r.data()[i], 2);
  if (!(std::sqrt(residual) <= 1e-6 * norm2_difference(t, r))) return std::nullopt;
  return factor - 1;
}

// By tap of the graph: whether a number that is not known exactly reaches it.
std::vector<bool> uncertain_taps(const Graph& graph, const Uncertainty& numbers) {
  const std::vector<bool> reached = reached_by(numbers, graph);
  std::vector<bool> uncertain;
  for (const GraphTap& tap : graph.taps)
    uncertain.push_back(std::ranges::any_of(tap.terms, [&](const GraphTap::Term& term) { return reached[term.node]; }));
  return uncertain;
}

// Drills down to the first tap, in the target's order, whose own mathematics fails, and to the operation before it.
// Taps that no uncertain number reaches come first: only they can prove anything.
void locate(Pairing& pairing, Bounds* bounds) {
  const Graph& target = *pairing.input.target;
  double largest = 0;
  std::vector<double> gaps;
  for (const PairedTap& pair : pairing.pairs) {
    gaps.push_back(pairing.tap_gap(pair));
    largest = std::fmax(largest, gaps.back());
  }
  std::vector<const PairedTap*> candidates;
  for (std::size_t i = 0; i < gaps.size(); ++i)
    if (gaps[i] >= 1e-3 * largest && gaps[i] > 0) candidates.push_back(&pairing.pairs[i]);
  const std::vector<bool> ours = uncertain_taps(target, pairing.target_numbers),
                          theirs = uncertain_taps(*pairing.input.reference, pairing.reference_numbers);
  const auto order = [&](const PairedTap* pair) {
    return std::pair(ours[pair->target] || theirs[pair->reference], position(target, pair->target));
  };
  std::ranges::sort(candidates, {}, order);
  if (candidates.size() > kDrilledMax) candidates.resize(kDrilledMax);

  std::vector<Probe> probes;
  for (const PairedTap* pair : candidates) {
    const GraphTap& tap = target.taps[pair->target];
    const ProbeTap probed = probe_tap(pair->target, tap, pairing.of_reference(*pair));
    probes.push_back(count(tap.shape) == 1 ? scalar_probe(probed)
                                           : signs_probe(tap.name, {probed}, pairing.input.seed ^ pair->target));
  }
  const std::vector<Answer> answers = pairing.ask(probes, pairing.own_envelopes(probes));
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!answers[i].failed()) continue;
    Finding* finding = nullptr;
    for (Finding& known : bounds->findings)
      if (known.name == probes[i].name) finding = &known;
    if (finding == nullptr) {
      bounds->findings.push_back({});
      finding = &bounds->findings.back();
      finding->name = probes[i].name;
      finding->taps = {candidates[i]->target};
      finding->elements = static_cast<std::uint64_t>(count(target.taps[candidates[i]->target].shape));
    }
    finding->mathematics = answers[i];
    if (!bounds->scale_error)
      bounds->scale_error = scale_error(pairing.of_target(*candidates[i]), pairing.of_reference(*candidates[i]));
    if (bounds->suspicion) continue;
    const Graph& reference = *pairing.input.reference;
    bounds->suspicion =
        localize({target, pairing.target_exact, nodes_of(target.taps[candidates[i]->target])},
                 {reference, pairing.reference_exact, nodes_of(reference.taps[candidates[i]->reference])});
  }
}

// A one-element leaf that holds a constant of the other program, rounded to the leaf's format, is taken for the
// constant: torch.tensor(0.1) for 0.1. Returns the format of the last one; kUnknown if there is none.
Format restore_constants(const Graph& graph, const Graph& other, std::vector<LeafValue>* leaves) {
  Format found = Format::kUnknown;
  for (std::size_t i = 0; i < graph.leaves.size(); ++i) {
    const GraphLeaf& leaf = graph.leaves[i];
    if (leaf.role != LeafRole::kData || leaf.anchor || !is_float(leaf.format) || !(*leaves)[i]) continue;
    const Array value = (*leaves)[i];
    if (value.count() != 1) continue;
    for (const Node& node : other.nodes) {
      if (node.primitive != Primitive::kConstant) continue;
      const double constant = node.attributes.scalar;
      if (constant == value.item() || round_to(leaf.format, constant) != value.item()) continue;
      (*leaves)[i] = Array::full(value.shape(), constant);
      found = leaf.format;
      break;
    }
  }
  return found;
}

// Whether the gap closes when leaves that are roundings of the other side's leaves or constants are taken for these.
void try_precision_policy(Pairing& pairing, const std::vector<LeafValue>& target_leaves,
                          const std::vector<Probe>& probes, const std::vector<Envelope>& own,
                          const std::map<std::size_t, Answer>& updates, Bounds* bounds) {
  const Graph& target = *pairing.input.target;
  const Graph& reference = *pairing.input.reference;
  std::vector<LeafValue> ours = target_leaves, theirs = bounds->match.reference_values;
  const std::vector<RoundedLeaf> rounded = rounded_leaves(target, ours, reference, theirs, bounds->match);
  Format format = rounded.empty() ? Format::kUnknown : rounded.front().format;
  for (const RoundedLeaf& copy : master_copies(target, ours)) {
    format = copy.format;
    const GraphLeaf& narrow = target.leaves[copy.target_leaf];
    ours[copy.target_leaf] = ours[copy.reference_leaf].reshape(target.nodes[narrow.node].shape);
    for (std::size_t i = 0; i < reference.leaves.size(); ++i)
      if (reference.leaves[i].name == narrow.name && theirs[i].count() == ours[copy.target_leaf].count())
        theirs[i] = ours[copy.target_leaf].reshape(reference.nodes[reference.leaves[i].node].shape);
  }
  for (const RoundedLeaf& leaf : rounded)
    theirs[leaf.reference_leaf] =
        ours[leaf.target_leaf].reshape(reference.nodes[reference.leaves[leaf.reference_leaf].node].shape);
  for (const Format restored :
       {restore_constants(reference, target, &theirs), restore_constants(target, reference, &ours)})
    if (format == Format::kUnknown) format = restored;
  if (format == Format::kUnknown) return;

  const Replay target_exact = replay(target, ours, Precision::kExact);
  const Pairing with_policy{pairing.input, target_exact,           replay(reference, theirs, Precision::kExact),
                            pairing.pairs, pairing.target_numbers, pairing.reference_numbers};
  const std::vector<Answer> answers = with_policy.ask(probes, own);
  for (const Answer& answer : answers)
    if (!answer.passed()) return;
  std::map<std::size_t, Answer> compared;
  if (!updates.empty()) {
    compared = updates_of(pairing.pairs, {target, target_exact, ours}, {reference, with_policy.reference_exact, theirs},
                          [&](std::size_t tap) { return updates.count(tap) != 0; });
    for (const auto& [tap, before] : updates) {
      const auto now = compared.find(tap);
      if (now == compared.end() || !now->second.passed()) return;
    }
  }
  for (std::size_t p = 0; p < probes.size(); ++p) set_mathematics(probes[p], answers[p], bounds);
  set_mathematics(compared, bounds);
  bounds->policy = format;
}

Array leaf_content(const Graph& graph, NodeId node) {
  for (const GraphLeaf& leaf : graph.leaves)
    if (leaf.node == node && leaf.bytes) {
      Array values = Array::uninitialized(graph.nodes[node].shape);
      decode(leaf.format, leaf.bytes->data(), values.count(), values.data());
      return values;
    }
  return Array::zeros(graph.nodes[node].shape);
}

double relative_difference(const Array& a, const Array& b) {
  const double norm = norm2(b), difference = norm2_difference(a, b);
  return difference == 0 ? 0 : difference / (norm > 0 ? norm : 1);
}

// Whether an operation that is not modelled was fed other inputs in the two programs and gave nearly the same, as a
// commutative one does whose inputs changed places: neither proof of a difference nor of agreement.
bool indifferent(const Pairing& pairing, const OpaqueCall& ours, const OpaqueCall& theirs) {
  constexpr double kSensitivityMin = 0.1;
  constexpr double kReplayNoise = 1e-8;  // Far above the errors of two replays.
  double in = 0, out = 0;
  for (std::size_t i = 0; i < ours.inputs.size(); ++i)
    in = std::fmax(in, relative_difference(pairing.target_exact.value(ours.inputs[i]),
                                           pairing.reference_exact.value(theirs.inputs[i])));
  for (std::size_t i = 0; i < ours.outputs.size(); ++i)
    out = std::fmax(out, relative_difference(leaf_content(*pairing.input.target, ours.outputs[i]),
                                             leaf_content(*pairing.input.reference, theirs.outputs[i])));
  return in > kReplayNoise && out < kSensitivityMin * in;
}

// The near sides of the cuts: do both programs hand the same mathematics to their opaque calls?
void compare_cuts(const Pairing& pairing, const Cuts& cuts, Bounds* bounds) {
  std::vector<const OpaqueCall*> ours, theirs;
  for (const auto& [t, r] : cuts.calls) {
    if (indifferent(pairing, *t, *r)) {
      if (!bounds->indifferent_call) bounds->indifferent_call = t->origin;
      continue;
    }
    ours.push_back(t);
    theirs.push_back(r);
  }
  const Graph target = with_cut_taps(*pairing.input.target, ours);
  const Graph reference = with_cut_taps(*pairing.input.reference, theirs);
  BoundsInput input = pairing.input;
  input.target = &target;
  input.reference = &reference;
  Pairing sides{input, pairing.target_exact,   pairing.reference_exact,
                {},    pairing.target_numbers, pairing.reference_numbers};
  for (std::size_t i = 0; i < target.taps.size(); ++i)
    if (target.taps[i].name == reference.taps[i].name && count(target.taps[i].shape) > 0) sides.pairs.push_back({i, i});
  const std::size_t known = bounds->findings.size();
  locate(sides, bounds);
  for (std::size_t i = known; i < bounds->findings.size(); ++i)
    bounds->findings[i].taps.clear();  // None of the trace's.
}

// The target's deviation from its own exact value, judged by what the reference's formats and operations allow: where
// it is beyond that, the two differ by policy, and the target's largest error owns it. Asked where the deviation is
// more than a few roundings of the tap itself, which no policy explains.
void judge_by_reference_policy(const Pairing& pairing, const std::vector<Probe>& probes, Bounds* bounds) {
  constexpr double kRoundings = 16;
  const Graph& target = *pairing.input.target;
  std::vector<const Finding*> findings;
  std::vector<Probe> asked;
  for (const Probe& probe : probes)
    for (const Finding& finding : bounds->findings) {
      if (finding.name != probe.name || !finding.execution.asked || finding.execution.failed()) continue;
      const double u = unit_roundoff(tap_format(target.taps[probe.parts.front().tap]));
      if (!(finding.execution.deviation > kRoundings * u) || finding.by_origin.empty()) continue;
      findings.push_back(&finding);
      asked.push_back(pairing.reindexed(probe));
    }
  if (asked.empty()) return;
  const std::vector<Envelope> theirs =
      adjoint_envelopes(*pairing.input.reference, pairing.reference_exact, asked, *pairing.input.profile);
  const double lambda = hoeffding_lambda(static_cast<double>(asked.size()), pairing.input.alpha);
  double worst = 1;
  for (std::size_t p = 0; p < asked.size(); ++p) {
    const double allowed = std::fmin(theirs[p].error, statistical(theirs[p].noise, lambda)) + theirs[p].rho;
    const double ratio = findings[p]->execution.deviation * asked[p].scale / allowed;
    if (!(ratio > worst)) continue;
    worst = ratio;
    const std::vector<double>& parts = findings[p]->by_origin;
    const auto origin = static_cast<std::uint32_t>(std::max_element(parts.begin(), parts.end()) - parts.begin());
    for (NodeId id = 0; id < target.nodes.size(); ++id)
      if (target.nodes[id].origin == origin) bounds->policy_casts = {id};
  }
}

}  // namespace

MatchedReference match_reference(const BoundsInput& input, const std::vector<LeafValue>& target_leaves,
                                 const Replay& target_exact, const std::vector<bool>& enclosed, Bounds* bounds) {
  const Graph& target = *input.target;
  const Graph& reference = *input.reference;
  bounds->paired = true;
  bounds->match = match_leaves(target, target_leaves, reference, leaf_values(reference));
  if (!bounds->match.missing.empty()) return {};

  std::vector<LeafValue>& leaves = bounds->match.reference_values;
  MatchedReference matched;
  matched.cuts = match_opaque_calls(target, reference);
  transplant(matched.cuts, target, target_leaves, reference, &leaves);
  bounds->cuts_complete = matched.cuts.complete;
  bounds->transplanted = matched.cuts.calls.size();
  matched.pairs = pair_taps(target, reference, bounds);
  matched.one_program = same_program(target, target_leaves, reference, leaves);
  matched.exact = matched.one_program ? target_exact : replay(reference, leaves, Precision::kExact);
  if (matched.one_program) return matched;

  matched.target_numbers = uncertain_numbers(target, target_exact, &reference);
  matched.reference_numbers = uncertain_numbers(reference, matched.exact, &target);
  note_numbers(target, matched.target_numbers, false, bounds);
  note_numbers(reference, matched.reference_numbers, true, bounds);
  const std::vector<bool> ours = uncertain_taps(target, matched.target_numbers),
                          theirs = uncertain_taps(reference, matched.reference_numbers);
  std::vector<bool> uncertain = ours;
  for (const PairedTap& pair : matched.pairs) uncertain[pair.target] = ours[pair.target] || theirs[pair.reference];
  matched.updates = updates_of(matched.pairs, {target, target_exact, target_leaves}, {reference, matched.exact, leaves},
                               [&](std::size_t tap) { return enclosed[tap] && !uncertain[tap]; });
  return matched;
}

void pair_with_reference(const BoundsInput& input, const MatchedReference& matched,
                         const std::vector<LeafValue>& target_leaves, const Replay& target_exact,
                         const std::vector<Probe>& probes, const std::vector<Envelope>& envelopes, Bounds* bounds) {
  if (!bounds->match.missing.empty()) return;
  const Graph& target = *input.target;
  const Graph& reference = *input.reference;
  const Cuts& cuts = matched.cuts;
  Pairing pairing{input,
                  target_exact,
                  matched.exact,
                  matched.pairs,
                  matched.target_numbers,
                  matched.reference_numbers,
                  matched.one_program};

  // Probes on the taps that both have; where that is not all of a probe, its own sweep.
  std::vector<Probe> asked;
  std::vector<Envelope> own;
  std::vector<Probe> reduced;
  for (std::size_t p = 0; p < probes.size(); ++p) {
    Probe probe = probes[p];
    std::erase_if(probe.parts, [&](const Probe::Part& part) { return pairing.find(part.tap) == nullptr; });
    if (probe.parts.empty()) continue;
    if (probe.parts.size() == probes[p].parts.size() && pairing.target_numbers.empty()) {
      asked.push_back(probe);
      own.push_back(envelopes[p]);
    } else {
      reduced.push_back(probe);
    }
  }
  for (Envelope& envelope : pairing.own_envelopes(reduced)) own.push_back(std::move(envelope));
  asked.insert(asked.end(), reduced.begin(), reduced.end());

  const std::vector<Answer> answers = pairing.ask(asked, own);
  bool failed = false;
  for (std::size_t p = 0; p < asked.size(); ++p) {
    failed = failed || answers[p].failed();
    set_mathematics(asked[p], answers[p], bounds);
  }
  for (const auto& [tap, answer] : matched.updates) failed = failed || answer.failed();
  set_mathematics(matched.updates, bounds);

  bounds->all_taps_equal_reference = !pairing.pairs.empty();
  for (const PairedTap& pair : pairing.pairs) {
    const Array t = observed_value(target.taps[pair.target]), r = observed_value(reference.taps[pair.reference]);
    bounds->all_taps_equal_reference = bounds->all_taps_equal_reference && bitwise_equal(t, r);
    const double norm = norm2(r), difference = norm2_difference(t, r);
    for (Finding& finding : bounds->findings) {
      if (finding.taps != std::vector<std::size_t>{pair.target}) continue;
      finding.drift = difference == 0 ? 0 : difference / (norm > 0 ? norm : 1);
      if (r.count() == 1) finding.reference = r.item();
    }
    for (RangeFinding& finding : bounds->range)
      if (finding.tap == target.taps[pair.target].name)
        finding.reference_finite = all_finite(r) && computes_in(reference, reference.taps[pair.reference],
                                                                target.nodes[*finding.first].result);
  }
  if (!cuts.calls.empty()) compare_cuts(pairing, cuts, bounds);
  if (!failed) judge_by_reference_policy(pairing, asked, bounds);
  if (failed) {
    try_precision_policy(pairing, target_leaves, asked, own, matched.updates, bounds);
    if (!bounds->policy) locate(pairing, bounds);
  }
}

}  // namespace plumbline
