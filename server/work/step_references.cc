// What a step is compared with: the trace of another run here, a golden run, or what another daemon recorded of a run
// there; and what is recorded for others.
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/bound/pair/golden.h"
#include "server/work/step_pipeline.h"

namespace plumbline {
namespace {

using absl::StrCat;

std::string reference_name(const StepIdentity& reference) {
  return StrCat("run ", reference.run, " step ", reference.step);
}

}  // namespace

std::string StepPipeline::lost_reference(const StepIdentity& wanted) const {
  {
    const std::lock_guard lock(mutex_);
    const auto unkept = unkept_.find(wanted.id());
    if (unkept != unkept_.end()) return StrCat("its trace could not be kept: ", unkept->second);
  }
  const auto digest = parts_.store->digest_of(wanted);
  if (digest.ok() && *digest) return "its trace was not kept: the run was not opened as a reference";
  // Traces are kept before their verdicts are, and steps come in ascending order.
  const auto refused = parts_.store->was_refused(wanted);
  if (refused.ok() && *refused) return "the step was refused";
  const auto last = parts_.store->last_durable_step(wanted);
  if (last.ok() && *last >= wanted.step) return "the run has passed it: the step was not sampled, or was refused";
  return "";
}

std::string StepPipeline::load_reference(const Step& step, TraceRecord* record, std::string* advice) const {
  const StepIdentity wanted = step.run->reference_step(step.trace()->identity.step);
  record->reference_name = reference_name(wanted);
  if (parts_.references == nullptr) return "this daemon keeps no traces";
  // Whose it is may have been unknown when the run was opened.
  const auto owner = parts_.store->owner_of(wanted);
  if (!owner.ok()) return StrCat("whose it is cannot be read: ", owner.status().message());
  if (*owner && **owner != step.run->owner && !step.run->pairs_with_any) return "the run is another user's";
  switch (parts_.references->state(wanted)) {
    case TraceStore::State::kEvicted:
      return "its trace was evicted (--trace-quota)";
    case TraceStore::State::kAbsent: {
      // A run that went from one daemon to another has steps elsewhere that it passed here.
      std::optional<std::string> elsewhere;
      if (parts_.shared_pairs != nullptr) elsewhere = load_from_elsewhere(*step.run, wanted, record, advice);
      if (elsewhere && elsewhere->empty()) return "";
      std::string lost = lost_reference(wanted);
      if (!lost.empty()) return lost;
      if (elsewhere) return *elsewhere;
      {
        const std::lock_guard lock(mutex_);
        if (stop_waiting_) return "the daemon was stopped before the step arrived";
      }
      if (parts_.references->has_run(wanted) || parts_.runs->known(wanted)) {
        return StrCat("the step is late: it did not arrive within ", absl::FormatDuration(options_.reference_timeout));
      }
      return "the run never existed here";
    }
    case TraceStore::State::kPresent:
      break;
  }
  auto kept = parts_.references->load(wanted, parts_.buffers);
  if (!kept.ok()) {
    if (absl::IsNotFound(kept.status())) return "its trace was evicted (--trace-quota)";
    return StrCat("its trace cannot be read: ", kept.status().message());
  }
  record->reference = std::move(kept->trace);
  return "";
}

std::optional<std::string> StepPipeline::load_from_elsewhere(const Run& run, const StepIdentity& wanted,
                                                             TraceRecord* record, std::string* advice) const {
  const std::string name = pair_name(wanted);
  const auto origin = parts_.shared_pairs->origin(wanted.project, name);
  if (absl::IsNotFound(origin.status())) return std::nullopt;
  if (!origin.ok()) return StrCat("it is not here, and the shared history is away: ", origin.status().message());
  const Visibility seen{
      .all = false,
      .owner = run.owner,
      .projects = run.pairs_with_any ? std::set<std::string>{wanted.project} : std::set<std::string>{}};
  if (!parts_.shared_pairs->sees(seen, wanted.project, *origin)) {
    return "the run is at another daemon, and another user's as far as this one knows (--store-users)";
  }
  auto golden =
      parts_.shared_pairs->load(wanted.project, name, StrCat(wanted.job, "/", wanted.run), wanted.rank, wanted.step);
  if (absl::IsNotFound(golden.status())) {
    return "the run is at another daemon, and the step did not come to the shared history: it is late, was not "
           "sampled, "
           "or was refused";
  }
  if (!golden.ok()) return StrCat("it cannot be read: ", golden.status().message());
  if (const std::string foreign = first_foreign_leaf(*record->trace, **golden); !foreign.empty()) {
    *advice = "send both runs to one daemon, which has the leaves themselves";
    return StrCat("the runs are at two daemons, and did not begin the step alike: the reference's ", foreign);
  }
  record->golden = *std::move(golden);
  return "";
}

bool StepPipeline::records_for_others(const Run& run) const {
  return parts_.pairs != nullptr && !run.elsewhere() && parts_.runs->is_reference(run.identity);
}

void StepPipeline::record_for_others(const Run& run, const Audit& audit, Verdict* verdict) const {
  const StepIdentity& step = audit.record.trace->identity;
  v1::GoldenHeader header;
  header.set_project(step.project);
  header.set_name(pair_name(step));
  header.set_run(StrCat(step.job, "/", step.run));
  header.set_profile(run.profile_name);
  header.mutable_time()->set_seconds(absl::ToUnixSeconds(absl::Now()));
  absl::Status recorded = audit.golden.status();
  if (recorded.ok()) recorded = parts_.pairs->begin(header, run.owner);
  if (recorded.ok()) recorded = parts_.pairs->append(step.project, header.name(), *audit.golden);
  if (recorded.ok()) return;
  verdict->notes.push_back(
      StrCat("runs at other daemons cannot be compared with this step: ", std::string(recorded.message())));
}

Violation StepPipeline::load_golden(const Run& run, TraceRecord* record, std::string* missing) const {
  const StepIdentity& step = record->trace->identity;
  record->reference_name = StrCat("golden ", run.golden, " step ", step.step);
  auto golden = parts_.golden->load(step.project, run.golden, step.rank, step.step);
  if (absl::IsNotFound(golden.status()) && parts_.shared_golden != nullptr) {
    // A run that went from one daemon to another recorded some of its steps there.
    const auto recorded_by = parts_.golden->run_of(step.project, run.golden);
    auto there = parts_.shared_golden->load(step.project, run.golden, recorded_by.ok() ? *recorded_by : "", step.rank,
                                            step.step);
    if (absl::IsUnavailable(there.status())) {
      *missing = StrCat("it is not here, and the shared history is away: ", there.status().message());
      return {};
    }
    if (there.ok() || !recorded_by.ok()) golden = std::move(there);
  }
  if (!golden.ok()) return {golden.status().code(), "golden", std::string(golden.status().message())};
  const std::string foreign = first_foreign_leaf(*record->trace, **golden);
  if (!foreign.empty()) {
    return {absl::StatusCode::kFailedPrecondition, "golden",
            StrCat("expected the leaves of golden run '", run.golden, "' at step ", step.step,
                   ", found others: ", foreign)};
  }
  record->golden = *std::move(golden);
  return {};
}

void StepPipeline::record_golden_step(const Run& run, const Audit& audit, Verdict* verdict) const {
  absl::Status recorded = audit.golden.status();
  if (recorded.ok()) {
    recorded = parts_.golden->append(audit.record.trace->identity.project, run.record_golden, *audit.golden);
  }
  if (recorded.ok()) return;
  verdict->notes.push_back(
      StrCat("this step is not in golden run '", run.record_golden, "': ", std::string(recorded.message())));
}

}  // namespace plumbline
