#include <string_view>

#include "absl/strings/str_cat.h"
#include "server/store/encode.h"
#include "server/store/queries.h"

namespace plumbline {
namespace {

constexpr char kSameRun[] = "project=? AND job=? AND run=? AND rank=?";
constexpr char kSameStep[] = "project=? AND job=? AND run=? AND rank=? AND step=?";

void bind_run(SqlStatement& statement, const StepIdentity& run) {
  statement.bind(run.project).bind(run.job).bind(run.run).bind(run.rank);
}

}  // namespace

absl::StatusOr<std::optional<std::string>> PointQueries::owner_of(const StepIdentity& run) const {
  std::lock_guard lock(mutex_);
  auto statement = connection_->prepare("SELECT owner FROM runs WHERE project=? AND job=? AND run=? LIMIT 1");
  if (!statement.ok()) return statement.status();
  statement->bind(run.project).bind(run.job).bind(run.run);
  auto row = statement->step();
  if (!row.ok()) return row.status();
  if (!*row) return std::optional<std::string>();
  return std::optional<std::string>(statement->text(0));
}

absl::StatusOr<std::int64_t> PointQueries::last_durable_step(const StepIdentity& run) const {
  std::lock_guard lock(mutex_);
  auto statement = connection_->prepare(absl::StrCat("SELECT last_step FROM runs WHERE ", kSameRun));
  if (!statement.ok()) return statement.status();
  bind_run(*statement, run);
  auto row = statement->step();
  if (!row.ok()) return row.status();
  return *row ? statement->integer(0) : -1;
}

absl::StatusOr<bool> PointQueries::was_refused(const StepIdentity& step) const {
  std::lock_guard lock(mutex_);
  auto statement = connection_->prepare(absl::StrCat("SELECT 1 FROM errors WHERE ", kSameStep, " AND digest=''"));
  if (!statement.ok()) return statement.status();
  bind_run(*statement, step);
  statement->bind(step.step);
  return statement->step();
}

absl::StatusOr<std::string> PointQueries::memory_of(const StepIdentity& run) const {
  std::lock_guard lock(mutex_);
  auto statement = connection_->prepare(absl::StrCat("SELECT memory FROM memories WHERE ", kSameRun));
  if (!statement.ok()) return statement.status();
  bind_run(*statement, run);
  auto row = statement->step();
  if (!row.ok()) return row.status();
  return *row ? statement->text(0) : std::string();
}

absl::StatusOr<std::optional<std::string>> PointQueries::digest_of(const StepIdentity& step) const {
  std::lock_guard lock(mutex_);
  auto statement =
      connection_->prepare(absl::StrCat("SELECT digest FROM ", connection_->steps(), " WHERE ", kSameStep));
  if (!statement.ok()) return statement.status();
  bind_run(*statement, step);
  statement->bind(step.step);
  auto row = statement->step();
  if (!row.ok()) return row.status();
  if (!*row) return std::optional<std::string>();
  return std::optional<std::string>(statement->text(0));
}

absl::StatusOr<v1::Verdict> PointQueries::get(const std::string& id) const {
  StepIdentity step;
  if (!parse_id(id, &step)) {
    return absl::InvalidArgumentError(absl::StrCat("id: expected project/job/run/rank/step, found \"", id, "\""));
  }
  std::lock_guard lock(mutex_);
  // Its time first, by which an engine knows where the verdict lies.
  auto known = connection_->prepare(absl::StrCat("SELECT time_us FROM ", connection_->steps(), " WHERE ", kSameStep));
  if (!known.ok()) return known.status();
  bind_run(*known, step);
  auto row = known->bind(step.step).step();
  if (!row.ok()) return row.status();
  if (!*row) return absl::NotFoundError(absl::StrCat("there is no verdict ", id));
  const std::int64_t time_us = known->integer(0);
  known->reset();
  auto statement =
      connection_->prepare(absl::StrCat("SELECT summary, detail FROM verdicts WHERE ", kSameStep, " AND time_us=?"));
  if (!statement.ok()) return statement.status();
  bind_run(*statement, step);
  row = statement->bind(step.step).bind(time_us).step();
  if (!row.ok()) return row.status();
  if (!*row) return absl::NotFoundError(absl::StrCat("there is no verdict ", id));
  v1::Verdict verdict;
  if (!verdict.ParseFromString(statement->text(0) + statement->text(1))) {
    return absl::DataLossError(absl::StrCat("the stored verdict ", id, " cannot be parsed"));
  }
  return verdict;
}

}  // namespace plumbline
