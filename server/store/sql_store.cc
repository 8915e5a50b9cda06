#include "server/store/sql_store.h"

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/store/commit_queue.h"
#include "server/store/encode.h"
#include "server/store/queries.h"
#include "server/store/removal.h"

namespace plumbline {
namespace {

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// The statements of the writer thread.
struct Statements {
  SqlStatement touch_run, open_run, owner, digest, insert_verdict, clear_error, insert_error, insert_gap, remember;

  absl::Status prepare(const SqlConnection& connection) {
    const std::pair<SqlStatement*, const char*> all[] = {
        {&touch_run,
         "INSERT INTO runs(project, job, run, rank, first_seen_us, last_seen_us, owner) VALUES(?,?,?,?,?,?,?) "
         "ON CONFLICT(project, job, run, rank) DO UPDATE SET "
         "first_seen_us=CASE WHEN excluded.first_seen_us<runs.first_seen_us THEN excluded.first_seen_us "
         "ELSE runs.first_seen_us END,"
         "last_seen_us=CASE WHEN excluded.last_seen_us>runs.last_seen_us THEN excluded.last_seen_us "
         "ELSE runs.last_seen_us END"},
        {&open_run, "UPDATE runs SET client=? WHERE project=? AND job=? AND run=? AND rank=?"},
        {&remember,
         "INSERT INTO memories VALUES(?,?,?,?,?) "
         "ON CONFLICT(project, job, run, rank) DO UPDATE SET memory=excluded.memory"},
        {&owner, "SELECT owner FROM runs WHERE project=? AND job=? AND run=? LIMIT 1"},
        {&insert_verdict,
         "INSERT INTO verdicts(project, job, run, rank, step, outcome, grade, cause, margin, digest, time_us,"
         "audit_seconds, operations, opaque, summary, detail, surprise, trace_id) "
         "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,NULLIF(CAST(? AS TEXT), ''))"},
        {&clear_error, "DELETE FROM errors WHERE project=? AND job=? AND run=? AND rank=? AND step=? AND digest=''"},
        {&insert_error,
         "INSERT INTO errors(project, job, run, rank, step, digest, code, message, time_us, trace_id) "
         "VALUES(?,?,?,?,?,?,?,?,?,?) "
         "ON CONFLICT(project, job, run, rank, step, digest) DO UPDATE SET code=excluded.code, "
         "message=excluded.message,"
         "time_us=excluded.time_us, trace_id=excluded.trace_id"},
        {&insert_gap,
         "INSERT INTO gaps VALUES(?,?,?,?,?,?,?) "
         "ON CONFLICT(project, job, run, rank, step) DO UPDATE SET missed=excluded.missed, reasons=excluded.reasons "
         "WHERE excluded.missed > gaps.missed"},
    };
    for (const auto& [statement, sql] : all) {
      auto prepared = connection.prepare(sql);
      if (!prepared.ok()) return prepared.status();
      *statement = std::move(*prepared);
    }
    auto known = connection.prepare(absl::StrCat("SELECT digest FROM ", connection.steps(),
                                                 " WHERE project=? AND job=? AND run=? AND rank=? AND step=?"));
    if (!known.ok()) return known.status();
    digest = *std::move(known);
    return absl::OkStatus();
  }
};

SqlStatement& bind_step(SqlStatement& statement, const StepIdentity& step) {
  return statement.bind(step.project).bind(step.job).bind(step.run).bind(step.rank).bind(step.step);
}

// A verdict cut in two for the row, and what the row says beside it.
struct VerdictRow {
  StepIdentity step;
  v1::Verdict keys;  // Without texts, taps and contributors.
  std::int64_t time_us = 0;
  std::string summary, detail, memory;
};

absl::StatusOr<VerdictRow> make_row(const v1::Verdict& verdict) {
  VerdictRow row;
  row.step = {verdict.project(), verdict.job(), verdict.run(), verdict.rank(), verdict.step()};
  StepIdentity parsed;
  if (!parse_id(verdict.id(), &parsed) || parsed != row.step) {
    return absl::InvalidArgumentError(
        absl::StrCat("id: expected \"", row.step.id(), "\", found \"", verdict.id(), "\""));
  }
  if (!verdict.has_time()) return absl::InvalidArgumentError("time: expected the time of the verdict, found none");
  if (verdict.digest().empty()) return absl::InvalidArgumentError("digest: expected the trace's digest, found none");
  row.time_us = verdict.time().seconds() * 1'000'000 + verdict.time().nanos() / 1000;

  v1::Verdict summary = verdict;
  v1::Verdict detail;
  detail.mutable_taps()->Swap(summary.mutable_taps());
  detail.mutable_contributors()->Swap(summary.mutable_contributors());
  if (summary.coverage().partial()) {  // Its halves become one message when they are parsed together.
    v1::Coverage* rest = detail.mutable_coverage();
    rest->mutable_audited_modules()->Swap(summary.mutable_coverage()->mutable_audited_modules());
    rest->mutable_left_out()->Swap(summary.mutable_coverage()->mutable_left_out());
  }
  if (!summary.SerializeToString(&row.summary) || !detail.SerializeToString(&row.detail)) {
    return absl::InvalidArgumentError("the verdict cannot be serialized");
  }
  row.keys.set_verdict(verdict.verdict());
  row.keys.set_grade(verdict.grade());
  row.keys.set_cause(verdict.cause());
  row.keys.set_margin(verdict.margin());
  if (verdict.has_surprise()) row.keys.set_surprise(verdict.surprise());
  row.keys.set_digest(verdict.digest());
  row.keys.set_trace_id(verdict.trace_id());
  row.keys.set_audit_seconds(verdict.audit_seconds());
  row.keys.mutable_coverage()->set_operations(verdict.coverage().operations());
  row.keys.mutable_coverage()->set_opaque(verdict.coverage().opaque());
  return row;
}

class SqlStore final : public VerdictStore {
 public:
  SqlStore(SqlParts parts, Statements statements)
      : held_(std::move(parts.held)),
        connection_(std::move(parts.writer)),
        statements_(std::move(statements)),
        points_(std::move(parts.points)),
        queries_(std::move(parts.readers)),
        watch_(std::move(parts.watch)),
        queue_(
            connection_.get(), kPendingMax, std::move(parts.lost), [this] { notify(); }, std::move(parts.trouble),
            std::move(parts.timed)) {}

  void open_run(const StepIdentity& run, const std::string& owner, const std::string& client, Done done) override {
    queue_.push([this, run, owner, client,
                 time = now_us()](absl::Status* answer) { return write_open_run(run, owner, client, time, answer); },
                std::move(done));
  }

  void append(const v1::Verdict& verdict, const Missed& missed, const std::string& memory, Done done) override {
    auto row = make_row(verdict);
    if (row.ok()) row->memory = memory;
    queue_.push([this, row = std::move(row), missed](
                    absl::Status* answer) { return row.ok() ? write_verdict(*row, missed, answer) : row.status(); },
                std::move(done));
  }

  void expire(const Retention& retention, std::int64_t now, Stop stop, Done done) override {
    in_steps([this, retention, now] { return expire_some(*connection_, retention, now); }, std::move(stop),
             std::move(done));
  }

  void remove_job(const std::string& project, const std::string& job, Stop stop, Done done) override {
    if (const auto known = queries_.job(project, job, {}); !known.ok()) return done(known.status());
    in_steps([this, project, job] { return remove_some(*connection_, project, job); }, std::move(stop),
             std::move(done));
  }

  void append_error(const StepIdentity& step, const absl::Status& error, const Missed& missed,
                    const std::string& trace_id, Done done) override {
    queue_.push(
        [this, step, error, missed, trace_id, time = now_us()](absl::Status*) {
          if (error.ok()) return absl::InvalidArgumentError("error: expected a refusal, found OK");
          if (auto status = touch_run(step, time); !status.ok()) return status;
          if (auto status = write_gap(step, missed); !status.ok()) return status;
          return write_error(step, "", error, trace_id, time);
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
  absl::StatusOr<v1::JobSummary> job(const std::string& project, const std::string& job,
                                     const Visibility& seen) const override {
    return queries_.job(project, job, seen);
  }
  absl::StatusOr<std::map<std::string, std::uint64_t>> verdicts_of_projects(const Stop& stop) const override {
    return queries_.verdicts_of_projects(stop);
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

  bool takes_records() const override { return !queue_.failing(); }

  std::uint64_t subscribe(std::function<void()> listener) override {
    std::uint64_t handle = 0;
    {
      const std::lock_guard lock(listeners_mutex_);
      handle = ++last_handle_;
      listeners_.emplace(handle, std::move(listener));
    }
    const std::lock_guard lock(watch_mutex_);
    if (watch_ && !watching_) watching_ = watch_([this] { notify(); });
    return handle;
  }

  void unsubscribe(std::uint64_t handle) override {
    std::lock_guard lock(listeners_mutex_);  // Held while listeners run.
    listeners_.erase(handle);
  }

 private:
  void notify() {
    std::lock_guard lock(listeners_mutex_);
    for (const auto& [handle, listener] : listeners_) listener();
  }

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

  // The rest runs on the writer thread.

  // `owner` is that of a new row alone.
  absl::Status touch_run(const StepIdentity& run, std::int64_t time_us, const std::string& owner = "") {
    statements_.touch_run.bind(run.project).bind(run.job).bind(run.run).bind(run.rank).bind(time_us).bind(time_us);
    return statements_.touch_run.bind(owner).run();
  }

  absl::Status write_open_run(const StepIdentity& run, const std::string& owner, const std::string& client,
                              std::int64_t time_us, absl::Status* answer) {
    std::optional<std::string> first;
    {
      const SqlReset reset(statements_.owner);
      statements_.owner.bind(run.project).bind(run.job).bind(run.run);
      auto found = statements_.owner.step();
      if (!found.ok()) return found.status();
      if (*found) first = statements_.owner.text(0);
    }
    if (first && *first != owner) {
      *answer = absl::PermissionDeniedError(absl::StrCat("run \"", run.run, "\" was opened by another user"));
      return absl::OkStatus();
    }
    if (auto status = touch_run(run, time_us, owner); !status.ok()) return status;
    statements_.open_run.bind(storable(client)).bind(run.project).bind(run.job).bind(run.run).bind(run.rank);
    return statements_.open_run.run();
  }

  absl::Status write_gap(const StepIdentity& step, const Missed& missed) {
    if (missed.steps <= 0) return absl::OkStatus();
    bind_step(statements_.insert_gap, step).bind(missed.steps).bind(storable(absl::StrJoin(missed.reasons, "\n")));
    return statements_.insert_gap.run();
  }

  absl::Status write_error(const StepIdentity& step, std::string_view digest, const absl::Status& error,
                           const std::string& trace_id, std::int64_t time_us) {
    bind_step(statements_.insert_error, step)
        .bind(digest)
        .bind(static_cast<int>(error.code()))
        .bind(storable(std::string(error.message())))
        .bind(time_us)
        .bind(trace_id);
    return statements_.insert_error.run();
  }

  absl::Status write_verdict(const VerdictRow& row, const Missed& missed, absl::Status* answer) {
    if (auto status = touch_run(row.step, row.time_us); !status.ok()) return status;
    if (auto status = write_gap(row.step, missed); !status.ok()) return status;

    std::optional<std::string> digest;
    {
      const SqlReset reset(statements_.digest);
      auto found = bind_step(statements_.digest, row.step).step();
      if (!found.ok()) return found.status();
      if (*found) digest = statements_.digest.text(0);
    }
    if (digest == row.keys.digest()) return absl::OkStatus();
    if (digest) {
      *answer = absl::AlreadyExistsError(absl::StrCat("step ", row.step.id(), " has a verdict of digest ", *digest,
                                                      "; this one is of digest ", row.keys.digest()));
      return write_error(row.step, row.keys.digest(), *answer, row.keys.trace_id(), row.time_us);
    }
    bind_step(statements_.clear_error, row.step);
    if (auto status = statements_.clear_error.run(); !status.ok()) return status;
    if (auto status = connection_->make_room(row.time_us); !status.ok()) return status;
    bind_step(statements_.insert_verdict, row.step)
        .bind(static_cast<int>(row.keys.verdict()))
        .bind(static_cast<int>(row.keys.grade()))
        .bind(static_cast<int>(row.keys.cause()))
        .bind(row.keys.margin())
        .bind(row.keys.digest())
        .bind(row.time_us)
        .bind(row.keys.audit_seconds())
        .bind(static_cast<std::int64_t>(row.keys.coverage().operations()))
        .bind(static_cast<std::int64_t>(row.keys.coverage().opaque()))
        .bind_blob(row.summary)
        .bind_blob(row.detail)
        .bind(row.keys.has_surprise() ? row.keys.surprise() : kNotAsked)
        .bind(row.keys.trace_id());
    if (auto status = statements_.insert_verdict.run(); !status.ok() || row.memory.empty()) return status;
    statements_.remember.bind(row.step.project).bind(row.step.job).bind(row.step.run).bind(row.step.rank);
    statements_.remember.bind_blob(row.memory);
    return statements_.remember.run();
  }

  // In the order of construction; the last two, first to go, use all of the others.
  const std::shared_ptr<void> held_;
  const std::unique_ptr<SqlConnection> connection_;
  Statements statements_;
  PointQueries points_;
  Queries queries_;
  std::mutex listeners_mutex_;
  std::map<std::uint64_t, std::function<void()>> listeners_;
  std::uint64_t last_handle_ = 0;
  std::mutex watch_mutex_;
  const std::function<std::shared_ptr<void>(std::function<void()>)> watch_;
  CommitQueue queue_;
  std::shared_ptr<void> watching_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<VerdictStore>> make_sql_store(SqlParts parts) {
  Statements statements;
  if (auto prepared = statements.prepare(*parts.writer); !prepared.ok()) return prepared;
  return std::make_unique<SqlStore>(std::move(parts), std::move(statements));
}

}  // namespace plumbline
