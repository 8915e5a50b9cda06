#include "server/bound/pair/gap.h"

#include <algorithm>
#include <cmath>

#include "kernels/sums.h"
#include "server/bound/pair/shared_items.h"
#include "server/bound/replay/taps.h"
#include "server/bound/replay/terms.h"

namespace plumbline {
namespace {

// An accusation must hold however far first order may be off where items are free.
constexpr double kFreedom = 2;
// A value that its replay's error exceeds by this much is zero as far as we can tell; what it is measured by is then
// the size of the terms that cancel, of which the error is some 2^-46.
constexpr double kZero = 16;
constexpr double kTermsOverError = 0x1p46;
// An execution leaves some roundings of those terms, which may cancel down to this share of one.
constexpr double kLeft = 0x1p-12;

Array finite_part(const Array& value, const Array& mask) {
  if (!mask) return value;
  const Array x = value.materialize().on_host(), kept = mask.on_host();
  Array part = Array::uninitialized(value.shape());
  for (std::int64_t i = 0; i < x.count(); ++i) part.data()[i] = kept.data()[i] == 0 ? 0 : x.data()[i];
  return part;
}

bool same_class(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : std::isinf(a) || std::isinf(b) ? a == b : !std::isnan(b);
}

// What is not finite in exact arithmetic, and is when the program runs, tells nothing of its mathematics: a lowering
// says so of what it does not know, and 0 / 0 may be a quotient of two roundings.
bool known(double exact, double ran) { return std::isfinite(exact) || same_class(exact, ran); }

}  // namespace

Gap::Gap(const BoundsInput& input, const PairReplays& replays, std::vector<PairedTap> pairs,
         const std::map<std::size_t, Answer>& finite)
    : input_(input), replays_(replays), pairs_(std::move(pairs)) {
  for (const PairedTap& pair : pairs_) {
    if (finite.contains(pair.target)) continue;
    const Array t = of_target(pair), r = of_reference(pair);
    const Finite whole = all_finite(t, r);
    if (whole.first && whole.second) continue;
    const Array x = t.materialize().on_host(), y = r.materialize().on_host();
    const Array ran_x = observed_value(input.target->taps[pair.target]).on_host();
    const Array ran_y = observed_value(input.reference->taps[pair.reference]).on_host();
    Pattern pattern{Array::uninitialized(x.shape())};
    for (std::int64_t i = 0; i < x.count(); ++i) {
      const bool both = std::isfinite(x.data()[i]) && std::isfinite(y.data()[i]);
      pattern.mask.data()[i] = both ? 1 : 0;
      pattern.same = pattern.same && same_class(x.data()[i], y.data()[i]);
      pattern.known = pattern.known && known(x.data()[i], ran_x.data()[i]) && known(y.data()[i], ran_y.data()[i]);
    }
    patterns_.emplace(pair.target, std::move(pattern));
  }
}

const PairedTap* Gap::find(std::size_t target_tap) const {
  const auto found = std::ranges::lower_bound(pairs_, target_tap, {}, &PairedTap::target);
  return found != pairs_.end() && found->target == target_tap ? &*found : nullptr;
}

Array Gap::mask(const PairedTap& pair) const {
  const auto found = patterns_.find(pair.target);
  return found == patterns_.end() ? Array() : found->second.mask;
}

Gap::Parting Gap::parting(const PairedTap& pair) const {
  const auto found = patterns_.find(pair.target);
  if (found == patterns_.end()) return Parting::kNone;
  const Pattern& pattern = found->second;
  return !pattern.known ? Parting::kUnknown : pattern.same ? Parting::kNone : Parting::kOther;
}

Array Gap::of_target(const PairedTap& pair) const {
  return finite_part(seen_value(input_.target->taps[pair.target], replays_.target), mask(pair));
}

Array Gap::of_reference(const PairedTap& pair) const {
  return finite_part(seen_value(input_.reference->taps[pair.reference], replays_.reference), mask(pair));
}

double Gap::relative(const PairedTap& pair) const {
  return apart(of_target(pair), of_reference(pair)).get().relative();
}

Probe Gap::probe(const PairedTap& pair) const {
  const GraphTap& tap = input_.target->taps[pair.target];
  ProbeTap probed = probe_tap(pair.target, tap, of_reference(pair), mask(pair));
  if (count(tap.shape) == 1)
    probed.magnitude = tap_magnitude(*input_.target, replays_.target, tap, std::fabs(of_target(pair).item()));
  Probe probe = count(tap.shape) == 1 && !probed.mask ? scalar_probe(probed)
                                                      : signs_probe(tap.name, {probed}, input_.seed ^ pair.target);
  return probe;
}

Probe Gap::reindexed(const Probe& probe) const {
  Probe result = probe;
  for (Probe::Part& part : result.parts) part.tap = find(part.tap)->reference;
  return result;
}

double Gap::scale(const Probe& probe) const {
  const auto found = scales_.find(probe.name);
  return found == scales_.end() ? probe.scale : found->second;
}

bool Gap::is_left_of(double terms, const Probe& probe) const {
  std::vector<Later<double>> ours, theirs;
  double roundoff = 1;
  for (const Probe::Part& part : probe.parts) {
    const PairedTap& pair = *find(part.tap);
    const GraphTap &target = input_.target->taps[pair.target], &reference = input_.reference->taps[pair.reference];
    ours.push_back(dot(part.weights, observed_parts(target)));
    theirs.push_back(dot(part.weights, observed_parts(reference)));
    for (const Format format : {tap_format(target), tap_format(reference)})
      if (is_float(format)) roundoff = std::min(roundoff, unit_roundoff(format));
  }
  const double executed = std::fmax(std::fabs(sum_of(ours)), std::fabs(sum_of(theirs)));
  return executed == 0 || !(executed < kLeft * roundoff * terms);
}

double Gap::gap(const Probe& probe) const {
  std::vector<Later<double>> parts;
  for (const Probe::Part& part : probe.parts) {
    const PairedTap& pair = *find(part.tap);
    parts.push_back(dot_difference(part.weights, parts_of(of_target(pair)), parts_of(of_reference(pair))));
  }
  return std::fabs(sum_of(parts));
}

std::vector<Envelope> Gap::own_envelopes(const std::vector<Probe>& probes) const {
  if (probes.empty()) return {};
  return adjoint_envelopes(*input_.target, replays_.target, probes, *input_.profile, Executions::kOwn,
                           replays_.target_slack);
}

std::vector<Envelope> Gap::their_envelopes(const std::vector<Probe>& probes) const {
  if (probes.empty()) return {};
  std::vector<Probe> other;
  other.reserve(probes.size());
  for (const Probe& probe : probes) other.push_back(reindexed(probe));
  return adjoint_envelopes(*input_.reference, replays_.reference, other, *input_.profile, Executions::kOwn,
                           replays_.reference_slack);
}

bool Gap::within_own(const Probe& probe, double gap, const Envelope& own, double lambda) const {
  if (!replays_.target_slack.empty() || !replays_.reference_slack.empty()) return false;
  const double twice = replay_error({&own, &own}, lambda);
  if (probe.scale <= kZero * twice || Answer{true, 0, twice / probe.scale}.vacuous()) return false;
  return gap <= replay_error({&own}, lambda);
}

bool Gap::agree(const Probe& probe, const Envelope& own) const {
  return within_own(probe, gap(probe), own, hoeffding_lambda(1, input_.alpha));
}

std::vector<Answer> Gap::ask(const std::vector<Probe>& probes) const { return ask(probes, own_envelopes(probes)); }

std::vector<Answer> Gap::ask(const std::vector<Probe>& probes, const std::vector<Envelope>& own) const {
  if (probes.empty()) return {};
  const double lambda = hoeffding_lambda(static_cast<double>(probes.size()), input_.alpha);
  std::vector<double> gaps;
  std::vector<std::size_t> open;
  std::vector<Probe> asked;
  for (std::size_t p = 0; p < probes.size(); ++p) {
    gaps.push_back(gap(probes[p]));
    if (replays_.one_program || within_own(probes[p], gaps[p], own[p], lambda)) continue;
    open.push_back(p);
    asked.push_back(probes[p]);
  }
  std::vector<Envelope> theirs = own, swept = their_envelopes(asked);
  for (std::size_t i = 0; i < open.size(); ++i) theirs[open[i]] = std::move(swept[i]);
  std::vector<Moved> moved(probes.size());
  if (replays_.shared_items) {
    std::vector<Probe> other;
    other.reserve(probes.size());
    for (const Probe& probe : probes) other.push_back(reindexed(probe));
    moved = moved_by_shared_items(*replays_.shared_items, input_, replays_, probes, other);
  }
  std::vector<Answer> answers;
  for (std::size_t p = 0; p < probes.size(); ++p) {
    const double python = own[p].python + theirs[p].python, rho = own[p].rho + theirs[p].rho + python;
    const double replays = replay_error({&own[p], &theirs[p]}, lambda);
    if (probes[p].scale <= kZero * replays && is_left_of(kTermsOverError * replays, probes[p]))
      scales_[probes[p].name] = kTermsOverError * replays;
    const double scale = this->scale(probes[p]), gap = gaps[p];
    const double free = kFreedom * (own[p].freedom + theirs[p].freedom + moved[p].by);
    const double freedom = std::isnan(free) ? HUGE_VAL : free;  // Nothing times an infinite slope.
    Answer answer{true, gap / scale, (replays + python + freedom) / scale, (rho + freedom) / scale, python / scale};
    answer.freedom = freedom / scale;
    answer.replaced = (own[p].replaced + theirs[p].replaced) / scale;
    // What agrees without any freedom is answered, however much there would be.
    answer.by_freedom = !(gap <= replays + python);
    if (!answer.by_freedom) answer.doubt = (replays + python) / scale;
    answers.push_back(answer);
  }
  return answers;
}

}  // namespace plumbline
