#include "server/metrics/job_series.h"

#include <algorithm>

namespace plumbline {
namespace {

const std::pair<std::string, std::string> kOther = {"other", "other"};

const char* name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kTypeI:
      return "TYPE_I";
    case Outcome::kTypeII:
      return "TYPE_II";
    case Outcome::kInconclusive:
      return "INCONCLUSIVE";
    case Outcome::kUnspecified:
      break;
  }
  return "OUTCOME_UNSPECIFIED";
}

const char* name_of(Grade grade) {
  switch (grade) {
    case Grade::kMatch:
      return "MATCH";
    case Grade::kProven:
      return "PROVEN";
    case Grade::kExplained:
      return "EXPLAINED";
    case Grade::kFirstOrder:
      return "FIRST_ORDER";
    case Grade::kStatistical:
      return "STATISTICAL";
    case Grade::kUnspecified:
      break;
  }
  return "GRADE_UNSPECIFIED";
}

const char* name_of(StepOutcome outcome) {
  switch (outcome) {
    case StepOutcome::kAudited:
      return "audited";
    case StepOutcome::kRefused:
      return "refused";
    case StepOutcome::kMissed:
      return "missed";
  }
  return "other";
}

// An inconclusive verdict has no grade; any other has one, and what is equal bit by bit is no TYPE_II.
bool may_be(Outcome outcome, Grade grade) {
  if ((outcome == Outcome::kInconclusive) != (grade == Grade::kUnspecified)) return false;
  return outcome != Outcome::kTypeII || grade != Grade::kMatch;
}

prometheus::Labels labels_of(const std::pair<std::string, std::string>& name) {
  return {{"project", name.first}, {"job", name.second}};
}

}  // namespace

JobSeries::JobSeries(prometheus::Registry* registry, std::size_t most)
    : most_(most),
      verdicts_(prometheus::BuildCounter()
                    .Name("plumbline_verdicts_total")
                    .Help("Verdicts, by job, verdict and grade.")
                    .Register(*registry)),
      steps_(
          prometheus::BuildCounter()
              .Name("plumbline_steps_total")
              .Help("Sampled steps, by job and outcome: audited, refused (an error), missed (dropped by the client).")
              .Register(*registry)),
      last_type_ii_(prometheus::BuildGauge()
                        .Name("plumbline_last_type_ii_timestamp_seconds")
                        .Help("When the last TYPE_II verdict was given, in Unix time, by job; 0: never.")
                        .Register(*registry)) {}

void JobSeries::open(const std::string& project, const std::string& job, absl::Time now) {
  const std::lock_guard lock(mutex_);
  of(project, job, now);
}

void JobSeries::add_verdict(const Verdict& verdict, absl::Time now) {
  const std::lock_guard lock(mutex_);
  const StepIdentity& step = verdict.identity;
  Series& series = of(step.project, step.job, now);
  const auto [found, fresh] = series.verdicts.try_emplace({verdict.outcome, verdict.grade});
  if (fresh) found->second = verdicts_of(series.name, verdict.outcome, verdict.grade);
  found->second->Increment();
  series.steps.at(StepOutcome::kAudited)->Increment();
  if (verdict.outcome == Outcome::kTypeII) series.last_type_ii->Set(static_cast<double>(verdict.time_unix_us) * 1e-6);
}

void JobSeries::add_steps(const std::string& project, const std::string& job, StepOutcome outcome, std::int64_t steps,
                          absl::Time now) {
  const std::lock_guard lock(mutex_);
  of(project, job, now).steps.at(outcome)->Increment(static_cast<double>(std::max<std::int64_t>(steps, 0)));
}

void JobSeries::expire(absl::Time now) {
  const std::lock_guard lock(mutex_);
  std::erase_if(all_, [&](const auto& each) {
    const bool ended = now - each.second.active > kEnded && each.first != kOther;
    if (ended) remove(each.second);
    return ended;
  });
}

JobSeries::Series& JobSeries::of(const std::string& project, const std::string& job, absl::Time now) {
  Name name{project, job};
  if (!all_.contains(name) && !make_room(now)) name = kOther;
  const auto [found, fresh] = all_.try_emplace(name);
  if (fresh) found->second = begin(name, now);
  found->second.active = now;
  return found->second;
}

// Whether there may be one more.
bool JobSeries::make_room(absl::Time now) {
  if (all_.size() - all_.count(kOther) < most_) return true;
  auto longest = all_.end();
  for (auto each = all_.begin(); each != all_.end(); ++each) {
    if (each->first != kOther && (longest == all_.end() || each->second.active < longest->second.active))
      longest = each;
  }
  if (longest == all_.end() || now - longest->second.active < kQuiet) return false;
  remove(longest->second);
  all_.erase(longest);
  return true;
}

// They begin at 0, before anything is counted, so that a rate misses nothing.
JobSeries::Series JobSeries::begin(const Name& name, absl::Time now) {
  Series series;
  series.active = now;
  series.name = name;
  series.last_type_ii = &last_type_ii_.Add(labels_of(name));
  for (const Outcome outcome : {Outcome::kTypeI, Outcome::kTypeII, Outcome::kInconclusive}) {
    for (const Grade grade : {Grade::kUnspecified, Grade::kMatch, Grade::kProven, Grade::kExplained, Grade::kFirstOrder,
                              Grade::kStatistical}) {
      if (may_be(outcome, grade)) series.verdicts[{outcome, grade}] = verdicts_of(name, outcome, grade);
    }
  }
  for (const StepOutcome outcome : {StepOutcome::kAudited, StepOutcome::kRefused, StepOutcome::kMissed}) {
    prometheus::Labels labels = labels_of(name);
    labels["outcome"] = name_of(outcome);
    series.steps[outcome] = &steps_.Add(labels);
  }
  return series;
}

prometheus::Counter* JobSeries::verdicts_of(const Name& name, Outcome outcome, Grade grade) {
  prometheus::Labels labels = labels_of(name);
  labels["verdict"] = name_of(outcome);
  labels["grade"] = name_of(grade);
  return &verdicts_.Add(labels);
}

void JobSeries::remove(const Series& series) {
  last_type_ii_.Remove(series.last_type_ii);
  for (const auto& [kind, counter] : series.verdicts) verdicts_.Remove(counter);
  for (const auto& [outcome, counter] : series.steps) steps_.Remove(counter);
}

}  // namespace plumbline
