#include "server/store/sql_store.h"

#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/store/commit_queue.h"
#include "server/store/listeners.h"
#include "server/store/queries.h"
#include "server/store/records.h"
#include "server/store/removal.h"

namespace plumbline {
namespace {

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class SqlStoreImpl final : public SqlStore {
 public:
  SqlStoreImpl(SqlParts parts, RecordWriter writer)
      : held_(std::move(parts.held)),
        connection_(std::move(parts.writer)),
        writer_(std::move(writer)),
        points_(std::move(parts.points)),
        queries_(std::move(parts.readers)),
        listeners_(std::move(parts.watch)),
        queue_(
            connection_.get(), kPendingMax, std::move(parts.lost), [this] { listeners_.notify(); },
            std::move(parts.trouble), std::move(parts.timed)) {}

  void open_run(const StepIdentity& run, const std::string& owner, const std::string& client, Done done) override {
    queue_.push([this, run, owner, client, time = now_us()](
                    absl::Status* answer) { return writer_.open_run(run, owner, client, time, time, answer); },
                std::move(done));
  }

  void append(const v1::Verdict& verdict, const Missed& missed, const std::string& memory, Done done) override {
    auto row = make_row(verdict);
    if (row.ok()) row->memory = memory;
    queue_.push([this, row = std::move(row), missed](
                    absl::Status* answer) { return row.ok() ? writer_.verdict(*row, missed, answer) : row.status(); },
                std::move(done));
  }

  void expire(const Retention& retention, std::int64_t now, Stop stop, Done done) override {
    in_steps([this, retention, now] { return expire_some(*connection_, retention, now); }, std::move(stop),
             std::move(done));
  }

  void remove_job(const std::string& project, const std::string& job, Stop stop, Done done) override {
    if (const auto known = queries_.job(project, job, {}, {}); !known.ok()) return done(known.status());
    in_steps([this, project, job] { return remove_some(*connection_, project, job); }, std::move(stop),
             std::move(done));
  }

  void append_error(const StepIdentity& step, const absl::Status& error, const Missed& missed,
                    const std::string& trace_id, Done done) override {
    queue_.push(
        [this, step, error, missed, trace_id, time = now_us()](absl::Status*) {
          if (error.ok()) return absl::InvalidArgumentError("error: expected a refusal, found OK");
          return writer_.error(step, "", error, missed, trace_id, time);
        },
        std::move(done));
  }

  absl::StatusOr<std::int64_t> last_durable_step(const StepIdentity& run) const override {
    return points_.last_durable_step(run);
  }
  absl::StatusOr<std::optional<std::string>> owner_of(const StepIdentity& run) const override {
    return points_.owner_of(run);
  }
  absl::StatusOr<bool> was_refused(const StepIdentity& step) const override { return points_.was_refused(step); }
  absl::StatusOr<std::string> memory_of(const StepIdentity& run) const override { return points_.memory_of(run); }
  absl::StatusOr<std::optional<std::string>> digest_of(const StepIdentity& step) const override {
    return points_.digest_of(step);
  }
  absl::StatusOr<v1::Verdict> get(const std::string& id) const override { return points_.get(id); }
  absl::StatusOr<std::vector<StoredVerdict>> list(const v1::Filter& filter, const Order& order, const ListPlace* after,
                                                  int limit, bool whole, const Visibility& seen,
                                                  const Stop& stop) const override {
    return queries_.list(filter, order, after, limit, whole, seen, stop);
  }
  absl::StatusOr<std::int64_t> last_sequence() const override { return queries_.last_sequence(); }
  absl::StatusOr<std::vector<v1::JobSummary>> jobs(const std::string& project, const std::string& after_project,
                                                   const std::string& after_job, int limit, const Visibility& seen,
                                                   const Stop& stop) const override {
    return queries_.jobs(project, after_project, after_job, limit, seen, stop);
  }
  absl::StatusOr<v1::JobSummary> job(const std::string& project, const std::string& job, const Visibility& seen,
                                     const Stop& stop) const override {
    return queries_.job(project, job, seen, stop);
  }
  absl::StatusOr<std::map<std::string, std::uint64_t>> verdicts_of_projects(const Stop& stop) const override {
    return queries_.verdicts_of_projects(stop);
  }

  absl::StatusOr<std::uint64_t> verdicts_of_job(const std::string& project, const std::string& job,
                                                const Stop& stop) const override {
    return queries_.verdicts_of_job(project, job, stop);
  }
  absl::StatusOr<std::vector<v1::RunSummary>> runs(const std::string& project, const std::string& job,
                                                   const std::string& after_run, std::int32_t after_rank, int limit,
                                                   const Visibility& seen, const Stop& stop) const override {
    return queries_.runs(project, job, after_run, after_rank, limit, seen, stop);
  }
  absl::StatusOr<std::vector<v1::RefusedStep>> errors(const std::string& project, const std::string& job,
                                                      const v1::RefusedStep& after, int limit, const Visibility& seen,
                                                      const Stop& stop) const override {
    return queries_.errors(project, job, after, limit, seen, stop);
  }
  absl::StatusOr<v1::Stats> stats(const v1::Filter& filter, const Visibility& seen, const Stop& stop) const override {
    return queries_.stats(filter, seen, stop);
  }

  const Queries& queries() const override { return queries_; }

  void change(Change change, Done done) override {
    queue_.push([this, change = std::move(change)](absl::Status*) { return change(*connection_); }, std::move(done));
  }

  bool takes_records() const override { return !queue_.failing(); }

  std::uint64_t subscribe(std::function<void()> listener) override { return listeners_.add(std::move(listener)); }
  void unsubscribe(std::uint64_t handle) override { listeners_.remove(handle); }

 private:
  // Commits `some` again and again, others in between, until it says that there is no more.
  void in_steps(std::function<absl::StatusOr<bool>()> some, Stop stop, Done done) {
    auto more = std::make_shared<bool>(false);
    queue_.push(
        [some, more](absl::Status*) {
          const auto left = some();
          *more = left.ok() && *left;
          return left.status();
        },
        [this, some, more, stop, done](const absl::Status& status) {
          if (!status.ok() || !*more) return done(status);
          if (stop && stop()) return done(absl::CancelledError("not everything was removed"));
          in_steps(some, stop, done);
        });
  }

  // In the order of construction; the last, first to go, uses all of the others.
  const std::shared_ptr<void> held_;
  const std::unique_ptr<SqlConnection> connection_;
  RecordWriter writer_;
  PointQueries points_;
  Queries queries_;
  Listeners listeners_;
  CommitQueue queue_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SqlStore>> make_sql_store(SqlParts parts) {
  auto writer = RecordWriter::prepare(parts.writer.get());
  if (!writer.ok()) return writer.status();
  return std::make_unique<SqlStoreImpl>(std::move(parts), *std::move(writer));
}

}  // namespace plumbline
