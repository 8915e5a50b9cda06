// What the store answers, on connections that cannot write. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/store/cut.h"
#include "server/store/readers.h"
#include "server/store/sql.h"
#include "server/store/store.h"

namespace plumbline {

// What a step's admission asks: single rows by their keys, on a connection of their own, for which no query of an
// operator is waited for. Each method as VerdictStore documents it.
class PointQueries {
 public:
  explicit PointQueries(std::unique_ptr<SqlConnection> connection) : connection_(std::move(connection)) {}

  absl::StatusOr<std::optional<std::string>> owner_of(const StepIdentity& run) const;
  absl::StatusOr<std::int64_t> last_durable_step(const StepIdentity& run) const;
  absl::StatusOr<bool> was_refused(const StepIdentity& step) const;
  absl::StatusOr<std::optional<std::string>> digest_of(const StepIdentity& step) const;
  absl::StatusOr<std::string> memory_of(const StepIdentity& run) const;
  absl::StatusOr<v1::Verdict> get(const std::string& id) const;

 private:
  mutable std::mutex mutex_;
  const std::unique_ptr<SqlConnection> connection_;
};

// How many verdicts a job has, in some part of a history.
struct JobCounts {
  std::uint64_t type_i = 0, type_ii = 0, inconclusive = 0;
  std::int64_t last_us = 0;   // The time of the last.
  std::string first_type_ii;  // Its verdict's id; empty: none.
};

// What operators ask: several at a time. `node`: of a shared history, whose daemon's cuts they are.
class Queries {
 public:
  explicit Queries(std::vector<std::unique_ptr<SqlConnection>> connections, std::string node = "")
      : node_(std::move(node)), readers_(std::move(connections)) {}

  absl::StatusOr<std::vector<StoredVerdict>> list(const v1::Filter& filter, const Order& order, const ListPlace* after,
                                                  int limit, bool whole, const Visibility& seen,
                                                  const Stop& stop) const;
  // The whole verdict. NOT_FOUND, also for one that may not be seen.
  absl::StatusOr<v1::Verdict> find(const std::string& id, const Visibility& seen, const Stop& stop) const;
  absl::StatusOr<std::int64_t> last_sequence() const;
  absl::StatusOr<std::string> identity() const;  // The data directory's; of a daemon's own history alone.
  absl::StatusOr<std::vector<v1::RunSummary>> runs(const std::string& project, const std::string& job,
                                                   const std::string& after_run, std::int32_t after_rank, int limit,
                                                   const Visibility& seen, const Stop& stop) const;
  absl::StatusOr<std::vector<v1::RefusedStep>> errors(const std::string& project, const std::string& job,
                                                      const v1::RefusedStep& after, int limit, const Visibility& seen,
                                                      const Stop& stop) const;
  absl::StatusOr<std::map<std::string, std::uint64_t>> verdicts_of_projects(const Stop& stop) const;
  absl::StatusOr<std::uint64_t> verdicts_of_job(const std::string& project, const std::string& job,
                                                const Stop& stop) const;

  // `cut`: that of the same snapshot, of a shared history; null: it is not asked. What is not a part of the verdicts
  // (`seen.part`) counts in no job's verdicts; errors and gaps do.
  absl::StatusOr<std::vector<v1::JobSummary>> jobs(const std::string& project, const std::string& after_project,
                                                   const std::string& after_job, int limit, const Visibility& seen,
                                                   const Stop& stop, Cut* cut = nullptr) const;
  absl::StatusOr<v1::JobSummary> job(const std::string& project, const std::string& job, const Visibility& seen,
                                     const Stop& stop, Cut* cut = nullptr) const;
  absl::StatusOr<v1::Stats> stats(const v1::Filter& filter, const Visibility& seen, const Stop& stop,
                                  Cut* cut = nullptr) const;
  absl::StatusOr<Cut> cut(const Stop& stop) const;

  // "margin" or "surprise" of the verdicts that match and have one, in ascending order: `count` of them after the first
  // `from`.
  absl::StatusOr<std::vector<double>> values(const char* column, const v1::Filter& filter, std::int64_t from,
                                             std::int64_t count, const Visibility& seen, const Stop& stop) const;
  // Of the part of the verdicts that is seen, by project and job.
  absl::StatusOr<std::map<std::pair<std::string, std::string>, JobCounts>> counts(const v1::Filter& filter,
                                                                                  const Visibility& seen,
                                                                                  const Stop& stop) const;
  absl::StatusOr<bool> holds(const StepIdentity& step, const Stop& stop) const;  // A verdict of that step.

 private:
  absl::Status look(const SqlConnection& connection, Cut* cut) const;

  const std::string node_;
  mutable Readers readers_;
};

}  // namespace plumbline
