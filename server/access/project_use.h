// What each project takes at the moment, and each of its jobs, held against the project's quota. Thread-safe.
//
// The quota is asked for each time, so that a new one counts from then on: who is beyond it already goes on with what
// he has, and gets no more. A project or job is known while something of it is held.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/access/quota.h"

namespace plumbline {

class ProjectUse {
 public:
  // `quota` must not call back. `count` is called when a project or job with a quota of verdicts becomes known:
  // somebody has to count what is stored (count_verdicts) soon; until then it counts as nothing. It must not block.
  ProjectUse(std::function<Quota(const std::string& project)> quota, std::function<void()> count = nullptr);

  using Hold = std::shared_ptr<const void>;  // Gives back what it holds when the last copy goes.

  // RESOURCE_EXHAUSTED names the project or job, its limit and what there is; the kind of limit is in `*kind`.
  absl::StatusOr<Hold> add_stream(const std::string& project, const std::string& job, const char** kind);
  // A whole step, until it is answered.
  absl::StatusOr<Hold> add_step(const std::string& project, const std::string& job, const char** kind);

  // A verdict was stored.
  void add_verdict(const std::string& project, const std::string& job);
  // Known projects, and pairs of project and job, that have a quota of verdicts, and how many are stored of one of
  // them.
  std::vector<std::string> with_verdict_quota() const;
  std::vector<std::pair<std::string, std::string>> jobs_with_verdict_quota() const;
  void count_verdicts(const std::string& project, std::uint64_t stored);
  void count_verdicts(const std::string& project, const std::string& job, std::uint64_t stored);

  Quota quota(const std::string& project) const { return state_->quota(project); }

  struct Use {
    std::uint64_t streams = 0, steps = 0, verdicts = 0;
  };
  // All 0 of a project that is not known, whatever is stored of it.
  Use use(const std::string& project) const;
  std::map<std::string, Use> jobs(const std::string& project) const;  // Known ones, by name.

 private:
  struct Kind;
  struct Known {
    Use whole;
    std::map<std::string, Use> jobs;
  };
  // Holds outlive this.
  struct State {
    std::function<Quota(const std::string&)> quota;
    std::function<void()> count;
    mutable std::mutex mutex;
    std::map<std::string, Known> projects;
  };
  // With the lock held.
  absl::Status check(const std::string& project, const std::string& job, const Quota& quota, const Kind& limit,
                     const char** kind) const;
  Hold hold(const std::string& project, const std::string& job, std::uint64_t Use::*what);

  const std::shared_ptr<State> state_;
};

// Whose quota a status is of, as google.rpc.QuotaFailure has it: "project:llama", "job:llama/pretrain"; empty:
// nobody's.
std::string quota_subject(const absl::Status& status);
absl::Status of_quota(absl::Status status, const std::string& subject);

}  // namespace plumbline
