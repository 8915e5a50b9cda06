#include "server/bound/compute.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "server/bound/enclose/anchored.h"
#include "server/bound/enclose/plain_intervals.h"
#include "server/bound/envelope/answer.h"
#include "server/bound/envelope/lost.h"
#include "server/bound/envelope/tap_values.h"
#include "server/bound/findings/choices.h"
#include "server/bound/findings/policy.h"
#include "server/bound/findings/untrained.h"
#include "server/bound/match/exact_elements.h"
#include "server/bound/pair/alignment.h"
#include "server/bound/pair/common_values.h"
#include "server/bound/pair/golden.h"
#include "server/bound/pair/pairing.h"
#include "server/bound/replay/arithmetic.h"
#include "server/bound/replay/decided.h"
#include "server/bound/replay/range.h"
#include "server/bound/replay/taps.h"
#include "server/bound/replay/terms.h"
#include "server/bound/value/values.h"

namespace plumbline {
namespace {

constexpr std::size_t kScalarProbesMax = 16;
constexpr std::size_t kTensorProbesMax = 8;  // Up to so many tensor taps of the user get a probe each.
constexpr std::size_t kPartProbesMax = 64;   // Groups that say nothing whole are asked in at most so many parts.
// Parts have this share of the probability of a false alarm, whether they are asked or not.
constexpr double kPartsShare = 0x1p-4;

class Stopwatch {
 public:
  explicit Stopwatch(std::map<std::string, double>* seconds) : seconds_(seconds), start_(Clock::now()) {}
  void lap(const std::string& phase) {
    const auto now = Clock::now();
    (*seconds_)[phase] += std::chrono::duration<double>(now - start_).count();
    start_ = now;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::map<std::string, double>* seconds_;
  Clock::time_point start_;
};

// The name of several taps that are asked together, which no tap has: what is found is told apart by names.
std::string group_name(std::string name, const Graph& graph) {
  while (std::ranges::find(graph.taps, name, &GraphTap::name) != graph.taps.end()) name += " together";
  return name;
}

void add_group(const std::string& name, const std::vector<ProbeTap>& taps, std::uint64_t seed,
               std::vector<Probe>* plan) {
  if (!taps.empty()) plan->push_back(signs_probe(name, taps, seed));
}

// A few taps one by one, more together.
void add_few(const std::string& name, const std::vector<ProbeTap>& taps, std::uint64_t group_seed, std::uint64_t seed,
             std::vector<Probe>* plan) {
  if (taps.size() > kTensorProbesMax) return add_group(name, taps, group_seed, plan);
  for (const ProbeTap& tap : taps) add_group(tap.name, {tap}, seed ^ (tap.index + 1), plan);
}

// Scalar taps one by one; gradients, updates, optimizers' state and buffers together; a user's few tensor taps one by
// one. What was enclosed is asked of mathematics alone, where another program is `compared` (null: none) and did not
// settle it.
std::vector<Probe> plan_probes(const Graph& graph, const TapValues& values, const std::vector<bool>& enclosed,
                               const MatchedReference* compared, std::uint64_t seed) {
  std::vector<Probe> plan;
  std::vector<ProbeTap> gradients, updates, buffers, state, named, enclosed_taps, valued;
  std::vector<std::size_t> settled;
  for (std::size_t index : values.taps()) {
    const GraphTap& tap = graph.taps[index];
    const bool scalar = count(tap.shape) == 1;
    if (count(tap.shape) == 0) continue;
    const bool of_mathematics = enclosed[index] && (outlives_step(tap.kind) || !scalar);
    if (of_mathematics && compared == nullptr) {
      if (tap.reference) valued.push_back(values.probed(index));  // The value that was given is still to be asked.
      continue;
    }
    if (of_mathematics && compared->updates.count(index) != 0) {
      settled.push_back(index);
      continue;
    }
    const ProbeTap probed = values.probed(index);
    if (of_mathematics) {
      enclosed_taps.push_back(probed);
    } else if (scalar && (tap.kind == TapKind::kLoss || tap.kind == TapKind::kValue) &&
               plan.size() < kScalarProbesMax) {
      plan.push_back(scalar_probe(probed));
    } else if (tap.kind == TapKind::kGradient) {
      gradients.push_back(probed);
    } else if (tap.kind == TapKind::kValue) {
      named.push_back(probed);
    } else if (tap.kind == TapKind::kUpdate) {
      updates.push_back(probed);
    } else {
      (tap.name.starts_with("buffer:") ? buffers : state).push_back(probed);
    }
  }
  const auto all = [&](const char* what) { return group_name(std::string("all ") + what, graph); };
  add_few(all("values"), named, seed ^ 0x51, seed, &plan);
  add_few(all("values given"), valued, seed ^ 0x58, seed, &plan);
  add_group(all("gradients"), gradients, seed ^ 0x52, &plan);
  add_group(all("updates"), updates, seed ^ 0x53, &plan);
  add_group(all("state"), state, seed ^ 0x56, &plan);
  add_group(all("buffers"), buffers, seed ^ 0x57, &plan);
  if (!enclosed_taps.empty()) {
    std::vector<ProbeTap> beside;
    beside.reserve(settled.size());
    // They count by their norms, which were found to be the exact ones' but for rounding.
    for (std::size_t index : settled) beside.push_back(probe_tap(index, graph.taps[index], values.observed(index)));
    plan.push_back(signs_probe(all("updates and state"), enclosed_taps, seed ^ 0x54, beside));
    plan.back().of_mathematics = true;
  }
  for (std::size_t index : values.overflown()) {
    if (compared == nullptr) break;
    const GraphTap& tap = graph.taps[index];
    plan.push_back(signs_probe(tap.name, {probe_tap(index, tap, values.exact(index))}, seed ^ (index + 1)));
    plan.back().of_mathematics = true;
  }
  return plan;
}

// The magnitudes of the terms that make up the probes' taps, of those that have none yet.
void add_magnitudes(const std::vector<Probe>& probes, const std::vector<bool>& which, const TapValues& values,
                    std::map<std::size_t, double>* magnitudes) {
  std::map<std::size_t, double> norms;
  for (std::size_t p = 0; p < which.size(); ++p) {
    if (!which[p]) continue;
    for (const Probe::Part& part : probes[p].parts)
      if (!magnitudes->contains(part.tap)) norms[part.tap] = values.probed(part.tap).magnitude;
  }
  if (!norms.empty()) magnitudes->merge(tap_magnitudes(values.graph(), values.replay(), norms));
}

// What is known of the taps of groups that say nothing without any sweep.
struct Told {
  std::map<std::size_t, double> magnitudes;  // The magnitude of the terms that make up each tap.
  std::set<std::size_t> lost;                // Nothing says more of these, in whatever part (lost.h).

  // Of the taps of those probes that were not told yet.
  void tell(const std::vector<Probe>& probes, const std::vector<bool>& which, const TapValues& values,
            const Profile& profile, double lambda) {
    const std::map<std::size_t, double> before = magnitudes;
    add_magnitudes(probes, which, values, &magnitudes);
    for (const auto& [tap, magnitude] : magnitudes)
      if (!before.contains(tap) &&
          lost_in_own_rounding(values.graph(), values.replay(), measured(tap, values), profile, lambda))
        lost.insert(tap);
  }
  ProbeTap measured(std::size_t tap, const TapValues& values) const {
    ProbeTap probed = values.probed(tap);
    probed.magnitude = magnitudes.at(tap);
    return probed;
  }
  // Measures the probe beside those magnitudes, if it is not yet. What it asks stays the same.
  void scale(Probe* probe, const TapValues& values) const {
    std::vector<ProbeTap> before, after;
    for (const Probe::Part& part : probe->parts) {
      before.push_back(values.probed(part.tap));
      after.push_back(measured(part.tap, values));
    }
    const double scale = probe->of_one_element() ? joint_norm(after) : joint_norm(after) / joint_norm(before);
    probe->scale = std::max(probe->scale, scale);
  }
  bool all_lost(const Probe& probe) const {
    return std::ranges::all_of(probe.parts, [&](const Probe::Part& part) { return lost.contains(part.tap); });
  }
};

// What a group says nothing of as a whole, in halves, each beside the magnitudes of the terms that make up its taps.
std::vector<Probe> halves_of(const Probe& probe, const TapValues& values, const Told& told, std::uint64_t seed) {
  std::vector<ProbeTap> taps;
  for (const Probe::Part& part : probe.parts) taps.push_back(told.measured(part.tap, values));
  const auto middle = taps.begin() + static_cast<std::ptrdiff_t>(taps.size() / 2);
  std::vector<Probe> halves;
  for (const std::vector<ProbeTap>& half : {std::vector(taps.begin(), middle), std::vector(middle, taps.end())}) {
    const std::string name =
        half.size() == 1 ? half[0].name : probe.name + " from " + half[0].name + " to " + half.back().name;
    halves.push_back(signs_probe(name, half, seed));
  }
  return halves;
}

// Parts of the deciding envelope by origin: of the bias and, in proportion, of the squares.
std::vector<double> parts_by_origin(const Answer& answer, const Envelope& envelope, double lambda) {
  if (!answer.statistical()) return envelope.by_origin;
  const double root = std::sqrt(envelope.noise.squares);
  std::vector<double> parts;
  for (const Noise& noise : envelope.noise_by_origin)
    parts.push_back(noise.bias + (root > 0 ? lambda * noise.squares / root : 0));
  return parts;
}

Finding finding_of(const Probe& probe) {
  Finding finding;
  finding.name = probe.name;
  for (const Probe::Part& part : probe.parts) {
    finding.taps.push_back(part.tap);
    finding.elements += static_cast<std::uint64_t>(part.elements);
  }
  return finding;
}

void answer(const Probe& probe, const Measured& measured, const Envelope& envelope, double lambda, bool of_execution,
            Finding* finding) {
  const Answer execution = answer_of(std::fabs(measured.deviation), envelope, lambda, 0, probe.scale);
  if (of_execution) finding->execution = execution;
  finding->by_origin = parts_by_origin(execution, envelope, lambda);
  if (finding->elements == 1 && probe.parts.size() == 1) {
    const double radius = execution.envelope * probe.scale;
    finding->low = measured.centre - radius;
    finding->high = measured.centre + radius;
    finding->observed = measured.observed;
  }
}

// The questions of the sweeps, and what was measured and found of each; their findings stand together.
struct Asked {
  std::vector<Probe> probes;
  std::vector<Measured> measured;
  std::vector<Envelope> envelopes;
  std::size_t first = 0;  // Findings from this index on belong to it.

  void add(Probe probe, Measured of_it, Bounds* bounds) {
    bounds->findings.push_back(finding_of(probe));
    probes.push_back(std::move(probe));
    measured.push_back(of_it);
  }

  // Those that say nothing of executions.
  std::vector<bool> silent(const Bounds& bounds) const {
    std::vector<bool> found(probes.size(), false);
    for (std::size_t p = 0; p < probes.size(); ++p)
      found[p] = !probes[p].of_mathematics && bounds.findings[first + p].execution.vacuous();
    return found;
  }
  // Those that were read by factors and did not pass, or have no number there: products are computed for these.
  std::vector<bool> unclear(const Bounds& bounds, const TapValues& values) const {
    std::vector<bool> found(probes.size(), false);
    for (std::size_t p = 0; p < probes.size(); ++p)
      found[p] = !probes[p].of_mathematics && !bounds.findings[first + p].execution.passed() &&
                 std::ranges::any_of(probes[p].parts, [&](const Probe::Part& part) { return values.unread(part.tap); });
    return found;
  }
  // Of the silent ones, the groups whose parts may say more, as far as there is room for these.
  std::vector<bool> divisible(const std::vector<bool>& silent, const Told& told, std::size_t room) const {
    std::vector<bool> found(probes.size(), false);
    for (std::size_t p = 0; p < probes.size() && room >= 2; ++p) {
      found[p] = silent[p] && probes[p].parts.size() > 1 && !told.all_lost(probes[p]);
      if (found[p]) room -= 2;
    }
    return found;
  }

  void drop(const std::vector<bool>& which, Bounds* bounds) {
    for (std::size_t p = which.size(); p-- > 0;) {
      if (!which[p]) continue;
      const auto at = static_cast<std::ptrdiff_t>(p);
      probes.erase(probes.begin() + at);
      measured.erase(measured.begin() + at);
      envelopes.erase(envelopes.begin() + at);
      bounds->findings.erase(bounds->findings.begin() + static_cast<std::ptrdiff_t>(first) + at);
    }
  }
};

// Answers the questions of these numbers. `tests`: among how many `alpha` is shared.
void answer_all(std::size_t from, std::size_t to, const Asked& asked, const std::vector<bool>& enclosed, double tests,
                double alpha, Bounds* bounds) {
  const double lambda = hoeffding_lambda(std::max(1.0, tests), alpha);
  for (std::size_t p = from; p < to; ++p) {
    const Probe& probe = asked.probes[p];
    if (probe.of_mathematics) continue;
    const bool judged =
        std::ranges::all_of(probe.parts, [&](const Probe::Part& part) { return bool{enclosed[part.tap]}; });
    answer(probe, asked.measured[p], asked.envelopes[p], lambda, !judged, &bounds->findings[asked.first + p]);
  }
}

// Beyond an envelope of first order: what that leaves out, for the probes that need it. A remainder only widens, so
// that probes within their envelope need none.
void add_remainders(const Graph& graph, const Replay& exact, const Replay& rounded, const std::vector<Probe>& probes,
                    const Profile& profile, std::size_t first_probe, Bounds* bounds) {
  std::vector<Probe> beyond;
  std::vector<Finding*> findings;
  for (std::size_t p = 0; p < probes.size(); ++p) {
    Finding& finding = bounds->findings[first_probe + p];
    if (!finding.execution.failed()) continue;
    beyond.push_back(probes[p]);
    findings.push_back(&finding);
  }
  const std::vector<double> remainders = second_order_remainders(graph, exact, rounded, beyond, profile);
  for (std::size_t p = 0; p < beyond.size(); ++p) {
    Answer& answer = findings[p]->execution;
    answer.envelope += remainders[p] / beyond[p].scale;
    answer.worst_case += remainders[p] / beyond[p].scale;
    answer.bias += remainders[p] / beyond[p].scale;
  }
}

// What is replayed before what was observed is judged, where that may settle all the rest: what the program asks for
// itself, the losses, and what is guarded. Nothing: all of it.
std::optional<std::vector<NodeId>> asked_first(const Graph& graph) {
  // Hazards of these are looked for in exact values all over.
  const auto of_exact_values = [](const Node& node) {
    return (node.primitive >= Primitive::kFloor && node.primitive <= Primitive::kTrunc) ||
           (is_float(node.result) && traits(node.result).exponent_max < traits(Format::kFloat32).exponent_max);
  };
  if (!has_captured_results(graph) || overflow_was_found(graph) || std::ranges::any_of(graph.nodes, of_exact_values))
    return std::nullopt;
  std::vector<NodeId> asked = asked_by_program(graph);
  for (const GraphTap& tap : graph.taps)
    if ((count(tap.shape) == 1 && !outlives_step(tap.kind)) || tap.guard.given())
      std::ranges::copy(nodes_of(tap), std::back_inserter(asked));
  return asked;
}

// The taps that no probe asks of any more. `compared`: as plan_probes.
std::vector<bool> settled_taps(const Graph& graph, const std::vector<bool>& enclosed,
                               const MatchedReference* compared) {
  std::vector<bool> settled = enclosed;
  for (std::size_t i = 0; i < graph.taps.size(); ++i)
    settled[i] = enclosed[i] && (outlives_step(graph.taps[i].kind) || count(graph.taps[i].shape) != 1) &&
                 (compared == nullptr || compared->updates.count(i) != 0);
  return settled;
}

}  // namespace

Bounds compute_bounds(const BoundsInput& input) {
  const Graph& graph = *input.target;
  Bounds bounds;
  bounds.alpha = input.alpha;
  Stopwatch watch(&bounds.seconds);

  const std::vector<LeafValue> leaves = leaf_values(graph);
  std::optional<MatchedReference> matched;
  ExactReplays both;
  Replay followed;
  const Replay& exact = both.target;
  DecisionCheck decisions;
  const bool valued = has_values(graph);
  // Where nothing else is compared, the sweep is the last to read a replay, and the one on the execution's decisions
  // alone is read.
  const bool last = input.reference == nullptr && input.golden == nullptr && !valued;
  TappedProducts by_factors;
  if (input.golden == nullptr && !valued && executions_of(graph) == Executions::kTarget)
    by_factors = tapped_products(graph);
  std::vector<bool> later(graph.nodes.size(), false);
  for (const auto& [node, product] : by_factors) later[node] = true;
  std::optional<std::vector<NodeId>> first = last ? asked_first(graph) : std::nullopt;
  const auto replay_target = [&](Congruence* congruence) {
    Replay exact;
    if (!last)
      exact = replay(graph, leaves, Precision::kExact, {}, nullptr,
                     {.for_sweeps = input.reference != nullptr, .congruence = congruence});
    Followed found =
        follow_decisions(graph, leaves, *input.profile, last ? nullptr : &exact, first ? &*first : nullptr, &later);
    followed = std::move(found.replay);
    decisions = std::move(found.decisions);
    return exact;
  };
  if (input.reference != nullptr)
    both = replay_both(input, leaves, replay_target, &matched, &bounds);
  else
    both.target = replay_target(nullptr);
  bounds.decisions = decisions.total;
  bounds.unstable = decisions.differing;
  if (decisions.differing > 0) bounds.illegal_decisions = illegal_overflow_decisions(graph, leaves);
  std::ranges::copy(decisions.illegal, std::back_inserter(bounds.illegal_decisions));
  if (decisions.differing > 0)
    for (NodeId node : illegal_choices(graph, followed, *input.profile, input.alpha))
      bounds.illegal_decisions.push_back(node);
  watch.lap("replay");
  const auto make_whole = [&] {
    if (!first) return;
    followed = replay(graph, leaves, Precision::kExact, {}, &followed, {.later = &later});
    first.reset();
  };
  Anchored between = anchored_replay(graph, leaves, followed, decisions);
  std::vector<FiniteTap> finite = observed_finite(graph);
  std::vector<bool> enclosed, settled(graph.taps.size(), false);
  if (last) {
    std::vector<std::size_t> taps;
    for (std::size_t i = 0; i < graph.taps.size(); ++i)
      if (finite[i].observed) taps.push_back(i);
    enclosed = judge_between_observed(input, between, taps, &bounds);
    settled = settled_taps(graph, enclosed, nullptr);
    const auto lacks = [&](NodeId node) { return !followed.has(node); };
    for (std::size_t i = 0; i < graph.taps.size(); ++i)
      if (!settled[i] && (!finite[i].observed || std::ranges::any_of(nodes_of(graph.taps[i]), lacks))) make_whole();
    watch.lap("interval");
  }
  HazardSearch hazards(graph, followed, between.replay);
  look(graph, between.replay, hazards.looks_between());
  if (last) between = {};
  std::vector<Look> looks = finite_looks(graph, followed, settled, &finite);
  std::ranges::move(hazards.looks(), std::back_inserter(looks));
  look(graph, followed, looks);
  std::erase_if(by_factors,
                [&](const auto& one) { return !followed.waits(one.first) || !finite[one.second.tap].observed; });
  TapValues values(graph, followed, finite);
  watch.lap("hazards");

  if (values.taps().size() != graph.taps.size()) {
    make_whole();
    bounds.range = examine_range(graph, leaves, followed, *input.profile);
    watch.lap("range");
  }

  if (!last) enclosed = judge_between_observed(input, between, values.taps(), &bounds);
  between = {};
  watch.lap("interval");

  std::optional<Gap> gap;
  if (matched) {
    match_replays(input, leaves, exact, both.reference, enclosed, &*matched, &bounds);
    if (!matched->replays.reference.is(both.reference)) both.reference = Replay();  // It was replayed again.
    if (bounds.match.missing.empty()) gap.emplace(input, matched->replays, matched->pairs, matched->updates);
    watch.lap("pairing");
  }

  // Execution to first order for the rest; the same sweep gives rho for mathematics. One program twice has one
  // mathematics at what was enclosed, without any sweep.
  const MatchedReference* compared = matched && !matched->replays.one_program ? &*matched : nullptr;
  if (!last) settled = settled_taps(graph, enclosed, compared);
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < graph.taps.size(); ++i)
    if (!settled[i]) open.push_back(i);
  values.read_by_factors(not_asked(graph, std::move(by_factors), open), exact);
  Uncertainty numbers;  // A pairing finds its own.
  if (input.reference == nullptr) {
    numbers = uncertain_numbers(graph, followed, nullptr);
    note_numbers(graph, numbers, false, &bounds.uncertain_numbers);
  }
  Asked asked{{}, {}, {}, bounds.findings.size()};
  const auto ask = [&](Probe probe) {
    const Measured measured = probe.of_mathematics ? Measured{} : measure(probe, values);
    asked.add(std::move(probe), measured, &bounds);
  };
  for (Probe& probe : plan_probes(graph, values, enclosed, compared, input.seed)) ask(std::move(probe));
  watch.lap("adjoint");
  add_plain_intervals(graph, followed, *input.profile, &bounds);
  watch.lap("interval");
  bounds.guards = check_guards(graph, followed, *input.profile);
  bounds.untrained = untrained(graph);
  bounds.hazards = hazards.find(!bounds.range.empty() || overflow_was_found(graph));
  watch.lap("hazards");

  const Executions executions = input.reference != nullptr ? Executions::kBoth : executions_of(graph);
  const bool two_programs = gap && compared != nullptr;
  if (two_programs) gap->replays().reference.rest();  // One sweep at a time holds enough.
  const auto sweep = [&](const std::vector<Probe>& probes) {
    return adjoint_envelopes(graph, followed, probes, *input.profile, executions, {numbers, {}}, last,
                             values.by_factors());
  };
  asked.envelopes = two_programs ? envelopes_of_what_differs(*gap, both, sweep, &asked.probes) : sweep(asked.probes);
  if (two_programs) gap->replays().target.rest();
  for (std::size_t p = 0; p < asked.probes.size(); ++p)
    if (!asked.probes[p].of_mathematics) asked.measured[p].deviation -= asked.envelopes[p].read;
  if (last) followed = Replay();
  const auto replay_again = [&] {
    if (!followed) followed = replay(graph, leaves, Precision::kExact, decisions.overrides);
  };
  const auto planned = static_cast<double>(asked.probes.size());
  answer_all(0, asked.probes.size(), asked, enclosed, planned, (1 - kPartsShare) * input.alpha, &bounds);

  const std::vector<bool> unclear = asked.unclear(bounds, values);
  values.drop_factors();
  if (std::ranges::find(unclear, true) != unclear.end()) {
    replay_again();
    std::vector<Probe> by_elements = plan_probes(graph, values, enclosed, compared, input.seed);
    for (std::size_t p = 0; p < unclear.size(); ++p) {
      if (!unclear[p]) continue;
      Probe& probe = *std::ranges::find(by_elements, asked.probes[p].name, &Probe::name);
      asked.measured[p] = measure(probe, values);
      asked.envelopes[p] =
          adjoint_envelopes(graph, followed, {probe}, *input.profile, executions, {numbers, {}}).front();
      asked.probes[p] = std::move(probe);
      answer_all(p, p + 1, asked, enclosed, planned, (1 - kPartsShare) * input.alpha, &bounds);
    }
  }

  // A tap of which nothing can be said silences none beside it. What is zero by mathematics is measured by its terms,
  // which needs no sweep; what still says nothing is asked in halves.
  Told told;
  // Every part that could have been asked counts, whichever were.
  const double of_parts = 2 * static_cast<double>(values.taps().size()), alpha_of_parts = kPartsShare * input.alpha;
  const auto answer_parts = [&](std::size_t from, std::size_t to) {
    answer_all(from, to, asked, enclosed, of_parts, alpha_of_parts, &bounds);
  };
  if (const std::vector<bool> silent = asked.silent(bounds); std::ranges::find(silent, true) != silent.end()) {
    replay_again();
    told.tell(asked.probes, silent, values, *input.profile, hoeffding_lambda(of_parts, alpha_of_parts));
    for (std::size_t p = 0; p < silent.size(); ++p) {
      if (!silent[p]) continue;
      told.scale(&asked.probes[p], values);
      answer_parts(p, p + 1);
    }
    // Norms may be what still says nothing, or roundings of numbers that are exact.
    const std::vector<bool> left = asked.silent(bounds);
    std::vector<Probe> closely;
    for (std::size_t p = 0; p < left.size(); ++p)
      if (left[p]) closely.push_back(asked.probes[p]);
    std::vector<Envelope> envelopes;
    if (!closely.empty())
      envelopes = adjoint_envelopes(
          graph, followed, closely, *input.profile, executions, {numbers, {}}, false, {},
          {Magnitudes::kThemselves, unmoved_elements({graph, followed, input.profile}, probed_nodes(graph, closely))});
    for (std::size_t p = 0, of = 0; p < left.size(); ++p) {
      if (!left[p]) continue;
      asked.envelopes[p] = std::move(envelopes[of++]);
      answer_parts(p, p + 1);
    }
  }
  for (std::size_t room = kPartProbesMax;;) {
    const std::vector<bool> divisible = asked.divisible(asked.silent(bounds), told, room);
    if (std::ranges::find(divisible, true) == divisible.end()) break;
    std::vector<Probe> parts;
    for (std::size_t p = 0; p < divisible.size(); ++p)
      if (divisible[p])
        std::ranges::move(halves_of(asked.probes[p], values, told, input.seed ^ (0x55 + room + p)),
                          std::back_inserter(parts));
    room -= parts.size();
    std::vector<Envelope> envelopes =
        adjoint_envelopes(graph, followed, parts, *input.profile, executions, {numbers, {}});
    asked.drop(divisible, &bounds);
    const std::size_t first_part = asked.probes.size();
    for (Probe& part : parts) ask(std::move(part));
    std::ranges::move(envelopes, std::back_inserter(asked.envelopes));
    answer_parts(first_part, asked.probes.size());
  }
  watch.lap("adjoint");

  if (input.reference != nullptr) {
    if (gap) pair_with_reference(input, *matched, *gap, exact, followed, asked.probes, asked.envelopes, &bounds);
    watch.lap("pairing");
    bool agree = bounds.match.missing.empty() && !bounds.all_taps_equal_reference && bounds.range.empty();
    for (const Finding& finding : bounds.findings) agree = agree && !finding.mathematics.failed();
    if (agree) attribute_casts(input, leaves, decisions.overrides, &bounds);
    watch.lap("policy");
    if (bounds.match.missing.empty()) align_programs(input, matched->replays, &bounds);
    watch.lap("pairing");
  } else if (input.golden != nullptr) {
    pair_with_golden(input, exact, numbers, &bounds);
    watch.lap("pairing");
  } else if (valued) {
    bounds.all_taps_equal_reference = std::ranges::all_of(graph.taps, [](const GraphTap& tap) {
      return !tap.reference || bitwise_equal(observed_value(tap), reference_value(tap));
    });
  }
  if (valued) {
    if (input.reference != nullptr) numbers = uncertain_numbers(graph, followed, nullptr);
    judge_values(input, {leaves, exact, followed, decisions, numbers}, &bounds);
    watch.lap("values");
  }

  bool unanswered = false, beyond = false;
  for (const Finding& finding : bounds.findings) {
    unanswered = unanswered || finding.execution.vacuous() || finding.execution.failed();
    beyond = beyond || (!finding.proven && finding.execution.failed());
  }
  if (unanswered || beyond) {
    replay_again();
    const Replay rounded = replay(graph, leaves, Precision::kRounded, decisions.overrides);
    if (beyond) add_remainders(graph, followed, rounded, asked.probes, *input.profile, asked.first, &bounds);
    if (unanswered) explain_by_rounded_replay(input, followed, rounded, &bounds);
    watch.lap("rounded");
  }
  return bounds;
}

}  // namespace plumbline
