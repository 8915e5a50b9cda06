#include "server/work/step_pipeline.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/cpu/cancel.h"
#include "server/fault/fault.h"
#include "server/log/log.h"
#include "server/pipeline/audit.h"
#include "server/pipeline/estimate.h"
#include "server/store/encode.h"
#include "server/work/ranks_here.h"
#include "server/work/run_memory.h"
#include "server/work/steady.h"

namespace plumbline {
namespace {

using absl::StrCat;
using Stage = StepUnderWay::Stage;

// A step that the disk did not take is tried again after so long.
constexpr absl::Duration kRetryDelay = absl::Seconds(1);

// The question of mathematics was asked and cannot be answered. A fault that the step's own replay proves stays one.
void mark_reference_missing(const std::string& why, const std::string& name, const std::string& advice,
                            Verdict* verdict) {
  verdict->notes.push_back(StrCat("reference ", name, ": ", why));
  verdict->reference = name;
  if (!advice.empty()) verdict->advice.push_back(advice);
  if (verdict->outcome == Outcome::kTypeII) return;
  verdict->outcome = Outcome::kInconclusive;
  verdict->grade = Grade::kUnspecified;
  verdict->cause = Cause::kReferenceMissing;
  verdict->sentence = StrCat("Not compared with ", name, ": ", why, ".");
}

constexpr char kComparedAcrossNodes[] =
    "the reference's step is not at this daemon: from the shared history come the digests of its leaves, the exact "
    "values of small taps and fixed projections of large ones, and nothing else was compared";

absl::StatusOr<GoldenStep> recorded(const Trace& trace, const Profile& profile) {
  try {
    return golden_step(trace, profile);
  } catch (const std::exception& failure) {
    return absl::InternalError(failure.what());
  }
}

}  // namespace

Told told_by(const AssembledStep& step) { return {{step.trace->missed, step.trace->missed_reasons}, step.trace_id}; }

std::optional<absl::Duration> StepAnswer::retry_after() const {
  const bool final = error.ok() || durable || absl::IsInvalidArgument(error) || absl::IsAlreadyExists(error);
  return final ? std::nullopt : std::make_optional(kRetryDelay);
}

StepPipeline::StepPipeline(Parts parts, Options options)
    : parts_(parts), options_(std::move(options)), expirer_([this] { expire_loop(); }) {
  if (parts_.shared_pairs == nullptr) return;
  pair_watch_ = std::make_unique<PairWatch>(parts_.shared_pairs,
                                            [this](const StepIdentity& step) { pairing_.arrived(step.id()); });
}

StepPipeline::~StepPipeline() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  expirer_.join();
}

void StepPipeline::submit(std::shared_ptr<Run> run, AssembledStep assembled, Done done,
                          std::shared_ptr<const StepClient> client) {
  auto step = std::make_shared<Step>();
  step->run = std::move(run);
  step->assembled = std::move(assembled);
  const std::vector<Waiter> waiters{{std::move(done), std::move(client)}};
  parts_.disk->post([this, step, waiters] { admit(step, waiters); },
                    [this, step, waiters](const absl::Status& fault) { failed(step, fault, waiters); });
}

void StepPipeline::refuse(const StepIdentity& step, Violation violation, Told told, Done done) {
  parts_.disk->post([this, step, violation = std::move(violation), told = std::move(told),
                     done] { record_refusal(step, violation, told, done); },
                    [step, done](const absl::Status& fault) {
                      done({step, fault, "", {}, false});
                    });
}

void StepPipeline::failed(const std::shared_ptr<Step>& step, const absl::Status& fault,
                          const std::vector<Waiter>& waiters) {
  bool admitted = false;
  {
    const std::lock_guard lock(mutex_);
    admitted = !step->waiters.empty();
  }
  if (!admitted) {
    const std::lock_guard lock(mutex_);
    step->waiters = waiters;
  }
  const Trace& trace = *step->trace();
  const auto end = [this, step](const StepAnswer& answer) { finish(step, answer); };
  const absl::Status recorded = contained("a fault's record", [&] {
    record_refusal(trace.identity, {fault.code(), "", std::string(fault.message())}, told_by(step->assembled), end);
  });
  if (!recorded.ok()) end({trace.identity, fault, "", {}, false});
}

void StepPipeline::refuse_other_digest(const AssembledStep& step, const std::string& known, Done done) {
  const Trace& trace = *step.trace;
  Violation violation =
      invalid("step_begin.step",
              StrCat("the trace with digest ", known, " that step ", trace.identity.step, " was received with before"),
              StrCat("another with digest ", trace.digest));
  violation.code = absl::StatusCode::kAlreadyExists;
  record_refusal(trace.identity, std::move(violation), told_by(step), std::move(done));
}

void StepPipeline::admit(const std::shared_ptr<Step>& step, std::vector<Waiter> waiters) {
  const Trace& trace = *step->trace();
  if (step->run->ranks > 1 && trace.rank_digests.empty()) return gather(step, std::move(waiters));
  const auto join = [&](Step& other) {
    other.waiters.insert(other.waiters.end(), std::make_move_iterator(waiters.begin()),
                         std::make_move_iterator(waiters.end()));
  };
  const std::string id = trace.identity.id();
  const auto conflict = [&](const std::string& digest) {
    refuse_other_digest(step->assembled, digest, to_all(std::move(waiters)));
  };
  {
    std::unique_lock lock(mutex_);
    const auto found = steps_.find(id);
    if (found != steps_.end()) {
      const std::string digest = found->second->trace()->digest;
      if (digest == trace.digest) {
        join(*found->second);
        return;
      }
      lock.unlock();
      return conflict(digest);
    }
  }
  if (auto judged = unstored_.find(id, trace.digest)) {
    {
      const std::lock_guard lock(mutex_);
      join(*step);
      steps_[id] = step;
    }
    return store_verdict(step, std::move(judged));
  }
  const auto digest = parts_.store->digest_of(trace.identity);
  const auto last_durable = parts_.store->last_durable_step(trace.identity);
  if (!digest.ok() || !last_durable.ok()) {
    StepAnswer answer{trace.identity, digest.ok() ? last_durable.status() : digest.status(), "", {}, false};
    return call_back(waiters, answer);
  }
  if (*digest && **digest != trace.digest) return conflict(**digest);
  if (*digest) {
    auto verdict = parts_.store->get(id);
    StepAnswer answer{trace.identity, verdict.status(), "", {}, verdict.ok()};
    if (verdict.ok()) answer.verdict = *std::move(verdict);
    return call_back(waiters, answer);
  }
  // A rank may be ahead of the step that all ranks have sent.
  const bool joined = !trace.rank_digests.empty();
  const std::int64_t last = joined ? *last_durable : std::max(*last_durable, step->run->last_step);
  // The last durable step has no verdict here only if that was removed since: it was judged once.
  if (trace.identity.step < last || trace.identity.step == *last_durable) {
    return record_refusal(
        trace.identity,
        invalid("step_begin.step", StrCat("a step after ", last, ", the run's last"), trace.identity.step),
        told_by(step->assembled), to_all(std::move(waiters)));
  }
  step->run->last_step = std::max(step->run->last_step, trace.identity.step);
  {
    const std::lock_guard lock(mutex_);
    join(*step);
    steps_[id] = step;
  }
  // The trace of some ranks alone is nobody's reference.
  const bool keeps = !step->run->elsewhere() && parts_.runs->keeps_traces(trace.identity);
  if (parts_.references != nullptr && !step->given && keeps) {
    // A trace that cannot be kept shows where it is missed: in the verdicts of the runs that are compared with it.
    TraceRecord record;
    record.trace = step->assembled.trace;
    const absl::Status kept = parts_.references->put(record, step->assembled.trace_id);
    if (!kept.ok()) {
      const std::lock_guard lock(mutex_);
      if (unkept_.size() >= kUnkeptMax) unkept_.erase(unkept_.begin());
      unkept_[id] = std::string(kept.message());
    }
    pairing_.arrived(id);
  }
  schedule(step);
}

void StepPipeline::schedule(const std::shared_ptr<Step>& step) {
  const Trace& trace = *step->trace();
  Workers::Task task;
  task.job = StrCat(trace.identity.project, "/", trace.identity.job);
  task.run = trace.identity.run_id();
  task.owner = step->run->owner;
  task.bytes = estimated_audit_bytes(trace);
  task.multiplications = estimated_audit_work(trace);
  const std::uint64_t most = parts_.workers->memory_max();
  if (most > 0) step->memory_share = static_cast<double>(task.bytes) / static_cast<double>(most);
  task.compute = [this, step] { audit_step(*step); };
  task.finish = [this, step](const Workers::Ran& ran) {
    const absl::Status fault = contained("a step's answer", [&] { answer_step(step, ran); });
    if (!fault.ok()) failed(step, fault);
  };

  const auto refuse = [&](const absl::Status& why) {
    record_refusal(trace.identity, {why.code(), "step", std::string(why.message())}, told_by(step->assembled),
                   [this, step](const StepAnswer& answer) { finish(step, answer); });
  };
  if (auto much = check_work_limit(task.multiplications, options_.work_limit); !much.ok()) return refuse(much);

  std::string wait_for;
  if (step->run->reference && !step->given) {
    const StepIdentity reference = step->run->reference_step(trace.identity.step);
    if (parts_.references != nullptr && parts_.references->state(reference) == TraceStore::State::kAbsent &&
        lost_reference(reference).empty()) {
      wait_for = reference.id();
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (stop_waiting_) wait_for.clear();
  }
  task.ready = wait_for.empty();
  enter(*step, task.ready ? Stage::kQueued : Stage::kWaitingForReference);
  const auto ticket = parts_.workers->submit(std::move(task));
  if (!ticket.ok()) {
    return absl::IsUnavailable(ticket.status()) ? drop(step, ticket.status()) : refuse(ticket.status());  // Draining?
  }
  if (wait_for.empty()) return;
  const absl::Time deadline = steady_now() + options_.reference_timeout;
  pairing_.wait(wait_for, deadline, [this, step, ticket = *ticket](bool) {
    enter(*step, Stage::kQueued);
    parts_.workers->make_ready(ticket);
  });
  if (pair_watch_ != nullptr) pair_watch_->add(step->run->reference_step(trace.identity.step), deadline);
  bool stopped = false;
  {
    const std::lock_guard lock(mutex_);
    stopped = stop_waiting_;
  }
  if (stopped) pairing_.expire(absl::InfiniteFuture());
  wake_expirer();
}

void StepPipeline::keep_trace(const TraceRecord& record, const std::string& trace_id, Verdict* verdict) const {
  const absl::Status kept = parts_.kept->put(record, trace_id);
  verdict->trace_kept = kept.ok();
  if (!kept.ok()) verdict->notes.push_back(StrCat("its trace could not be kept: ", kept.message()));
}

void StepPipeline::audit_step(Step& step) const {
  const Trace& trace = *step.trace();
  const Run& run = *step.run;
  enter(step, Stage::kAuditing);
  step.audit = std::make_unique<Audit>();  // Nothing is left of an audit that a device failed.
  Audit& made = *step.audit;
  TraceRecord& record = made.record;
  record.trace = step.assembled.trace;
  if (step.given) {
    made.verdict = *step.given;
    made.memory = run.memory;
    return;
  }
  record.profile = run.profile_name;
  record.alpha = run.alpha;
  if (run.memory.step < trace.identity.step) {  // A step that is judged again is not judged against itself.
    record.previous_step = run.memory.step;
    record.previous_digests = run.memory.digests.left;
    record.previous_untouched = run.memory.digests.untouched;
    record.previous_reference_updates = run.memory.reference_updates;
    record.previous_apart = run.memory.apart;
  }
  if (run.reference) made.missing = load_reference(step, &record, &made.advice);
  if (!run.golden.empty()) made.wrong = load_golden(run, &record, &made.missing);
  if (made.wrong) return;
  const bool records = !run.record_golden.empty() || records_for_others(run);
  const absl::Time start = steady_now(), deadline = start + options_.audit_timeout;
  const double work_max = options_.work_per_second * absl::ToDoubleSeconds(options_.audit_timeout);
  try {
    const CancelScope scope([&] { return wanted(step, deadline); });
    made.verdict = audit(record, *run.profile, ObservedProducts::kRowsFirst, &made.memory, work_max);
    if (records) made.golden = recorded(trace, *run.profile);
  } catch (const GivenUp&) {
    made.given_up = steady_now() <= deadline;
    const std::string why =
        StrCat("it took longer than ", absl::FormatDuration(options_.audit_timeout), " (--audit-timeout)");
    made.verdict = audit_given_up(record, *run.profile, why, &made.memory);
    if (records) made.golden = absl::DeadlineExceededError(why);
  }
  made.seconds = absl::ToDoubleSeconds(steady_now() - start);
}

bool StepPipeline::wanted(const Step& step, absl::Time deadline) const {
  const absl::Time now = steady_now();
  if (giving_up_ || now > deadline) return false;
  const std::lock_guard lock(mutex_);
  return step.waiters.empty() || std::ranges::any_of(step.waiters, [&](const Waiter& waiter) {
           return waiter.client == nullptr || now <= waiter.client->left() + options_.orphan_timeout;
         });
}

void StepPipeline::answer_step(const std::shared_ptr<Step>& step, const Workers::Ran& ran) {
  const Trace& trace = *step->trace();
  Run& run = *step->run;
  const std::unique_ptr<Audit> made = std::move(step->audit);
  Violation wrong;
  if (absl::IsInternal(ran.status)) {
    wrong = {ran.status.code(), "", StrCat("the audit failed: ", ran.status.message())};
  } else if (!ran.status.ok()) {
    wrong = {ran.status.code(), "step", std::string(ran.status.message())};
  } else {
    wrong = made->wrong;
  }
  if (!wrong && made->given_up) return drop(step, absl::UnavailableError("the audit was given up"));
  if (wrong) {
    return record_refusal(trace.identity, std::move(wrong), told_by(step->assembled),
                          [this, step](const StepAnswer& answer) { finish(step, answer); });
  }
  run.memory = std::move(made->memory);
  if (!step->given) run.memory.step = trace.identity.step;
  Verdict& verdict = made->verdict;
  parts_.runs->want(trace.identity, verdict.wanted);
  verdict.identity = trace.identity;
  verdict.digest = trace.digest;
  verdict.rank_digests = trace.rank_digests;
  verdict.profile = run.profile_name;
  // Not absl::Now(), which may go on for seconds as if a clock that was set had not been.
  verdict.time_unix_us = absl::ToUnixMicros(absl::FromChrono(std::chrono::system_clock::now()));
  verdict.audit_seconds = made->seconds;
  verdict.backend = ran.backend;
  for (const std::string& note : ran.notes) {
    verdict.notes.push_back(StrCat("audited again on ", ran.backend, ": ", note));
  }
  if (trace.missed > 0) {
    verdict.notes.push_back(StrCat(trace.missed, " sampled steps before this one were dropped by the client"));
  }
  if (!made->missing.empty()) {
    mark_reference_missing(made->missing, made->record.reference_name, made->advice, &verdict);
  }
  if (run.reference && made->record.golden != nullptr) verdict.notes.push_back(kComparedAcrossNodes);
  if (!step->given) {
    if (!run.record_golden.empty()) record_golden_step(run, *made, &verdict);
    if (records_for_others(run)) record_for_others(run, *made, &verdict);
  }
  if (verdict.outcome == Outcome::kTypeII && !step->given && parts_.kept != nullptr) {
    keep_trace(made->record, step->assembled.trace_id, &verdict);
  }

  auto judged = std::make_shared<JudgedStep>();
  if (step->part != nullptr) judged->part = node_part_row(run, verdict, step->part.get());
  if (run.elsewhere()) tell_ranks_here(run.here, run.ranks, step->part != nullptr, &verdict);
  if (!step->given) judged->memory = to_bytes(run.memory);
  judged->wire = to_proto(verdict);
  judged->wire.set_trace_id(step->assembled.trace_id);
  if (run.elsewhere()) {
    judged->wire.mutable_ranks_here()->Assign(run.here.begin(), run.here.end());
    judged->wire.set_ranks_of_run(run.ranks);
  }
  judged->verdict = std::move(verdict);
  store_verdict(step, std::move(judged));
}

void StepPipeline::store_verdict(const std::shared_ptr<Step>& step, std::shared_ptr<const JudgedStep> judged) {
  enter(*step, Stage::kStoring);
  if (judged->part) parts_.tell_nodes(*judged->part);
  parts_.store->append(
      judged->wire, told_by(step->assembled).missed, judged->memory, [this, step, judged](const absl::Status& status) {
        const absl::Status fault = contained("a stored verdict's answer", [&] { stored(step, judged, status); });
        if (!fault.ok()) failed(step, fault);
      });
}

void StepPipeline::stored(const std::shared_ptr<Step>& step, const std::shared_ptr<const JudgedStep>& judged,
                          const absl::Status& status) {
  const Trace& of = *step->trace();
  if (status.ok()) {
    unstored_.remove(of.identity.id());
  } else {
    unstored_.put(of.identity.id(), judged);
  }
  if (status.ok() && parts_.metrics != nullptr) {
    parts_.metrics->add_verdict(judged->verdict);
    parts_.metrics->add_missed(of.identity.project, of.identity.job, of.missed, of.missed_reasons);
  }
  if (status.ok() && judged->verdict.outcome == Outcome::kTypeII) {
    log_event(
        LogLevel::kWarning, "type_ii",
        {{"verdict", of.identity.id()}, {"trace_id", step->assembled.trace_id}, {"says", judged->verdict.sentence}});
  }
  finish(step, {.step = of.identity,
                .error = status,
                .field = "",
                .verdict = judged->wire,
                .durable = status.ok(),
                .outputs = judged->verdict.outputs});
}

void StepPipeline::record_refusal(const StepIdentity& step, Violation violation, Told told, Done done) {
  const absl::Status error(violation.code, violation.message());
  parts_.store->append_error(
      step, error, told.missed, told.trace_id,
      [this, step, error, told, field = violation.field, done = std::move(done)](const absl::Status& stored) {
        log_event(LogLevel::kWarning, "step_refused",
                  {{"step", step.id()},
                   {"trace_id", told.trace_id},
                   {"code", absl::StatusCodeToString(error.code())},
                   {"message", std::string(error.message())},
                   {"stored", stored.ok() ? "yes" : std::string(stored.message())}});
        if (!stored.ok()) return done({step, stored, "", {}, false});
        if (parts_.metrics != nullptr) {
          parts_.metrics->add_steps(step.project, step.job, StepOutcome::kRefused);
          parts_.metrics->add_missed(step.project, step.job, told.missed.steps, told.missed.reasons);
        }
        done({step, error, field, {}, true});
      });
}

void StepPipeline::finish(const std::shared_ptr<Step>& step, StepAnswer answer) {
  answer.memory_share = step->memory_share;
  std::vector<Waiter> waiters;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = steps_.find(answer.step.id()); found != steps_.end() && found->second == step)
      steps_.erase(found);
    waiters.swap(step->waiters);
  }
  step->assembled.memory.release();
  step->of_ranks.clear();
  call_back(waiters, answer);
}

void StepPipeline::drop(const std::shared_ptr<Step>& step, const absl::Status& why) {
  {
    const std::lock_guard lock(mutex_);
    step->waiters.clear();  // Who has no answer sends the step again.
  }
  finish(step, {step->trace()->identity, why, "", {}, false});
}

void StepPipeline::call_back(const std::vector<Waiter>& waiters, const StepAnswer& answer) {
  for (const Waiter& waiter : waiters) contained("a step's answer", [&] { waiter.done(answer); }).IgnoreError();
}

StepPipeline::Done StepPipeline::to_all(std::vector<Waiter> waiters) {
  return [waiters = std::move(waiters)](const StepAnswer& answer) { call_back(waiters, answer); };
}

void StepPipeline::stop_waiting() {
  {
    const std::lock_guard lock(mutex_);
    stop_waiting_ = true;
  }
  pairing_.expire(absl::InfiniteFuture());
  if (pair_watch_ != nullptr) pair_watch_->stop();
}

void StepPipeline::enter(Step& step, Stage stage) const {
  const std::lock_guard lock(mutex_);
  step.stage = stage;
  step.since = absl::Now();
}

std::vector<StepUnderWay> StepPipeline::under_way(const std::string& after, std::size_t limit,
                                                  const Wanted& wanted) const {
  std::vector<StepUnderWay> found;
  const std::lock_guard lock(mutex_);
  for (auto it = steps_.upper_bound(after); it != steps_.end() && found.size() < limit; ++it) {
    const Step& step = *it->second;
    const StepIdentity& identity = step.trace()->identity;
    if (wanted(identity, step.run->owner)) found.push_back({identity, step.stage, step.since});
  }
  return found;
}

std::size_t StepPipeline::in_flight() const {
  const std::lock_guard lock(mutex_);
  return steps_.size();
}

void StepPipeline::expire_loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const absl::Time next = pairing_.next_deadline();
    const auto changed = [&] { return stop_ || pairing_.next_deadline() != next; };
    if (next == absl::InfiniteFuture()) {
      wake_.wait(lock, changed);
    } else {
      wake_.wait_for(lock, absl::ToChronoNanoseconds(std::max(next - steady_now(), absl::ZeroDuration())), changed);
    }
    lock.unlock();
    contained("the deadlines' thread", [&] { pairing_.expire(steady_now()); }).IgnoreError();
    lock.lock();
  }
}

void StepPipeline::wake_expirer() {
  // With the lock, or the news may come between the expirer's look at the deadlines and its sleep.
  { const std::lock_guard lock(mutex_); }
  wake_.notify_all();
}

}  // namespace plumbline
