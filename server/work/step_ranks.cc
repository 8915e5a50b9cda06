// Steps of a run with several ranks: each waits until the traces of all ranks that stream to this daemon are here, and
// they become one step.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/ingest/join.h"
#include "server/ingest/shards.h"
#include "server/nodes/part.h"
#include "server/work/steady.h"
#include "server/work/step_pipeline.h"

namespace plumbline {
namespace {

using absl::StrCat;

Verdict without_ranks(const std::vector<std::int32_t>& missing, const std::string& why) {
  Verdict verdict;
  verdict.outcome = Outcome::kInconclusive;
  verdict.cause = Cause::kUnanswered;
  verdict.sentence = StrCat("Not audited: the trace of rank ", absl::StrJoin(missing, ", "), " is missing: ", why, ".");
  return verdict;
}

Verdict of_fault(const Joined& joined) {
  Verdict verdict;
  verdict.outcome = joined.contradiction ? Outcome::kTypeII : Outcome::kInconclusive;
  verdict.grade = joined.contradiction ? Grade::kProven : Grade::kUnspecified;
  verdict.cause = joined.contradiction ? Cause::kMathematics : Cause::kUnanswered;
  verdict.sentence = StrCat("The ranks' collectives do not fit together: ", joined.fault, ".");
  verdict.suspect = Place{"collective", joined.source, "", ""};
  verdict.suspect_detail = joined.fault;
  return verdict;
}

// Where a rank stands among those that are joined here. It is one of them.
std::size_t index_of(const Run& run, std::int32_t rank) {
  return static_cast<std::size_t>(std::lower_bound(run.here.begin(), run.here.end(), rank) - run.here.begin());
}

// "job/run/rank/step" of one kind of key, apart from those of references.
constexpr char kWaiting[] = "ranks of ";
std::string waiting_key(const std::string& id) { return StrCat(kWaiting, id); }

}  // namespace

std::size_t StepPipeline::waiting_for_ranks() const { return pairing_.waiting(kWaiting); }

bool StepPipeline::answer_rank_from_store(const Step& step, const Done& done) {
  const Trace& trace = *step.trace();
  const StepIdentity judged = step.run->judged(trace.identity.step);
  const auto known = parts_.store->digest_of(judged);
  if (!known.ok()) {
    done({trace.identity, known.status(), "", {}, false});
    return true;
  }
  if (!*known) return false;
  auto verdict = parts_.store->get(judged.id());
  StepAnswer answer{trace.identity, verdict.status(), "", {}, verdict.ok()};
  if (verdict.ok()) {
    const auto index = static_cast<int>(index_of(*step.run, trace.identity.rank));
    const std::string digest = index < verdict->rank_digests_size() ? verdict->rank_digests(index) : "";
    // Empty: the step was given up before this rank's trace came.
    if (!digest.empty() && digest != trace.digest) {
      refuse_other_digest(step.assembled, digest, done);
      return true;
    }
    answer.verdict = *std::move(verdict);
  }
  done(answer);
  return true;
}

void StepPipeline::gather(const std::shared_ptr<Step>& step, std::vector<Waiter> waiters) {
  const Trace& trace = *step->trace();
  const std::int32_t rank = trace.identity.rank;
  const StepIdentity judged = step->run->judged(trace.identity.step);
  const std::string id = judged.id();
  const auto join = [&](Step& other) {
    other.waiters.insert(other.waiters.end(), std::make_move_iterator(waiters.begin()),
                         std::make_move_iterator(waiters.end()));
  };
  {
    std::unique_lock lock(mutex_);
    if (const auto found = steps_.find(id); found != steps_.end()) {
      const std::vector<std::string>& digests = found->second->trace()->rank_digests;
      const std::size_t index = index_of(*step->run, rank);
      const std::string digest = index < digests.size() ? digests[index] : "of other ranks";
      if (digest.empty() || digest == trace.digest) {
        join(*found->second);
        return;
      }
      lock.unlock();
      return refuse_other_digest(step->assembled, digest, to_all(std::move(waiters)));
    }
  }
  if (answer_rank_from_store(*step, to_all(waiters))) return;
  if (trace.identity.step < step->run->last_step && !unstored_.holds(id)) {
    return record_refusal(trace.identity,
                          invalid("step_begin.step", StrCat("a step after ", step->run->last_step, ", the run's last"),
                                  trace.identity.step),
                          told_by(step->assembled), to_all(std::move(waiters)));
  }
  step->run->last_step = std::max(step->run->last_step, trace.identity.step);

  RankGroup& group = groups_[id];
  const bool first = group.steps.empty();
  if (const auto known = group.steps.find(rank); known != group.steps.end()) {
    const std::string digest = known->second->trace()->digest;
    if (digest != trace.digest) return refuse_other_digest(step->assembled, digest, to_all(std::move(waiters)));
    join(*known->second);
    return;
  }
  join(*step);
  group.steps[rank] = step;
  const bool complete = group.steps.size() == step->run->here.size();
  give_up_passed(judged, rank);
  if (complete) {
    close_group(id, "");
    pairing_.arrived(waiting_key(id));
    return;
  }
  if (first) {
    pairing_.wait(waiting_key(id), steady_now() + options_.reference_timeout, [this, id](bool arrived) {
      if (arrived) return;
      parts_.disk->post([this, id] {
        close_group(id, StrCat("it did not arrive within ", absl::FormatDuration(options_.reference_timeout),
                               "; all ranks must stream to this daemon, or say which do (ranks_here)"));
      });
    });
    wake_expirer();
  }
  // Asked once the wait is known: who stops all waits from here on ends this one as well.
  bool stopped = false;
  {
    const std::lock_guard lock(mutex_);
    stopped = stop_waiting_;
  }
  if (!stopped) return;
  close_group(id, "the daemon was stopped before it arrived");
  pairing_.arrived(waiting_key(id));
}

void StepPipeline::give_up_passed(const StepIdentity& judged, std::int32_t rank) {
  std::vector<std::string> passed;
  for (const auto& [id, group] : groups_) {
    const StepIdentity& of = group.steps.begin()->second->trace()->identity;
    const bool same_run = of.project == judged.project && of.job == judged.job && of.run == judged.run;
    if (same_run && of.step < judged.step && group.steps.count(rank) == 0) passed.push_back(id);
  }
  for (const std::string& id : passed) {
    close_group(id, StrCat("the rank went on to step ", judged.step, " without it"));
    pairing_.arrived(waiting_key(id));
  }
}

void StepPipeline::close_group(const std::string& id, const std::string& missing_because) {
  const auto found = groups_.find(id);
  if (found == groups_.end()) return;
  RankGroup group = std::move(found->second);
  groups_.erase(found);

  auto step = std::make_shared<Step>();
  const Step& first = *group.steps.begin()->second;
  step->run = first.run;
  std::vector<std::shared_ptr<const Trace>> traces;
  std::vector<std::int32_t> missing;
  std::vector<Waiter> waiters;
  auto unjoined = std::make_shared<Trace>();  // What is known of the step before it is joined.
  unjoined->identity = first.run->judged(first.trace()->identity.step);
  unjoined->digest = first.trace()->digest;
  unjoined->rank_digests.resize(first.run->here.size());
  for (const std::int32_t rank : first.run->here) {
    const auto member = group.steps.find(rank);
    if (member == group.steps.end()) {
      missing.push_back(rank);
      continue;
    }
    Step& part = *member->second;
    traces.push_back(part.trace());
    unjoined->rank_digests[index_of(*first.run, rank)] = part.trace()->digest;
    unjoined->missed = std::max(unjoined->missed, part.trace()->missed);
    if (step->assembled.trace_id.empty()) step->assembled.trace_id = part.assembled.trace_id;
    step->of_ranks.push_back(std::move(part.assembled.memory));
    waiters.insert(waiters.end(), std::make_move_iterator(part.waiters.begin()),
                   std::make_move_iterator(part.waiters.end()));
  }
  step->assembled.trace = std::move(unjoined);
  if (missing.empty()) return join(step, std::move(traces), std::move(waiters));
  step->given = without_ranks(missing, missing_because);
  // Nothing is asked of what crossed while ranks are missing.
  if (first.run->elsewhere() && parts_.tell_nodes)
    step->part = std::make_shared<v1::NodePart>(part_without_calls(traces, missing, first.run->ranks));
  admit(step, std::move(waiters));
}

void StepPipeline::join(const std::shared_ptr<Step>& step, std::vector<std::shared_ptr<const Trace>> traces,
                        std::vector<Waiter> waiters) {
  const Trace& trace = *step->trace();
  const auto refuse = [&](Violation violation) {
    record_refusal(trace.identity, std::move(violation), told_by(step->assembled),
                   [this, step](const StepAnswer& answer) { finish(step, answer); });
  };
  {
    const std::lock_guard lock(mutex_);
    step->waiters = std::move(waiters);
    steps_[trace.identity.id()] = step;  // A rank that sends the step again meanwhile waits for the same answer.
  }
  // Tensors that ranks hold in parts are put together: however small the parts are, the whole is what its shape says.
  const std::uint64_t wholes = bytes_of_wholes(traces);
  MemoryBudget::Reservation memory(parts_.memory);
  if (wholes > options_.step_bytes_max || memory.take(wholes) != MemoryBudget::Answer::kGranted) {
    return refuse(exhausted("step", StrCat("the tensors that its ranks hold in parts take ", wholes,
                                           " bytes, more than --memory-limit leaves for one step")));
  }
  step->of_ranks.push_back(std::move(memory));

  auto joined = std::make_shared<Joined>();
  if (step->run->elsewhere() && parts_.tell_nodes) step->part = std::make_shared<v1::NodePart>();
  Workers::Task task;
  task.job = StrCat(trace.identity.project, "/", trace.identity.job);
  task.run = trace.identity.run_id();
  task.owner = step->run->owner;
  task.bytes = wholes;
  task.multiplications = static_cast<double>(wholes);  // Each byte is copied.
  task.compute = [joined, traces = std::move(traces), run = step->run, part = step->part, metrics = parts_.metrics] {
    const absl::Time begin = steady_now();
    *joined = join_ranks(traces, run->replicated, run->ranks);
    if (part != nullptr) *part = make_part(traces, run->ranks, run->replicated, *run->profile);
    if (metrics != nullptr) metrics->add_join(absl::ToDoubleSeconds(steady_now() - begin));
  };
  task.finish = [this, step, joined](const Workers::Ran& ran) {
    parts_.disk->post([this, step, joined, status = ran.status] { admit_joined(step, *joined, status); },
                      [this, step](const absl::Status& fault) { failed(step, fault); });
  };
  if (const auto ticket = parts_.workers->submit(std::move(task)); !ticket.ok()) {
    if (absl::IsUnavailable(ticket.status())) return drop(step, ticket.status());  // Draining.
    refuse({ticket.status().code(), "step", std::string(ticket.status().message())});
  }
}

void StepPipeline::admit_joined(const std::shared_ptr<Step>& step, const Joined& joined, const absl::Status& ran) {
  if (giving_up_) return drop(step, absl::UnavailableError("the daemon is stopping"));
  if (!ran.ok()) return failed(step, ran);
  std::vector<Waiter> waiters;
  {
    const std::lock_guard lock(mutex_);
    steps_.erase(step->trace()->identity.id());
    waiters.swap(step->waiters);
  }
  if (joined.trace != nullptr) {
    step->assembled.trace = joined.trace;
  } else {
    step->given = of_fault(joined);
  }
  admit(step, std::move(waiters));
}

}  // namespace plumbline
