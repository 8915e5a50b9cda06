#include "server/pipeline/audit.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>

#include "kernels/cpu/parallel.h"
#include "server/bound/compute.h"
#include "server/bound/pair/carried.h"
#include "server/bound/pair/golden.h"
#include "server/bound/replay/constants.h"
#include "server/bound/replay/work.h"
#include "server/judge/coverage.h"
#include "server/judge/judge.h"
#include "server/lower/lower.h"

namespace plumbline {
namespace {

// Probes' signs are drawn from the digest of the data that they judge.
std::uint64_t seed_of(const std::string& digest) {
  std::uint64_t seed = 0xcbf29ce484222325ULL;  // FNV-1a
  for (char c : digest) seed = (seed ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ULL;
  return seed;
}

// What step k may spend of a run's alpha: alpha / ((k+1)(k+2)) sums to alpha over all steps, whichever are audited.
double alpha_of(std::int64_t step, double alpha) {
  const auto t = static_cast<double>(step) + 1;
  return alpha / (t * (t + 1));
}

// The reference's own client is asked for what its trace lacks.
Graph lower_reference(const Trace& trace) {
  try {
    return lower(trace);
  } catch (const ResultsMissing& missing) {
    throw LowerError(std::string("the reference's trace lacks results: ") + missing.what());
  }
}

void check_work(const Graph& graph, double most) {
  const double work = replay_work(graph);
  if (work <= most) return;
  char text[160];
  std::snprintf(text, sizeof text,
                "computing it again takes %.3g multiplications, more than the %.3g that an audit has time for", work,
                most);
  throw std::runtime_error(text);
}

Verdict judged(const Trace& target, const AuditRequestContext& context, GradientApart* apart) {
  const auto start = std::chrono::steady_clock::now();
  Graph graph = lower(target);
  Graph reference;
  const bool paired = context.reference != nullptr && context.reference->trace != nullptr;
  if (paired) reference = lower_reference(*context.reference->trace);
  // A golden run keeps what its program was given as it was written.
  if (context.golden == nullptr) settle_constants(&graph, paired ? &reference : nullptr);
  check_work(graph, context.work_max);
  if (paired) check_work(reference, context.work_max);
  const double lowering = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  const bool follows = context.previous != nullptr && context.previous->step + 1 == target.identity.step;
  const Bounds bounds = compute_bounds(
      {&graph, paired ? &reference : nullptr, context.profile, seed_of(target.digest),
       alpha_of(target.identity.step, context.alpha), context.golden, context.products,
       follows && context.previous->apart.scale != 0 ? std::optional(context.previous->apart.scale) : std::nullopt,
       follows ? context.previous->apart.kept : KeptLeft::kAlike, paired && context.reference->first_step_of_run});
  JudgeInput input{&graph, &bounds, {}, false, {}, paired ? &reference : nullptr};
  input.follows = follows;
  if (input.follows) {
    input.changed_leaves = changed_leaves(target, context.previous->digests.left);
    forget_cleared(graph, &input.changed_leaves);
    input.reference_updates = context.previous->reference_updates;
    input.apart = context.previous->apart;
  }
  if (paired) {
    input.first_step_of_run = context.reference->first_step_of_run;
    input.reference_name = context.reference->name;
  }
  input.ranks = std::max<std::size_t>(1, target.rank_digests.size());
  input.replicated = target.replicated;
  input.outputs = target.outputs;
  input.diverged = diverged_parameters(target);
  if (context.golden != nullptr) input.reference_name = context.golden_name;
  Verdict verdict = judge(input);
  // Gradients that nothing had a part in are still what the step before left.
  const auto untouched = [](const Graph& of) {
    return of.carried.empty() && std::ranges::none_of(of.taps, [](const GraphTap& tap) {
             return tap.kind == TapKind::kGradient || tap.kind == TapKind::kUpdate;
           });
  };
  *apart = follows && untouched(graph) && untouched(reference) ? context.previous->apart : bounds.apart;
  apart->kept = bounds.kept_left;
  cover_modules(target, graph.coverage, &verdict);
  verdict.wanted = graph.wanted;
  if (graph.coverage.untold > 0)
    verdict.notes.push_back(
        std::to_string(graph.coverage.untold) +
        " convolutions of 16-bit numbers do not tell how they add up: the widest legal way was taken");
  verdict.phase_seconds["lower"] = lowering;
  return verdict;
}

Verdict not_audited(const Trace& target, const std::string& why) {
  Verdict verdict;
  verdict.outcome = Outcome::kInconclusive;
  verdict.cause = Cause::kUnanswered;
  verdict.sentence = "The step could not be audited: " + why + ".";
  verdict.coverage.operations = verdict.coverage.opaque = target.ops.size();
  return verdict;
}

std::set<std::string> updates_of(const Trace* reference) {
  std::set<std::string> names;
  if (reference == nullptr) return names;
  for (const TraceTap& tap : reference->taps)
    if (tap.kind == TapKind::kUpdate) names.insert(tap.name);
  return names;
}

// Fills in what every verdict says of its step. `reference`: its reference's step; null: none.
void complete(const Trace& target, const Trace* reference, const Profile& profile, const StepMemory* previous,
              Verdict* verdict, StepMemory* memory) {
  verdict->identity = target.identity;
  verdict->digest = target.digest;
  verdict->rank_digests = target.rank_digests;
  verdict->profile = profile.name;
  for (const std::string& field : profile.widened)
    verdict->notes.push_back("profile field '" + field + "' is unknown: its widest legal value was taken");
  verdict->backend = "cpu";
  if (memory != nullptr)
    *memory = {target.identity.step,
               digests_after(target, previous == nullptr ? Digests{} : previous->digests.untouched),
               updates_of(reference),
               {}};
}

StepMemory previous_of(const TraceRecord& record) {
  return {record.previous_step,
          {record.previous_digests, record.previous_untouched},
          record.previous_reference_updates,
          record.previous_apart};
}

}  // namespace

Verdict audit(const Trace& target, const AuditRequestContext& context, StepMemory* memory) {
  const cpu::Computing computing;
  const auto start = std::chrono::steady_clock::now();
  Verdict verdict;
  GradientApart apart;
  try {
    verdict = judged(target, context, &apart);
  } catch (const ResultsMissing& missing) {
    verdict = not_audited(target, missing.what());
    verdict.wanted = missing.wanted();
    verdict.notes.emplace_back("the client is asked for the results that are missing: a later step holds them");
  } catch (const std::exception& error) {
    verdict = not_audited(target, error.what());
  }
  complete(target, context.reference == nullptr ? nullptr : context.reference->trace.get(), *context.profile,
           context.previous, &verdict, memory);
  if (memory != nullptr) memory->apart = std::move(apart);
  verdict.audit_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return verdict;
}

Verdict audit_given_up(const TraceRecord& record, const Profile& profile, const std::string& why, StepMemory* memory) {
  Verdict verdict = not_audited(*record.trace, why);
  const StepMemory previous = previous_of(record);
  complete(*record.trace, record.reference.get(), profile, previous.step >= 0 ? &previous : nullptr, &verdict, memory);
  return verdict;
}

Verdict audit(const TraceRecord& record, const Profile& profile, ObservedProducts products, StepMemory* memory,
              double work_max) {
  AuditRequestContext context;
  context.products = products;
  context.work_max = work_max;
  context.profile = &profile;
  context.alpha = record.alpha > 0 && record.alpha < 1 ? record.alpha : kDefaultAlpha;
  Reference reference;
  if (record.reference != nullptr) {
    reference = {record.reference, record.reference_name, record.reference->identity.step == 0};
    context.reference = &reference;
  }
  context.golden = record.golden.get();
  context.golden_name = record.reference_name;
  const StepMemory previous = previous_of(record);
  if (previous.step >= 0) context.previous = &previous;
  return audit(*record.trace, context, memory);
}

GoldenStep golden_step(const Trace& trace, const Profile& profile) {
  return record_golden(trace, seed_of(trace.digest), profile);
}

}  // namespace plumbline
