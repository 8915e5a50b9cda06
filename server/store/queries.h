// What the store answers, on one connection that cannot write. Thread-safe: one query at a time.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/store/sqlite.h"
#include "server/store/store.h"

namespace plumbline {

// Each method as VerdictStore documents it.
class Queries {
 public:
  explicit Queries(SqliteConnection connection) : connection_(std::move(connection)) {}

  absl::StatusOr<std::int64_t> last_durable_step(const StepIdentity& run) const;
  absl::StatusOr<std::optional<std::string>> digest_of(const StepIdentity& step) const;
  absl::StatusOr<v1::Verdict> get(const std::string& id) const;
  absl::StatusOr<std::vector<StoredVerdict>> list(const v1::Filter& filter, std::int64_t after_sequence, int limit,
                                                  bool whole) const;
  absl::StatusOr<std::int64_t> last_sequence() const;
  absl::StatusOr<std::vector<v1::JobSummary>> jobs(const std::string& project, const std::string& after_project,
                                                   const std::string& after_job, int limit) const;
  absl::StatusOr<v1::JobSummary> job(const std::string& project, const std::string& job) const;
  absl::StatusOr<v1::Stats> stats(const v1::Filter& filter) const;

 private:
  // With the mutex held and a read transaction open.
  absl::Status summarize(v1::JobSummary* summary) const;

  mutable std::mutex mutex_;
  SqliteConnection connection_;
};

}  // namespace plumbline
