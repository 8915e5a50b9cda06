#include "server/store/queries.h"

#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "server/store/encode.h"
#include "server/store/run_coverage.h"

namespace plumbline {
namespace {

constexpr char kSameRun[] = "project=? AND job=? AND run=? AND rank=?";
constexpr char kSameStep[] = "project=? AND job=? AND run=? AND rank=? AND step=?";

void bind_run(SqliteStatement& statement, const StepIdentity& run) {
  statement.bind(run.project).bind(run.job).bind(run.run).bind(run.rank);
}

void set_time(std::int64_t time_us, google::protobuf::Timestamp* time) {
  time->set_seconds(time_us / 1'000'000);
  time->set_nanos(static_cast<std::int32_t>(time_us % 1'000'000) * 1000);
}

// The conditions of a filter, and the values of their parameters.
struct Where {
  std::string sql = "TRUE";
  std::vector<std::variant<std::string, std::int64_t>> values;

  explicit Where(const v1::Filter& filter) {
    if (!filter.project().empty()) add("project=?", filter.project());
    if (!filter.job().empty()) add("job=?", filter.job());
    if (!filter.run().empty()) add("run=?", filter.run());
    if (filter.verdict() != v1::OUTCOME_UNSPECIFIED) add("outcome=?", static_cast<std::int64_t>(filter.verdict()));
    if (filter.step_min() != 0) add("step>=?", filter.step_min());
    if (filter.step_max() != 0) add("step<=?", filter.step_max());
  }

  void add(const char* condition, std::variant<std::string, std::int64_t> value) {
    absl::StrAppend(&sql, " AND ", condition);
    values.push_back(std::move(value));
  }

  void bind(SqliteStatement& statement) const {
    for (const auto& value : values) {
      if (const auto* text = std::get_if<std::string>(&value)) {
        statement.bind(std::string_view(*text));
      } else {
        statement.bind(std::get<std::int64_t>(value));
      }
    }
  }
};

// Several statements that see the same commits.
class ReadTransaction {
 public:
  explicit ReadTransaction(const SqliteConnection& connection)
      : connection_(connection), begun_(connection.run("BEGIN")) {}
  ~ReadTransaction() {
    if (begun_.ok()) connection_.run("COMMIT").IgnoreError();  // Nothing was written.
  }
  const absl::Status& status() const { return begun_; }

 private:
  const SqliteConnection& connection_;
  const absl::Status begun_;
};

}  // namespace

absl::StatusOr<std::int64_t> Queries::last_durable_step(const StepIdentity& run) const {
  std::lock_guard lock(mutex_);
  auto statement =
      connection_.prepare(absl::StrCat("SELECT max(coalesce((SELECT max(step) FROM verdicts WHERE ", kSameRun,
                                       "), -1), coalesce((SELECT max(step) FROM errors WHERE ", kSameRun, "), -1))"));
  if (!statement.ok()) return statement.status();
  bind_run(*statement, run);
  bind_run(*statement, run);
  auto row = statement->step();
  if (!row.ok()) return row.status();
  return *row ? statement->integer(0) : -1;
}

absl::StatusOr<std::optional<std::string>> Queries::digest_of(const StepIdentity& step) const {
  std::lock_guard lock(mutex_);
  auto statement = connection_.prepare(absl::StrCat("SELECT digest FROM verdicts WHERE ", kSameStep));
  if (!statement.ok()) return statement.status();
  bind_run(*statement, step);
  statement->bind(step.step);
  auto row = statement->step();
  if (!row.ok()) return row.status();
  if (!*row) return std::optional<std::string>();
  return std::optional<std::string>(statement->text(0));
}

absl::StatusOr<v1::Verdict> Queries::get(const std::string& id) const {
  StepIdentity step;
  if (!parse_id(id, &step)) {
    return absl::InvalidArgumentError(absl::StrCat("id: expected project/job/run/rank/step, found \"", id, "\""));
  }
  std::lock_guard lock(mutex_);
  auto statement = connection_.prepare(absl::StrCat("SELECT summary, detail FROM verdicts WHERE ", kSameStep));
  if (!statement.ok()) return statement.status();
  bind_run(*statement, step);
  statement->bind(step.step);
  auto row = statement->step();
  if (!row.ok()) return row.status();
  if (!*row) return absl::NotFoundError(absl::StrCat("there is no verdict ", id));
  v1::Verdict verdict;
  if (!verdict.ParseFromString(statement->text(0) + statement->text(1))) {
    return absl::DataLossError(absl::StrCat("the stored verdict ", id, " cannot be parsed"));
  }
  return verdict;
}

absl::StatusOr<std::vector<StoredVerdict>> Queries::list(const v1::Filter& filter, std::int64_t after_sequence,
                                                         int limit, bool whole) const {
  const Where where(filter);
  std::lock_guard lock(mutex_);
  auto statement =
      connection_.prepare(absl::StrCat("SELECT sequence, summary", whole ? ", detail" : "", " FROM verdicts WHERE ",
                                       where.sql, " AND sequence>? ORDER BY sequence LIMIT ?"));
  if (!statement.ok()) return statement.status();
  where.bind(*statement);
  statement->bind(after_sequence).bind(limit);

  std::vector<StoredVerdict> found;
  std::size_t bytes = 0;
  for (;;) {
    auto row = statement->step();
    if (!row.ok()) return row.status();
    if (!*row) return found;
    const std::string serialized = whole ? statement->text(1) + statement->text(2) : statement->text(1);
    bytes += serialized.size() + 8;  // Tag and length in the answer.
    if (!found.empty() && bytes > VerdictStore::kPageBytesMax) return found;
    StoredVerdict& stored = found.emplace_back();
    stored.sequence = statement->integer(0);
    if (!stored.verdict.ParseFromString(serialized)) {
      return absl::DataLossError(absl::StrCat("the stored verdict of sequence ", stored.sequence, " cannot be parsed"));
    }
  }
}

absl::StatusOr<std::int64_t> Queries::last_sequence() const {
  std::lock_guard lock(mutex_);
  return connection_.integer("SELECT coalesce(max(sequence), 0) FROM verdicts");
}

absl::Status Queries::summarize(v1::JobSummary* summary) const {
  const auto ask = [&](std::string_view sql, auto&& each) -> absl::Status {
    auto statement = connection_.prepare(sql);
    if (!statement.ok()) return statement.status();
    statement->bind(summary->project()).bind(summary->job());
    for (;;) {
      auto row = statement->step();
      if (!row.ok()) return row.status();
      if (!*row) return absl::OkStatus();
      each(*statement);
    }
  };
  absl::Status status =
      ask("SELECT run, min(first_seen_us) AS seen FROM runs WHERE project=? AND job=? GROUP BY run ORDER BY seen, run",
          [&](SqliteStatement& row) { summary->add_runs(row.text(0)); });
  if (!status.ok()) return status;
  status = ask("SELECT outcome, count(*) FROM verdicts WHERE project=? AND job=? GROUP BY outcome",
               [&](SqliteStatement& row) {
                 const auto count = static_cast<std::uint64_t>(row.integer(1));
                 summary->set_steps(summary->steps() + count);
                 if (row.integer(0) == v1::TYPE_I) summary->set_type_i(count);
                 if (row.integer(0) == v1::TYPE_II) summary->set_type_ii(count);
                 if (row.integer(0) == v1::INCONCLUSIVE) summary->set_inconclusive(count);
               });
  if (!status.ok()) return status;
  status = ask("SELECT coalesce(sum(missed), 0) FROM gaps WHERE project=? AND job=?",
               [&](SqliteStatement& row) { summary->set_missed(static_cast<std::uint64_t>(row.integer(0))); });
  if (!status.ok()) return status;
  status = ask("SELECT count(*) FROM errors WHERE project=? AND job=?",
               [&](SqliteStatement& row) { summary->set_errors(static_cast<std::uint64_t>(row.integer(0))); });
  if (!status.ok()) return status;
  status = add_run_coverage(connection_, summary->project(), summary->job(), "", summary->mutable_coverage());
  if (!status.ok()) return status;

  const auto take_worst = [&](SqliteStatement& row) {
    summary->set_worst_verdict_id(absl::StrCat(summary->project(), "/", summary->job(), "/", row.text(0), "/",
                                               row.integer(1), "/", row.integer(2)));
  };
  status = ask(absl::StrCat("SELECT run, rank, step FROM verdicts WHERE project=? AND job=? AND outcome=",
                            static_cast<int>(v1::TYPE_II), " ORDER BY sequence LIMIT 1"),
               take_worst);
  if (!status.ok() || !summary->worst_verdict_id().empty()) return status;
  return ask(
      "SELECT run, rank, step FROM verdicts WHERE project=? AND job=? AND coalesce(surprise, margin) IS NOT NULL "
      "ORDER BY surprise DESC, margin DESC, sequence LIMIT 1",
      take_worst);
}

absl::StatusOr<std::vector<v1::JobSummary>> Queries::jobs(const std::string& project, const std::string& after_project,
                                                          const std::string& after_job, int limit) const {
  std::lock_guard lock(mutex_);
  const ReadTransaction transaction(connection_);
  if (!transaction.status().ok()) return transaction.status();
  auto statement = connection_.prepare(
      absl::StrCat("SELECT project, job, min(first_seen_us), max(last_seen_us) FROM runs WHERE ",
                   project.empty() ? "?=''" : "project=?",
                   " AND (project, job) > (?, ?) GROUP BY project, job ORDER BY project, job LIMIT ?"));
  if (!statement.ok()) return statement.status();
  statement->bind(project).bind(after_project).bind(after_job).bind(limit);
  std::vector<v1::JobSummary> found;
  std::size_t bytes = 0;
  for (;;) {
    auto row = statement->step();
    if (!row.ok()) return row.status();
    if (!*row) return found;
    v1::JobSummary summary;
    summary.set_project(statement->text(0));
    summary.set_job(statement->text(1));
    set_time(statement->integer(2), summary.mutable_first_seen());
    set_time(statement->integer(3), summary.mutable_last_seen());
    if (auto summed = summarize(&summary); !summed.ok()) return summed;
    bytes += summary.ByteSizeLong() + 8;
    if (!found.empty() && bytes > VerdictStore::kPageBytesMax) return found;
    found.push_back(std::move(summary));
  }
}

absl::StatusOr<v1::JobSummary> Queries::job(const std::string& project, const std::string& job) const {
  std::lock_guard lock(mutex_);
  const ReadTransaction transaction(connection_);
  if (!transaction.status().ok()) return transaction.status();
  auto statement =
      connection_.prepare("SELECT min(first_seen_us), max(last_seen_us) FROM runs WHERE project=? AND job=?");
  if (!statement.ok()) return statement.status();
  statement->bind(project).bind(job);
  auto row = statement->step();
  if (!row.ok()) return row.status();
  if (!*row || statement->is_null(0)) {
    return absl::NotFoundError(absl::StrCat("there is no job \"", job, "\" in project \"", project, "\""));
  }
  v1::JobSummary summary;
  summary.set_project(project);
  summary.set_job(job);
  set_time(statement->integer(0), summary.mutable_first_seen());
  set_time(statement->integer(1), summary.mutable_last_seen());
  if (auto summed = summarize(&summary); !summed.ok()) return summed;
  return summary;
}

absl::StatusOr<v1::Stats> Queries::stats(const v1::Filter& filter) const {
  const Where where(filter);
  v1::Stats stats;
  std::lock_guard lock(mutex_);
  const ReadTransaction transaction(connection_);
  if (!transaction.status().ok()) return transaction.status();

  if (!filter.project().empty() && !filter.job().empty()) {
    auto added = add_run_coverage(connection_, filter.project(), filter.job(), filter.run(), stats.mutable_coverage());
    if (!added.ok()) return added;
  }
  auto sums = connection_.prepare(absl::StrCat(
      "SELECT outcome, count(*), sum(operations), sum(opaque), sum(audit_seconds), max(margin), count(margin), "
      "max(surprise), count(surprise) FROM verdicts WHERE ",
      where.sql, " GROUP BY outcome"));
  if (!sums.ok()) return sums.status();
  where.bind(*sums);
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::int64_t margins = 0, surprises = 0;
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
    if (sums->integer(0) == v1::TYPE_I) stats.set_type_i(count);
    if (sums->integer(0) == v1::TYPE_II) stats.set_type_ii(count);
    if (sums->integer(0) == v1::INCONCLUSIVE) stats.set_inconclusive(count);
    stats.set_operations(stats.operations() + static_cast<std::uint64_t>(sums->integer(2)));
    stats.set_opaque(stats.opaque() + static_cast<std::uint64_t>(sums->integer(3)));
    stats.set_audit_seconds(stats.audit_seconds() + sums->real(4));
    // NaN (nothing so far, or no such number in this group) loses on either side.
    if (!sums->is_null(5) && !(stats.margin_max() >= sums->real(5))) stats.set_margin_max(sums->real(5));
    margins += sums->integer(6);
    if (!sums->is_null(7) && !(stats.surprise_max() >= sums->real(7))) stats.set_surprise_max(sums->real(7));
    surprises += sums->integer(8);
  }

  // Of an even number, the lower one: one that some verdict has.
  const auto median = [&](const char* column, std::int64_t count) -> absl::StatusOr<double> {
    if (count == 0) return kNone;
    auto statement = connection_.prepare(absl::StrCat("SELECT ", column, " FROM verdicts WHERE ", where.sql, " AND ",
                                                      column, " IS NOT NULL ORDER BY ", column, " LIMIT 1 OFFSET ?"));
    if (!statement.ok()) return statement.status();
    where.bind(*statement);
    statement->bind((count - 1) / 2);
    auto row = statement->step();
    if (!row.ok()) return row.status();
    return *row ? statement->real(0) : kNone;
  };
  const auto margin = median("margin", margins);
  if (!margin.ok()) return margin.status();
  const auto surprise = median("surprise", surprises);
  if (!surprise.ok()) return surprise.status();
  stats.set_margin_median(*margin);
  stats.set_surprise_median(*surprise);
  return stats;
}

}  // namespace plumbline
