// Steps of a run with several ranks: each waits until all ranks' traces of it are here, and they become one step.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/ingest/join.h"
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

// "job/run/rank/step" of one kind of key, apart from those of references.
std::string waiting_key(const std::string& id) { return StrCat("ranks of ", id); }

}  // namespace

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
    const int rank = trace.identity.rank;
    const std::string digest = rank < verdict->rank_digests_size() ? verdict->rank_digests(rank) : "";
    // Empty: the step was given up before this rank's trace came.
    if (!digest.empty() && digest != trace.digest) {
      refuse_other_digest(trace, digest, done);
      return true;
    }
    answer.verdict = *std::move(verdict);
  }
  done(answer);
  return true;
}

void StepPipeline::gather(std::shared_ptr<Step> step, Done done) {
  const Trace& trace = *step->trace();
  const std::int32_t rank = trace.identity.rank;
  const StepIdentity judged = step->run->judged(trace.identity.step);
  const std::string id = judged.id();
  {
    std::unique_lock lock(mutex_);
    if (const auto found = steps_.find(id); found != steps_.end()) {
      const std::string digest = found->second->trace()->rank_digests.at(static_cast<std::size_t>(rank));
      if (digest.empty() || digest == trace.digest) {
        found->second->done.push_back(std::move(done));
        return;
      }
      lock.unlock();
      return refuse_other_digest(trace, digest, std::move(done));
    }
  }
  if (answer_rank_from_store(*step, done)) return;
  if (trace.identity.step < step->run->last_step && !unstored_.holds(id)) {
    return record_refusal(trace.identity,
                          invalid("step_begin.step", StrCat("a step after ", step->run->last_step, ", the run's last"),
                                  trace.identity.step),
                          {trace.missed, trace.missed_reasons}, std::move(done));
  }
  step->run->last_step = std::max(step->run->last_step, trace.identity.step);

  RankGroup& group = groups_[id];
  const bool first = group.steps.empty();
  group.ranks = step->run->ranks;
  if (const auto known = group.steps.find(rank); known != group.steps.end()) {
    const std::string digest = known->second->trace()->digest;
    if (digest != trace.digest) return refuse_other_digest(trace, digest, std::move(done));
    known->second->done.push_back(std::move(done));
    return;
  }
  step->done.push_back(std::move(done));
  group.steps[rank] = std::move(step);
  const bool complete = group.steps.size() == static_cast<std::size_t>(group.ranks);
  give_up_passed(judged, rank);
  if (complete) {
    close_group(id, "");
    pairing_.arrived(waiting_key(id));
    return;
  }
  bool stopped = false;
  {
    const std::lock_guard lock(mutex_);
    stopped = stop_waiting_;
  }
  if (stopped) return close_group(id, "the daemon was stopped before it arrived");
  if (!first) return;
  pairing_.wait(waiting_key(id), steady_now() + options_.reference_timeout, [this, id](bool arrived) {
    if (arrived) return;
    parts_.disk->post([this, id] {
      close_group(id, StrCat("it did not arrive within ", absl::FormatDuration(options_.reference_timeout),
                             "; all ranks must stream to this daemon"));
    });
  });
  wake_.notify_all();
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
  std::vector<Done> waiting;
  auto unjoined = std::make_shared<Trace>();  // What is known of the step where it cannot be judged.
  unjoined->identity = first.run->judged(first.trace()->identity.step);
  unjoined->rank_digests.resize(static_cast<std::size_t>(group.ranks));
  for (std::int32_t rank = 0; rank < group.ranks; ++rank) {
    const auto member = group.steps.find(rank);
    if (member == group.steps.end()) {
      missing.push_back(rank);
      continue;
    }
    Step& part = *member->second;
    traces.push_back(part.trace());
    unjoined->rank_digests[static_cast<std::size_t>(rank)] = part.trace()->digest;
    unjoined->missed = std::max(unjoined->missed, part.trace()->missed);
    step->of_ranks.push_back(std::move(part.assembled.memory));
    waiting.insert(waiting.end(), std::make_move_iterator(part.done.begin()), std::make_move_iterator(part.done.end()));
  }
  if (!missing.empty()) {
    step->given = without_ranks(missing, missing_because);
  } else if (Joined joined = join_ranks(traces, step->run->replicated); joined.trace != nullptr) {
    step->assembled.trace = std::move(joined.trace);
  } else {
    step->given = of_fault(joined);
  }
  if (step->given) {
    unjoined->digest = first.trace()->digest;
    step->assembled.trace = std::move(unjoined);
  }
  admit(std::move(step), [waiting = std::move(waiting)](const StepAnswer& answer) {
    for (const Done& done : waiting) done(answer);
  });
}

}  // namespace plumbline
