#include "server/bound/value/values.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "server/bound/envelope/answer.h"
#include "server/bound/replay/range.h"
#include "server/bound/replay/taps.h"
#include "server/bound/replay/terms.h"
#include "server/bound/value/questions.h"
#include "server/bound/value/redrawn.h"

namespace plumbline {
namespace {

constexpr std::size_t kBatch = 16;      // Probes of one sweep.
constexpr double kPartsShare = 0x1p-2;  // Parts of taps have this share of the probability of a false alarm.

struct Asked {
  ValueQuestion question;
  Envelope envelope;
  double lambda = 0, tests = 1;
  Answer answer;
};

// The largest margin; infinite where an answer is not finite.
double worst_of(const std::vector<Asked>& all) {
  double most = 0;
  for (const Asked& one : all)
    if (!one.answer.vacuous()) most = std::fmax(most, one.answer.margin());
  return most;
}

// The factor by which a bug may be larger than a deviation d and yet be hidden by rounding. A bug of size b would need
// a rounding error within d of -b. Errors of either sign, whose density falls from zero on, have at b - d a density of
// at most 1 / (2 (b - d)), since between -(b - d) and b - d it is no smaller; so they hide the bug with a chance of at
// most d / (b - d): a ninth at b = 10 d, however wide the envelope is. (Verdicts on bare values are never proven.)
constexpr double kDoubtPerDeviation = 10;

class Judging {
 public:
  Judging(const BoundsInput& input, const ValueSides& sides, Bounds* bounds)
      : input_(input), graph_(*input.target), sides_(sides), bounds_(bounds), base_(finite_replay()) {}

  void run() {
    ValueDifferences found = value_differences(graph_, sides_.leaves, sides_.followed);
    bounds_->value_patterns = found.patterns;
    std::vector<ValueDifference> own = std::move(found.taps);
    std::vector<Asked> whole =
        envelopes(own_side(), questions_of_taps(graph_, sides_.followed, own, input_.seed ^ 0x5a),
                  (1 - kPartsShare) * input_.alpha);
    std::vector<Asked> parts = parts_of(own_side(), own);
    measure_by_terms(own, &whole);
    if (worst_of(whole) > 1 || worst_of(parts) > 1) add_remainders(&whole, &parts);
    const double margin = std::fmax(worst_of(whole), worst_of(parts));
    if (margin > 1) read_otherwise(margin, &own, &whole, &parts);
    if (std::fmax(worst_of(whole), worst_of(parts)) > kValueFormulas) excuse(own, &whole, &parts);
    report(own, whole, parts);
  }

 private:
  // What the target's decisions make of its trace, where no number is NaN: rows that are no number have no envelope,
  // and spoil those of what they are added to.
  Replay finite_replay() {
    Overrides overrides;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.nodes[id];
      if (!sides_.followed.has(id) || !is_float(node.result) || node.primitive == Primitive::kLeaf) continue;
      const Array value = sides_.followed.value(id);
      if (all_finite(value)) continue;
      const auto numbers = [](const Array& of) {
        const Array x = of.materialize().on_host();
        return std::none_of(x.data(), x.data() + x.count(), [](double one) { return std::isnan(one); });
      };
      const bool first =
          std::ranges::all_of(node.inputs, [&](NodeId in) { return numbers(sides_.followed.value(in)); });
      if (!first || numbers(value)) continue;
      const Array x = value.materialize().on_host();
      Array finite = Array::uninitialized(node.shape);
      for (std::int64_t i = 0; i < x.count(); ++i) finite.data()[i] = std::isnan(x.data()[i]) ? 0 : x.data()[i];
      overrides[id] = LeafValue(finite);
    }
    if (overrides.empty()) return sides_.followed;
    for (const auto& [node, value] : sides_.decisions.overrides) overrides.emplace(node, value);
    return replay(graph_, sides_.leaves, Precision::kExact, overrides);
  }

  static Answer answered(const Asked& one) {
    Envelope envelope = one.envelope;
    envelope.error += one.question.storage;
    envelope.noise.squares += one.question.storage_squares;
    Answer answer =
        answer_of(std::fabs(one.question.deviation), envelope, one.lambda, envelope.python, one.question.probe.scale);
    answer.python = envelope.python / one.question.probe.scale;
    answer.tests = one.tests;
    if (answer.deviation <= answer.envelope)
      answer.doubt = std::fmin(answer.envelope, kDoubtPerDeviation * answer.deviation);
    return answer;
  }

  // A graph and its values.
  struct Side {
    const Graph& graph;
    const Replay& replay;
  };
  Side own_side() const { return {graph_, base_}; }

  std::vector<Envelope> sweep(const Side& side, const std::vector<Probe>& probes, const Freedoms& freedoms = {}) {
    std::vector<Envelope> all;
    const Executions executions = executions_of(side.graph);
    for (std::size_t begin = 0; begin < probes.size(); begin += kBatch) {
      const std::vector<Probe> batch(
          probes.begin() + static_cast<std::ptrdiff_t>(begin),
          probes.begin() + static_cast<std::ptrdiff_t>(std::min(probes.size(), begin + kBatch)));
      std::ranges::move(
          adjoint_envelopes(side.graph, side.replay, batch, *input_.profile, executions, {sides_.numbers, freedoms}),
          std::back_inserter(all));
    }
    return all;
  }

  std::vector<Asked> envelopes(const Side& side, ValueQuestions questions, double alpha) {
    std::vector<Probe> probes;
    for (const ValueQuestion& question : questions.asked) probes.push_back(question.probe);
    const std::vector<Envelope> found = sweep(side, probes);
    std::vector<Asked> all;
    for (std::size_t q = 0; q < found.size(); ++q) {
      Asked one{
          std::move(questions.asked[q]), found[q], hoeffding_lambda(std::max(1.0, questions.tests), alpha), 1, {}};
      if (!one.question.pattern.empty()) one.tests = questions.tests;
      one.answer = answered(one);
      all.push_back(std::move(one));
    }
    return all;
  }

  std::vector<Asked> parts_of(const Side& side, const std::vector<ValueDifference>& taps) {
    return envelopes(side, questions_of_parts(graph_, taps, input_.seed ^ 0x5b), kPartsShare * input_.alpha);
  }

  // What says nothing beside a tap's own norm, beside the terms that make it up.
  void measure_by_terms(const std::vector<ValueDifference>& taps, std::vector<Asked>* whole) {
    std::map<std::size_t, double> norms;
    std::vector<Asked*> silent;
    for (Asked& one : *whole) {
      const std::vector<Probe::Part>& asked = one.question.probe.parts;
      if (!one.answer.vacuous() || asked.size() != 1 || graph_.taps[asked[0].tap].scale > 0) continue;
      const auto tap = std::ranges::find(taps, asked[0].tap, &ValueDifference::tap);
      if (tap->mask) continue;
      norms[tap->tap] = tap_magnitude(graph_, sides_.followed, graph_.taps[tap->tap], tap->norm);
      silent.push_back(&one);
    }
    if (silent.empty()) return;
    const std::map<std::size_t, double> magnitudes = tap_magnitudes(graph_, sides_.followed, norms);
    for (Asked* one : silent) {
      const std::size_t tap = one->question.probe.parts[0].tap;
      if (!(magnitudes.at(tap) > norms.at(tap))) continue;
      one->question.probe.scale *= magnitudes.at(tap) / (norms.at(tap) > 0 ? norms.at(tap) : 1);
      one->answer = answered(*one);
    }
  }

  // What an envelope of first order leaves out, of the questions beyond it.
  void add_remainders(std::vector<Asked>* whole, std::vector<Asked>* parts) {
    std::vector<Probe> probes;
    std::vector<Asked*> beyond;
    for (std::vector<Asked>* all : {whole, parts})
      for (Asked& one : *all)
        if (one.answer.margin() > 1) {
          probes.push_back(one.question.probe);
          beyond.push_back(&one);
        }
    const Replay rounded = replay(graph_, sides_.leaves, Precision::kRounded, sides_.decisions.overrides);
    const std::vector<double> remainders = second_order_remainders(graph_, base_, rounded, probes, *input_.profile);
    for (std::size_t p = 0; p < beyond.size(); ++p) {
      if (!std::isfinite(remainders[p])) continue;
      beyond[p]->envelope.error += remainders[p];
      beyond[p]->envelope.noise.bias += remainders[p];
      beyond[p]->answer = answered(*beyond[p]);
    }
  }

  // The reading as a whole under which R is nearest, where it is nearer than under the target's own.
  void read_otherwise(double own_margin, std::vector<ValueDifference>* own, std::vector<Asked>* whole,
                      std::vector<Asked>* parts) {
    double nearest = own_margin;
    for (const Reading& reading : other_readings(graph_, sides_.leaves, sides_.exact, sides_.decisions)) {
      if (nearest <= 1) return;
      const Replay replayed = reading.replayed();
      if (!replayed) continue;
      std::vector<ValueDifference> taps = value_differences(graph_, sides_.leaves, replayed).taps;
      const Side side{reading.graph ? *reading.graph : graph_, reading.graph ? replayed : base_};
      std::vector<Asked> answers = *whole;
      for (Asked& one : answers) {
        one.question = asked_of(one.question, graph_, taps);
        if (reading.graph) one.envelope = sweep(side, {one.question.probe}).front();
        one.answer = answered(one);
      }
      if (!(worst_of(answers) < nearest) || worst_of(answers) > kValueFormulas) continue;
      std::vector<Asked> others = parts_of(side, taps);
      const double margin = std::fmax(worst_of(answers), worst_of(others));
      if (!(margin < nearest)) continue;
      nearest = margin;
      *own = std::move(taps);
      *whole = std::move(answers);
      *parts = std::move(others);
      bounds_->value_reading = {reading.words, reading.policy, reading.format};
    }
  }

  // What else may be the reason of the questions that are beyond every formula.
  void excuse(const std::vector<ValueDifference>& taps, std::vector<Asked>* whole, std::vector<Asked>* parts) {
    std::vector<Asked*> beyond;
    std::vector<Probe> probes;
    std::set<std::size_t> failing;
    for (std::vector<Asked>* all : {whole, parts})
      for (Asked& one : *all)
        if (!one.answer.vacuous() && one.answer.margin() > kValueFormulas) {
          beyond.push_back(&one);
          probes.push_back(one.question.probe);
          for (const Probe::Part& part : one.question.probe.parts) failing.insert(part.tap);
        }
    std::vector<double> free(beyond.size(), 0);
    for (const Excuse& excuse : excuses(graph_, base_)) {
      const std::vector<Envelope> found =
          sweep({excuse.narrowed ? *excuse.narrowed : graph_, base_}, probes, excuse.freedoms);
      for (std::size_t q = 0; q < beyond.size(); ++q) {
        free[q] += found[q].freedom / probes[q].scale;
        Asked other = *beyond[q];
        if (excuse.narrowed) other.envelope = found[q];
        const double envelope = std::fmax(answered(other).envelope, beyond[q]->answer.envelope);
        const bool within = !(beyond[q]->answer.deviation > kValueFormulas * envelope + free[q]);
        if (within && beyond[q]->answer.excuse.empty()) beyond[q]->answer.excuse = excuse.words;
      }
    }
    excuse_unmodelled(beyond);
    excuse_draws(taps, *whole, *parts, failing, beyond);
  }

  void excuse_unmodelled(const std::vector<Asked*>& beyond) {
    for (Asked* one : beyond)
      for (const Probe::Part& part : one->question.probe.parts) {
        const GraphTap& tap = graph_.taps[part.tap];
        if (!one->answer.excuse.empty()) continue;
        if (overflow_was_found(graph_))
          one->answer.excuse = "the target found an overflow, which the reference may not have";
        else if (decided_by_floats(graph_, tap))
          one->answer.excuse = "decisions near a tie may have come out otherwise in the reference";
        else if (behind_opaque(graph_, tap))
          one->answer.excuse = "operations that are not modelled lie before it";
      }
  }

  void excuse_draws(const std::vector<ValueDifference>& taps, const std::vector<Asked>& whole,
                    const std::vector<Asked>& parts, const std::set<std::size_t>& failing,
                    const std::vector<Asked*>& beyond) {
    const bool draws =
        std::ranges::any_of(graph_.leaves, [](const GraphLeaf& leaf) { return leaf.role == LeafRole::kRandom; });
    if (!draws) return;
    std::vector<PassedTap> passed;
    std::set<std::size_t> doubtful = failing;
    for (const std::vector<Asked>* all : {&whole, &parts})
      for (const Asked& one : *all)
        if (!(one.answer.margin() <= 1) || one.answer.vacuous())
          for (const Probe::Part& part : one.question.probe.parts) doubtful.insert(part.tap);
    for (const Asked& one : whole) {
      const std::vector<Probe::Part>& asked = one.question.probe.parts;
      if (asked.size() != 1 || doubtful.contains(asked[0].tap)) continue;
      const auto tap = std::ranges::find(taps, asked[0].tap, &ValueDifference::tap);
      passed.push_back({asked[0].tap, one.answer.envelope * tap->norm});
    }
    const std::vector<bool> open = unconfirmed_draws(graph_, sides_.leaves, sides_.followed, passed);
    for (Asked* one : beyond)
      for (const Probe::Part& part : one->question.probe.parts) {
        const std::vector<bool> before = ancestors(graph_, nodes_of(graph_.taps[part.tap]));
        for (std::size_t i = 0; i < open.size(); ++i)
          if (open[i] && before[graph_.leaves[i].node] && one->answer.excuse.empty())
            one->answer.excuse = "the reference may have drawn other random numbers";
      }
  }

  Finding& finding_of(const ValueQuestion& question) {
    const std::vector<Probe::Part>& parts = question.probe.parts;
    for (Finding& finding : bounds_->findings)
      if (parts.size() == 1 && finding.taps.size() == 1 && finding.taps[0] == parts[0].tap && !finding.value.asked &&
          question.pattern.empty())
        return finding;
    Finding& finding = bounds_->findings.emplace_back();
    finding.name = question.probe.name;
    if (!question.pattern.empty()) finding.name += " (" + question.pattern + ")";
    for (const Probe::Part& part : parts) {
      finding.taps.push_back(part.tap);
      finding.elements += static_cast<std::uint64_t>(part.elements);
    }
    return finding;
  }

  static bool about_all_of(const ValueQuestion& question, const Finding& finding) {
    const std::vector<Probe::Part>& parts = question.probe.parts;
    return parts.size() == 1 && finding.taps == std::vector<std::size_t>{parts[0].tap} &&
           static_cast<std::uint64_t>(parts[0].elements) == finding.elements;
  }

  void report(const std::vector<ValueDifference>& taps, const std::vector<Asked>& whole,
              const std::vector<Asked>& parts) {
    for (const Asked& one : whole) {
      Finding& finding = finding_of(one.question);
      finding.value = one.answer;
      finding.value_resolution = one.answer.envelope;
      for (const Asked& part : parts)
        if (about_all_of(part.question, finding))
          finding.value_resolution = std::fmax(finding.value_resolution, part.answer.envelope);
      if (finding.by_origin.empty()) finding.by_origin = one.envelope.by_origin;
      if (finding.elements != 1 || finding.taps.size() != 1) continue;
      const auto tap = std::ranges::find(taps, finding.taps[0], &ValueDifference::tap);
      finding.reference = reference_value(graph_.taps[tap->tap]).item();
      if (std::isfinite(finding.low)) continue;
      const double radius = one.answer.envelope * one.question.probe.scale;
      finding.low = tap->exact.item() - radius;
      finding.high = tap->exact.item() + radius;
      finding.observed = observed_value(graph_.taps[tap->tap]).item();
    }
    for (const Asked& one : parts) {
      if (one.answer.vacuous() || !(one.answer.margin() > 1)) continue;
      Finding& finding = finding_of(one.question);
      finding.value = one.answer;
      finding.value_resolution = one.answer.envelope;
    }
  }

  const BoundsInput& input_;
  const Graph& graph_;
  const ValueSides& sides_;
  Bounds* bounds_;
  const Replay base_;  // The sweeps run on it.
};

}  // namespace

bool has_values(const Graph& graph) {
  return std::ranges::any_of(graph.taps, [](const GraphTap& tap) { return tap.reference != nullptr; });
}

void judge_values(const BoundsInput& input, const ValueSides& sides, Bounds* bounds) {
  Judging(input, sides, bounds).run();
}

}  // namespace plumbline
