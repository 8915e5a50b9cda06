#include "server/access/project_use.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

using absl::StrCat;

constexpr char kSubject[] = "plumbline.v1/quota_subject";

absl::Status beyond(const std::string& project, const char* kind, std::uint64_t limit, std::uint64_t there) {
  return of_quota(absl::ResourceExhaustedError(StrCat("project \"", project, "\": expected at most ", limit, " ", kind,
                                                      " (quotas of --policy), found ", there, " and one more")),
                  project);
}

}  // namespace

std::string quota_subject(const absl::Status& status) {
  const auto subject = status.GetPayload(kSubject);
  return subject ? std::string(*subject) : std::string();
}

absl::Status of_quota(absl::Status status, const std::string& project) {
  status.SetPayload(kSubject, absl::Cord(StrCat("project:", project)));
  return status;
}

ProjectUse::ProjectUse(std::function<Quota(const std::string&)> quota, std::function<void()> count)
    : state_(std::make_shared<State>()) {
  state_->quota = std::move(quota);
  state_->count = std::move(count);
}

ProjectUse::Hold ProjectUse::hold(const std::string& project, std::uint64_t Use::*what) {
  ++(state_->projects[project].*what);
  // The state itself is what is pointed at: it lives as long as there are holds.
  return Hold(state_.get(), [state = state_, project, what](const void*) {
    const std::lock_guard lock(state->mutex);
    const auto found = state->projects.find(project);
    --(found->second.*what);
    if (found->second.streams == 0 && found->second.steps == 0) state->projects.erase(found);
  });
}

absl::StatusOr<ProjectUse::Hold> ProjectUse::add_stream(const std::string& project, const char** kind) {
  const Quota quota = state_->quota(project);
  Hold held;
  bool fresh = false;
  {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->projects.find(project);
    fresh = found == state_->projects.end();
    const std::uint64_t streams = fresh ? 0 : found->second.streams;
    if (streams >= quota.streams) return beyond(project, *kind = "streams", quota.streams, streams);
    held = hold(project, &Use::streams);
  }
  if (fresh && quota.verdicts != Quota::kNone && state_->count) state_->count();
  return held;
}

absl::StatusOr<ProjectUse::Hold> ProjectUse::add_step(const std::string& project, const char** kind) {
  const Quota quota = state_->quota(project);
  const std::lock_guard lock(state_->mutex);
  const Use use = state_->projects[project];
  if (use.verdicts >= quota.verdicts) return beyond(project, *kind = "verdicts", quota.verdicts, use.verdicts);
  if (use.steps >= quota.steps_queued) return beyond(project, *kind = "steps_queued", quota.steps_queued, use.steps);
  return hold(project, &Use::steps);
}

ProjectUse::Use ProjectUse::use(const std::string& project) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->projects.find(project);
  return found == state_->projects.end() ? Use{} : found->second;
}

void ProjectUse::add_verdict(const std::string& project) {
  const std::lock_guard lock(state_->mutex);
  if (const auto found = state_->projects.find(project); found != state_->projects.end()) ++found->second.verdicts;
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

void ProjectUse::count_verdicts(const std::string& project, std::uint64_t stored) {
  const std::lock_guard lock(state_->mutex);
  if (const auto found = state_->projects.find(project); found != state_->projects.end()) {
    found->second.verdicts = stored;
  }
}

}  // namespace plumbline
