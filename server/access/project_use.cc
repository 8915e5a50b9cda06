#include "server/access/project_use.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

using absl::StrCat;

constexpr char kSubject[] = "plumbline.v1/quota_subject";

absl::Status beyond(const char* what, const std::string& name, const char* kind, std::uint64_t limit,
                    std::uint64_t there) {
  return of_quota(absl::ResourceExhaustedError(StrCat(what, " \"", name, "\": expected at most ", limit, " ", kind,
                                                      " (quotas of --policy), found ", there, " and one more")),
                  StrCat(what, ":", name));
}

}  // namespace

struct ProjectUse::Kind {
  const char *of_project, *of_job;  // Their names.
  std::uint64_t Quota::*of_project_max;
  std::uint64_t Quota::*of_job_max;
  std::uint64_t Use::*used;
};

std::string quota_subject(const absl::Status& status) {
  const auto subject = status.GetPayload(kSubject);
  return subject ? std::string(*subject) : std::string();
}

absl::Status of_quota(absl::Status status, const std::string& subject) {
  status.SetPayload(kSubject, absl::Cord(subject));
  return status;
}

ProjectUse::ProjectUse(std::function<Quota(const std::string&)> quota, std::function<void()> count)
    : state_(std::make_shared<State>()) {
  state_->quota = std::move(quota);
  state_->count = std::move(count);
}

absl::Status ProjectUse::check(const std::string& project, const std::string& job, const Quota& quota,
                               const Kind& limit, const char** kind) const {
  const auto known = state_->projects.find(project);
  if (known == state_->projects.end()) return absl::OkStatus();  // No limit is below 1.
  const std::uint64_t whole = known->second.whole.*limit.used, whole_max = quota.*limit.of_project_max;
  if (whole >= whole_max) return beyond("project", project, *kind = limit.of_project, whole_max, whole);
  const auto part = known->second.jobs.find(job);
  if (part == known->second.jobs.end()) return absl::OkStatus();
  const std::uint64_t there = part->second.*limit.used, there_max = quota.*limit.of_job_max;
  if (there < there_max) return absl::OkStatus();
  return beyond("job", StrCat(project, "/", job), *kind = limit.of_job, there_max, there);
}

ProjectUse::Hold ProjectUse::hold(const std::string& project, const std::string& job, std::uint64_t Use::*what) {
  Known& known = state_->projects[project];
  ++(known.whole.*what);
  ++(known.jobs[job].*what);
  // The state itself is what is pointed at: it lives as long as there are holds.
  return Hold(state_.get(), [state = state_, project, job, what](const void*) {
    const auto give_back = [what](Use& use) {
      --(use.*what);
      return use.streams == 0 && use.steps == 0;
    };
    const std::lock_guard lock(state->mutex);
    const auto found = state->projects.find(project);
    const auto part = found->second.jobs.find(job);
    if (give_back(part->second)) found->second.jobs.erase(part);
    if (give_back(found->second.whole)) state->projects.erase(found);
  });
}

absl::StatusOr<ProjectUse::Hold> ProjectUse::add_stream(const std::string& project, const std::string& job,
                                                        const char** kind) {
  static constexpr Kind kStreams{"streams", "job_streams", &Quota::streams, &Quota::job_streams, &Use::streams};
  const Quota quota = state_->quota(project);
  Hold held;
  bool uncounted = false;  // What is stored of it.
  {
    const std::lock_guard lock(state_->mutex);
    if (auto room = check(project, job, quota, kStreams, kind); !room.ok()) return room;
    const auto found = state_->projects.find(project);
    const bool fresh = found == state_->projects.end();
    uncounted = (fresh && quota.verdicts != Quota::kNone) ||
                ((fresh || !found->second.jobs.contains(job)) && quota.job_verdicts != Quota::kNone);
    held = hold(project, job, &Use::streams);
  }
  if (uncounted && state_->count) state_->count();
  return held;
}

absl::StatusOr<ProjectUse::Hold> ProjectUse::add_step(const std::string& project, const std::string& job,
                                                      const char** kind) {
  static constexpr Kind kVerdicts{"verdicts", "job_verdicts", &Quota::verdicts, &Quota::job_verdicts, &Use::verdicts},
      kSteps{"steps_queued", "job_steps_queued", &Quota::steps_queued, &Quota::job_steps_queued, &Use::steps};
  const Quota quota = state_->quota(project);
  const std::lock_guard lock(state_->mutex);
  if (auto room = check(project, job, quota, kVerdicts, kind); !room.ok()) return room;
  if (auto room = check(project, job, quota, kSteps, kind); !room.ok()) return room;
  return hold(project, job, &Use::steps);
}

ProjectUse::Use ProjectUse::use(const std::string& project) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->projects.find(project);
  return found == state_->projects.end() ? Use{} : found->second.whole;
}

std::map<std::string, ProjectUse::Use> ProjectUse::jobs(const std::string& project) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->projects.find(project);
  return found == state_->projects.end() ? std::map<std::string, Use>() : found->second.jobs;
}

void ProjectUse::add_verdict(const std::string& project, const std::string& job) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->projects.find(project);
  if (found == state_->projects.end()) return;
  ++found->second.whole.verdicts;
  if (const auto part = found->second.jobs.find(job); part != found->second.jobs.end()) ++part->second.verdicts;
}

std::vector<std::string> ProjectUse::with_verdict_quota() const {
  std::vector<std::string> known;
  {
    const std::lock_guard lock(state_->mutex);
    for (const auto& [project, use] : state_->projects) known.push_back(project);
  }
  std::erase_if(known, [&](const std::string& project) { return quota(project).verdicts == Quota::kNone; });
  return known;
}

std::vector<std::pair<std::string, std::string>> ProjectUse::jobs_with_verdict_quota() const {
  std::vector<std::pair<std::string, std::string>> known;
  {
    const std::lock_guard lock(state_->mutex);
    for (const auto& [project, use] : state_->projects) {
      for (const auto& [job, part] : use.jobs) known.emplace_back(project, job);
    }
  }
  std::erase_if(known, [&](const auto& each) { return quota(each.first).job_verdicts == Quota::kNone; });
  return known;
}

void ProjectUse::count_verdicts(const std::string& project, std::uint64_t stored) {
  const std::lock_guard lock(state_->mutex);
  if (const auto found = state_->projects.find(project); found != state_->projects.end()) {
    found->second.whole.verdicts = stored;
  }
}

void ProjectUse::count_verdicts(const std::string& project, const std::string& job, std::uint64_t stored) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->projects.find(project);
  if (found == state_->projects.end()) return;
  if (const auto part = found->second.jobs.find(job); part != found->second.jobs.end()) part->second.verdicts = stored;
}

}  // namespace plumbline
