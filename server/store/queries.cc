#include "server/store/queries.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/judge/verdict.h"
#include "server/store/encode.h"
#include "server/store/filter.h"
#include "server/store/run_coverage.h"

namespace plumbline {
namespace {

void set_time(std::int64_t time_us, google::protobuf::Timestamp* time) {
  time->set_seconds(time_us / 1'000'000);
  time->set_nanos(static_cast<std::int32_t>(time_us % 1'000'000) * 1000);
}

// Everything of a query, one row after the other, until `each` says that it has enough.
template <typename Each>
absl::Status rows(SqlStatement& statement, const Each& each) {
  for (;;) {
    auto row = statement.step();
    if (!row.ok()) return row.status();
    if (!*row) return absl::OkStatus();
    if (!each(statement)) return absl::OkStatus();
  }
}

// Several statements that see the same commits.
class ReadTransaction {
 public:
  explicit ReadTransaction(const SqlConnection& connection)
      : connection_(connection), begun_(connection.begin_read()) {}
  ~ReadTransaction() {
    if (begun_.ok()) connection_.commit().IgnoreError();  // Nothing was written.
  }
  const absl::Status& status() const { return begun_; }

 private:
  const SqlConnection& connection_;
  const absl::Status begun_;
};

}  // namespace

absl::StatusOr<std::vector<StoredVerdict>> Queries::list(const v1::Filter& filter, const Order& order,
                                                         const ListPlace* after, int limit, bool whole,
                                                         const Visibility& seen, const Stop& stop) const {
  Where where(filter, seen);
  if (after != nullptr) where.add_after(order, *after);
  const auto connection = readers_.take(stop);
  auto statement = connection->prepare(absl::StrCat(
      "SELECT sequence, ", order_key(order), ", summary, ", whole ? "detail" : "''", ", ",
      connection->node_of("verdicts"), " FROM verdicts WHERE ", where.sql, " ", order_sql(order), " LIMIT ?"));
  if (!statement.ok()) return statement.status();
  where.bind(*statement);
  statement->bind(limit);

  std::vector<StoredVerdict> found;
  std::size_t bytes = 0;
  bool parsed = true;
  const absl::Status read = rows(*statement, [&](SqlStatement& row) {
    const std::string serialized = whole ? row.text(2) + row.text(3) : row.text(2);
    bytes += serialized.size() + 8;  // Tag and length in the answer.
    if (!found.empty() && bytes > VerdictStore::kPageBytesMax) return false;
    StoredVerdict& stored = found.emplace_back();
    stored.sequence = row.integer(0);
    if (order.key == Order::Key::kSurprise) {
      stored.key = absl::StrFormat("%.17g", row.real(1));
    } else if (order.key != Order::Key::kSequence) {
      stored.key = absl::StrCat(row.integer(1));
    }
    parsed = stored.verdict.ParseFromString(serialized);
    stored.verdict.set_node(row.text(4));
    return parsed;
  });
  if (!read.ok()) return read;
  if (!parsed) {
    return absl::DataLossError(
        absl::StrCat("the stored verdict of sequence ", found.back().sequence, " cannot be parsed"));
  }
  return found;
}

absl::StatusOr<v1::Verdict> Queries::find(const std::string& id, const Visibility& seen, const Stop& stop) const {
  StepIdentity step;
  if (!parse_id(id, &step)) {
    return absl::InvalidArgumentError(
        absl::StrCat("id: expected project/job/run/rank/step, found \"", id.substr(0, 600), "\""));
  }
  v1::Filter filter;
  filter.set_project(step.project);
  filter.set_job(step.job);
  filter.set_run(step.run);
  filter.set_rank(step.rank);
  Where where(filter, seen);
  where.add("step=?", step.step);  // Not a filter's, of which 0 is any.
  const auto connection = readers_.take(stop);
  // Its time first, by which an engine knows where the verdict lies.
  auto known = connection->prepare(absl::StrCat("SELECT time_us FROM ", connection->steps(),
                                                " WHERE project=? AND job=? AND run=? AND rank=? AND step=?"));
  if (!known.ok()) return known.status();
  auto row = known->bind(step.project).bind(step.job).bind(step.run).bind(step.rank).bind(step.step).step();
  if (!row.ok()) return row.status();
  const absl::Status none = absl::NotFoundError(absl::StrCat("there is no verdict ", id));
  if (!*row) return none;
  where.add("time_us=?", known->integer(0));
  known->reset();
  auto statement = connection->prepare(
      absl::StrCat("SELECT summary, detail, ", connection->node_of("verdicts"), " FROM verdicts WHERE ", where.sql));
  if (!statement.ok()) return statement.status();
  const SqlReset reset(*statement);
  where.bind(*statement);
  row = statement->step();
  if (!row.ok()) return row.status();
  if (!*row) return none;
  v1::Verdict verdict;
  if (!verdict.ParseFromString(statement->text(0) + statement->text(1))) {
    return absl::DataLossError(absl::StrCat("the stored verdict ", id, " cannot be parsed"));
  }
  verdict.set_node(statement->text(2));
  return verdict;
}

absl::StatusOr<std::vector<double>> Queries::values(const char* column, const v1::Filter& filter, std::int64_t from,
                                                    std::int64_t count, const Visibility& seen,
                                                    const Stop& stop) const {
  const Where where(filter, seen);
  const auto connection = readers_.take(stop);
  auto statement = connection->prepare(absl::StrCat("SELECT ", column, " FROM verdicts WHERE ", where.sql, " AND ",
                                                    column, " IS NOT NULL ORDER BY ", column, " LIMIT ? OFFSET ?"));
  if (!statement.ok()) return statement.status();
  where.bind(*statement);
  statement->bind(count).bind(from);
  std::vector<double> found;
  const absl::Status read = rows(*statement, [&](SqlStatement& row) {
    found.push_back(row.real(0));
    return true;
  });
  if (!read.ok()) return read;
  return found;
}

absl::StatusOr<std::map<std::pair<std::string, std::string>, JobCounts>> Queries::counts(const v1::Filter& filter,
                                                                                         const Visibility& seen,
                                                                                         const Stop& stop) const {
  const Where where(filter, seen);
  const auto connection = readers_.take(stop);
  // In the order of commits, so that an engine begins where the part does.
  auto statement = connection->prepare(absl::StrCat(
      "SELECT project, job, run, rank, step, outcome, time_us FROM verdicts WHERE ", where.sql, " ORDER BY sequence"));
  if (!statement.ok()) return statement.status();
  where.bind(*statement);
  std::map<std::pair<std::string, std::string>, JobCounts> found;
  const absl::Status read = rows(*statement, [&](SqlStatement& row) {
    JobCounts& job = found[{row.text(0), row.text(1)}];
    const auto outcome = static_cast<Outcome>(row.integer(5));
    if (outcome == Outcome::kTypeI) ++job.type_i;
    if (outcome == Outcome::kTypeII) ++job.type_ii;
    if (outcome == Outcome::kInconclusive) ++job.inconclusive;
    job.last_us = std::max(job.last_us, row.integer(6));
    if (outcome == Outcome::kTypeII && job.first_type_ii.empty()) {
      job.first_type_ii =
          absl::StrCat(row.text(0), "/", row.text(1), "/", row.text(2), "/", row.integer(3), "/", row.integer(4));
    }
    return true;
  });
  if (!read.ok()) return read;
  return found;
}

absl::StatusOr<bool> Queries::holds(const StepIdentity& step, const Stop& stop) const {
  const auto connection = readers_.take(stop);
  auto statement = connection->prepare(absl::StrCat("SELECT 1 FROM ", connection->steps(),
                                                    " WHERE project=? AND job=? AND run=? AND rank=? AND step=?"));
  if (!statement.ok()) return statement.status();
  const SqlReset reset(*statement);
  return statement->bind(step.project).bind(step.job).bind(step.run).bind(step.rank).bind(step.step).step();
}

absl::StatusOr<Cut> Queries::cut(const Stop& stop) const {
  const auto connection = readers_.take(stop);
  return read_cut(*connection, node_);
}

absl::Status Queries::look(const SqlConnection& connection, Cut* cut) const {
  if (cut == nullptr) return absl::OkStatus();
  auto read = read_cut(connection, node_);
  if (read.ok()) *cut = *std::move(read);
  return read.status();
}

absl::StatusOr<std::int64_t> Queries::last_sequence() const {
  const auto connection = readers_.take({});
  return connection->last_sequence();
}

absl::StatusOr<std::string> Queries::identity() const {
  const auto connection = readers_.take({});
  return connection->text("SELECT id FROM node");
}

namespace {

constexpr char kJobColumns[] =
    "SELECT project, job, first_seen_us, last_seen_us, type_i, type_ii, inconclusive, missed, errors FROM jobs WHERE ";

void set_steps(std::uint64_t type_i, std::uint64_t type_ii, std::uint64_t inconclusive, v1::JobSummary* job) {
  job->set_type_i(type_i);
  job->set_type_ii(type_ii);
  job->set_inconclusive(inconclusive);
  job->set_steps(type_i + type_ii + inconclusive);
}

v1::JobSummary read_job(const SqlStatement& row) {
  const auto count = [&](int column) { return static_cast<std::uint64_t>(row.integer(column)); };
  v1::JobSummary job;
  job.set_project(row.text(0));
  job.set_job(row.text(1));
  set_time(row.integer(2), job.mutable_first_seen());
  set_time(row.integer(3), job.mutable_last_seen());
  set_steps(count(4), count(5), count(6), &job);
  job.set_missed(count(7));
  job.set_errors(count(8));
  return job;
}

// Fills in what a job's row does not say. Statements see the same commits within a read transaction.
class Summary {
 public:
  // `job`: of read_job().
  Summary(const SqlConnection& connection, const Visibility& seen, v1::JobSummary* job)
      : connection_(connection), seen_(seen), job_(*job) {}

  absl::Status finish() {
    if (!seen_.whole(job_.project()) || !seen_.part.whole()) {
      if (auto counted = count_seen(); !counted.ok()) return counted;
    }
    absl::Status status =
        ask("run, min(first_seen_us) AS seen, count(*) OVER ()", "runs",
            absl::StrCat("GROUP BY run ORDER BY seen DESC, run DESC LIMIT ", VerdictStore::kRunsListedMax),
            [&](SqlStatement& run) {
              job_.add_runs(run.text(0));
              job_.set_runs_total(static_cast<std::uint64_t>(run.integer(2)));
              return true;
            });
    if (!status.ok()) return status;
    std::reverse(job_.mutable_runs()->begin(), job_.mutable_runs()->end());
    status = add_run_coverage(connection_, job_.project(), job_.job(), "", seen_, job_.mutable_coverage());
    if (!status.ok()) return status;
    return find_worst();
  }

 private:
  // Rows of the job that may be seen.
  template <typename Each>
  absl::Status ask(const std::string& columns, const std::string& table, const std::string& rest, const Each& each) {
    Where where;
    where.add("project=?", job_.project());
    where.add("job=?", job_.job());
    where.see(seen_, table);
    auto statement =
        connection_.prepare(absl::StrCat("SELECT ", columns, " FROM ", table, " WHERE ", where.sql, " ", rest));
    if (!statement.ok()) return statement.status();
    where.bind(*statement);
    return rows(*statement, each);
  }

  // What the row says is of everybody's runs, and of every verdict.
  absl::Status count_seen() {
    const auto number = [](const SqlStatement& row, int column) {
      return static_cast<std::uint64_t>(row.integer(column));
    };
    absl::Status status = ask("min(first_seen_us), max(last_seen_us)", "runs", "", [&](SqlStatement& row) {
      set_time(row.integer(0), job_.mutable_first_seen());
      set_time(row.integer(1), job_.mutable_last_seen());
      return true;
    });
    if (!status.ok()) return status;
    status =
        ask("count(*) FILTER (WHERE outcome=1), count(*) FILTER (WHERE outcome=2), count(*) FILTER (WHERE outcome=3)",
            "verdicts", "", [&](SqlStatement& row) {
              set_steps(number(row, 0), number(row, 1), number(row, 2), &job_);
              return true;
            });
    if (!status.ok()) return status;
    status = ask("CAST(coalesce(sum(missed), 0) AS BIGINT)", "gaps", "", [&](SqlStatement& row) {
      job_.set_missed(number(row, 0));
      return true;
    });
    if (!status.ok()) return status;
    return ask("count(*)", "errors", "", [&](SqlStatement& row) {
      job_.set_errors(number(row, 0));
      return true;
    });
  }

  absl::Status find_worst() {
    const bool fault = job_.type_ii() > 0;
    return ask("run, rank, step", "verdicts",
               fault ? absl::StrCat("AND outcome=", static_cast<int>(v1::OUTCOME_TYPE_II), " ORDER BY sequence LIMIT 1")
                     : "AND coalesce(surprise, margin) IS NOT NULL ORDER BY surprise DESC NULLS LAST, margin DESC "
                       "NULLS LAST, sequence LIMIT 1",
               [&](SqlStatement& row) {
                 job_.set_worst_verdict_id(absl::StrCat(job_.project(), "/", job_.job(), "/", row.text(0), "/",
                                                        row.integer(1), "/", row.integer(2)));
                 return false;
               });
  }

  const SqlConnection& connection_;
  const Visibility& seen_;
  v1::JobSummary& job_;
};

}  // namespace

absl::StatusOr<std::vector<v1::JobSummary>> Queries::jobs(const std::string& project, const std::string& after_project,
                                                          const std::string& after_job, int limit,
                                                          const Visibility& seen, const Stop& stop, Cut* cut) const {
  const auto connection = readers_.take(stop);
  const ReadTransaction transaction(*connection);
  if (!transaction.status().ok()) return transaction.status();
  if (auto looked = look(*connection, cut); !looked.ok()) return looked;
  Where where;
  if (!project.empty()) where.add("project=?", project);
  where.add("(project, job)>(?, ?)", after_project);
  where.values.emplace_back(after_job);
  where.see(seen, "jobs");
  auto statement = connection->prepare(absl::StrCat(kJobColumns, where.sql, " ORDER BY project, job LIMIT ?"));
  if (!statement.ok()) return statement.status();
  where.bind(*statement);
  statement->bind(limit);
  std::vector<v1::JobSummary> listed;
  const absl::Status read = rows(*statement, [&](SqlStatement& row) {
    listed.push_back(read_job(row));
    return true;
  });
  if (!read.ok()) return read;
  std::vector<v1::JobSummary> found;
  std::size_t bytes = 0;
  for (v1::JobSummary& summary : listed) {
    if (stop && stop()) return absl::CancelledError("the query was given up");
    if (auto summed = Summary(*connection, seen, &summary).finish(); !summed.ok()) return summed;
    bytes += summary.ByteSizeLong() + 8;
    if (!found.empty() && bytes > VerdictStore::kPageBytesMax) break;
    found.push_back(std::move(summary));
  }
  return found;
}

absl::StatusOr<v1::JobSummary> Queries::job(const std::string& project, const std::string& job, const Visibility& seen,
                                            const Stop& stop, Cut* cut) const {
  const auto connection = readers_.take(stop);
  const ReadTransaction transaction(*connection);
  if (!transaction.status().ok()) return transaction.status();
  if (auto looked = look(*connection, cut); !looked.ok()) return looked;
  Where where;
  where.add("project=?", project);
  where.add("job=?", job);
  where.see(seen, "jobs");
  auto statement = connection->prepare(absl::StrCat(kJobColumns, where.sql));
  if (!statement.ok()) return statement.status();
  where.bind(*statement);
  auto row = statement->step();
  if (!row.ok()) return row.status();
  if (!*row) return absl::NotFoundError(absl::StrCat("there is no job \"", job, "\" in project \"", project, "\""));
  v1::JobSummary summary = read_job(*statement);
  statement->reset();
  if (auto summed = Summary(*connection, seen, &summary).finish(); !summed.ok()) return summed;
  return summary;
}

absl::StatusOr<std::map<std::string, std::uint64_t>> Queries::verdicts_of_projects(const Stop& stop) const {
  const auto connection = readers_.take(stop);
  auto statement = connection->prepare(
      "SELECT project, CAST(sum(type_i+type_ii+inconclusive) AS BIGINT) FROM jobs GROUP BY project");
  if (!statement.ok()) return statement.status();
  std::map<std::string, std::uint64_t> found;
  const absl::Status read = rows(*statement, [&](SqlStatement& row) {
    found[row.text(0)] = static_cast<std::uint64_t>(row.integer(1));
    return true;
  });
  if (!read.ok()) return read;
  return found;
}

absl::StatusOr<std::uint64_t> Queries::verdicts_of_job(const std::string& project, const std::string& job,
                                                       const Stop& stop) const {
  const auto connection = readers_.take(stop);
  auto statement = connection->prepare("SELECT type_i+type_ii+inconclusive FROM jobs WHERE project=? AND job=?");
  if (!statement.ok()) return statement.status();
  statement->bind(project).bind(job);
  std::uint64_t found = 0;
  const absl::Status read = rows(*statement, [&](SqlStatement& row) {
    found = static_cast<std::uint64_t>(row.integer(0));
    return true;
  });
  if (!read.ok()) return read;
  return found;
}

absl::StatusOr<std::vector<v1::RunSummary>> Queries::runs(const std::string& project, const std::string& job,
                                                          const std::string& after_run, std::int32_t after_rank,
                                                          int limit, const Visibility& seen, const Stop& stop) const {
  const auto connection = readers_.take(stop);
  Where where;
  where.add("project=?", project);
  where.add("job=?", job);
  where.add("(run, rank)>(?, ?)", after_run);
  where.values.emplace_back(std::int64_t{after_rank});
  where.see(seen, "runs");
  auto statement = connection->prepare(
      absl::StrCat("SELECT run, rank, first_seen_us, last_seen_us, last_step, client, owner, ",
                   connection->node_of("runs"), " FROM runs WHERE ", where.sql, " ORDER BY run, rank LIMIT ?"));
  if (!statement.ok()) return statement.status();
  where.bind(*statement);
  statement->bind(limit);
  std::vector<v1::RunSummary> found;
  const absl::Status read = rows(*statement, [&](SqlStatement& row) {
    v1::RunSummary& run = found.emplace_back();
    run.set_run(row.text(0));
    run.set_rank(static_cast<std::int32_t>(row.integer(1)));
    set_time(row.integer(2), run.mutable_first_seen());
    set_time(row.integer(3), run.mutable_last_seen());
    run.set_last_step(row.integer(4));
    run.set_client_version(row.text(5));
    run.set_owner(row.text(6));
    run.set_node(row.text(7));
    return true;
  });
  if (!read.ok()) return read;
  return found;
}

absl::StatusOr<std::vector<v1::RefusedStep>> Queries::errors(const std::string& project, const std::string& job,
                                                             const v1::RefusedStep& after, int limit,
                                                             const Visibility& seen, const Stop& stop) const {
  const auto connection = readers_.take(stop);
  Where where;
  where.add("project=?", project);
  where.add("job=?", job);
  where.add("(run, rank, step, digest)>(?, ?, ?, ?)", after.run());
  where.values.emplace_back(std::int64_t{after.rank()});
  where.values.emplace_back(after.step());
  where.values.emplace_back(after.digest());
  where.see(seen, "errors");
  auto statement = connection->prepare(
      absl::StrCat("SELECT run, rank, step, digest, code, message, time_us, trace_id, ", connection->node_of("errors"),
                   " FROM errors WHERE ", where.sql, " ORDER BY run, rank, step, digest LIMIT ?"));
  if (!statement.ok()) return statement.status();
  where.bind(*statement);
  statement->bind(limit);
  std::vector<v1::RefusedStep> found;
  std::size_t bytes = 0;
  const absl::Status read = rows(*statement, [&](SqlStatement& row) {
    v1::RefusedStep error;
    error.set_run(row.text(0));
    error.set_rank(static_cast<std::int32_t>(row.integer(1)));
    error.set_step(row.integer(2));
    error.set_digest(row.text(3));
    error.mutable_status()->set_code(static_cast<std::int32_t>(row.integer(4)));
    error.mutable_status()->set_message(row.text(5));
    set_time(row.integer(6), error.mutable_time());
    error.set_trace_id(row.text(7));
    error.set_node(row.text(8));
    bytes += error.ByteSizeLong() + 8;
    if (!found.empty() && bytes > VerdictStore::kPageBytesMax) return false;
    found.push_back(std::move(error));
    return true;
  });
  if (!read.ok()) return read;
  return found;
}

absl::StatusOr<v1::Stats> Queries::stats(const v1::Filter& filter, const Visibility& seen, const Stop& stop,
                                         Cut* cut) const {
  const Where where(filter, seen);
  v1::Stats stats;
  const auto connection = readers_.take(stop);
  const ReadTransaction transaction(*connection);
  if (!transaction.status().ok()) return transaction.status();
  if (auto looked = look(*connection, cut); !looked.ok()) return looked;

  if (!filter.project().empty() && !filter.job().empty()) {
    auto added =
        add_run_coverage(*connection, filter.project(), filter.job(), filter.run(), seen, stats.mutable_coverage());
    if (!added.ok()) return added;
  }
  auto sums =
      connection->prepare(absl::StrCat("SELECT outcome, count(*), CAST(sum(operations) AS BIGINT), CAST(sum(opaque) AS "
                                       "BIGINT), sum(audit_seconds), max(margin), count(margin), "
                                       "max(surprise), count(surprise) FROM verdicts WHERE ",
                                       where.sql, " GROUP BY outcome"));
  if (!sums.ok()) return sums.status();
  where.bind(*sums);
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  stats.set_margin_max(kNone);
  stats.set_margin_median(kNone);
  stats.set_surprise_max(kNone);
  stats.set_surprise_median(kNone);
  for (;;) {
    auto row = sums->step();
    if (!row.ok()) return row.status();
    if (!*row) break;
    const auto count = static_cast<std::uint64_t>(sums->integer(1));
    stats.set_verdicts(stats.verdicts() + count);
    if (sums->integer(0) == v1::OUTCOME_TYPE_I) stats.set_type_i(count);
    if (sums->integer(0) == v1::OUTCOME_TYPE_II) stats.set_type_ii(count);
    if (sums->integer(0) == v1::OUTCOME_INCONCLUSIVE) stats.set_inconclusive(count);
    stats.set_operations(stats.operations() + static_cast<std::uint64_t>(sums->integer(2)));
    stats.set_opaque(stats.opaque() + static_cast<std::uint64_t>(sums->integer(3)));
    stats.set_audit_seconds(stats.audit_seconds() + sums->real(4));
    // NaN (nothing so far, or no such number in this group) loses on either side.
    if (!sums->is_null(5) && !(stats.margin_max() >= sums->real(5))) stats.set_margin_max(sums->real(5));
    stats.set_margins(stats.margins() + static_cast<std::uint64_t>(sums->integer(6)));
    if (!sums->is_null(7) && !(stats.surprise_max() >= sums->real(7))) stats.set_surprise_max(sums->real(7));
    stats.set_surprises(stats.surprises() + static_cast<std::uint64_t>(sums->integer(8)));
  }

  // The lower of the two middle ones where there are two, so that some verdict has it.
  const auto median = [&](const char* column, std::uint64_t count) -> absl::StatusOr<double> {
    if (count == 0) return kNone;
    auto statement = connection->prepare(absl::StrCat("SELECT ", column, " FROM verdicts WHERE ", where.sql, " AND ",
                                                      column, " IS NOT NULL ORDER BY ", column, " LIMIT 1 OFFSET ?"));
    if (!statement.ok()) return statement.status();
    where.bind(*statement);
    statement->bind(static_cast<std::int64_t>((count - 1) / 2));
    auto row = statement->step();
    if (!row.ok()) return row.status();
    return *row ? statement->real(0) : kNone;
  };
  const auto margin = median("margin", stats.margins());
  if (!margin.ok()) return margin.status();
  const auto surprise = median("surprise", stats.surprises());
  if (!surprise.ok()) return surprise.status();
  stats.set_margin_median(*margin);
  stats.set_surprise_median(*surprise);
  return stats;
}

}  // namespace plumbline
