// What a daemon answers for all that share its history: what is in the shared one, and of its own what is not there yet
// (cut.h), each verdict once. Where none is shared, or it is away, the daemon's own; history() says which it was.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "server/store/shared_reader.h"
#include "server/store/sql_store.h"

namespace plumbline {

// One question's: once the shared history did not answer, the rest of the question is answered without it. Not
// thread-safe.
class FleetReader final : public VerdictReader {
 public:
  using Clock = std::chrono::steady_clock;

  // Both must outlive the reader; `shared` may be null. `patience`: until when the shared history is waited for.
  FleetReader(const SqlStore* own, SharedReader* shared, Clock::time_point patience = Clock::time_point::max());

  using VerdictReader::job;
  using VerdictReader::jobs;
  using VerdictReader::list;
  using VerdictReader::stats;

  // A list stays with the histories of its first page: UNAVAILABLE where the shared one is away since, ABORTED where it
  // was made anew. In the order of commits what is shared comes first.
  absl::StatusOr<std::vector<StoredVerdict>> list(const v1::Filter& filter, const Order& order, const ListPlace* after,
                                                  int limit, bool whole, const Visibility& seen,
                                                  const Stop& stop) const override;
  // The whole verdict. NOT_FOUND, also for one that may not be seen.
  absl::StatusOr<v1::Verdict> find(const std::string& id, const Visibility& seen, const Stop& stop) const;
  // Refused steps and gaps that are not shipped yet are not counted yet.
  absl::StatusOr<std::vector<v1::JobSummary>> jobs(const std::string& project, const std::string& after_project,
                                                   const std::string& after_job, int limit, const Visibility& seen,
                                                   const Stop& stop) const override;
  absl::StatusOr<v1::JobSummary> job(const std::string& project, const std::string& job, const Visibility& seen,
                                     const Stop& stop) const override;
  absl::StatusOr<std::vector<v1::RunSummary>> runs(const std::string& project, const std::string& job,
                                                   const std::string& after_run, std::int32_t after_rank, int limit,
                                                   const Visibility& seen, const Stop& stop) const override;
  absl::StatusOr<std::vector<v1::RefusedStep>> errors(const std::string& project, const std::string& job,
                                                      const v1::RefusedStep& after, int limit, const Visibility& seen,
                                                      const Stop& stop) const override;
  absl::StatusOr<v1::Stats> stats(const v1::Filter& filter, const Visibility& seen, const Stop& stop) const override;

  v1::History history() const;

  static constexpr std::int64_t kMedianMax = 1'000'000;  // Verdicts not shipped yet of which a median is made.

 private:
  struct Sides {  // What may be seen there and here, of a cut.
    Visibility there, here;
  };
  bool asks() const { return shared_ != nullptr && state_.ok(); }
  // Whether a status of the shared history tells that it cannot be asked; notes that.
  bool lost(const absl::Status& status, const Stop& stop) const;
  Stop patient(const Stop& stop) const;
  Sides sides(const Visibility& seen, const Cut& cut) const;
  absl::StatusOr<bool> anything_after(const Cut& cut) const;

  absl::StatusOr<std::vector<StoredVerdict>> list_both(const v1::Filter& filter, const Order& order,
                                                       const ListPlace* after, int limit, bool whole,
                                                       const Visibility& seen, const Stop& stop) const;
  absl::StatusOr<std::vector<v1::JobSummary>> jobs_both(const std::string& project,
                                                        std::pair<std::string, std::string> after, int limit,
                                                        const Visibility& seen, const Stop& stop) const;
  absl::StatusOr<v1::JobSummary> job_both(const std::string& project, const std::string& job, const Visibility& seen,
                                          const Stop& stop) const;
  absl::StatusOr<v1::Stats> stats_both(const v1::Filter& filter, const Visibility& seen, const Stop& stop) const;

  const SqlStore* const own_;
  SharedReader* const shared_;
  const Clock::time_point patience_;
  mutable absl::Status state_;  // Why the shared history is not asked.
};

}  // namespace plumbline
