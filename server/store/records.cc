#include "server/store/records.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/store/encode.h"

namespace plumbline {
namespace {

SqlStatement& bind_run(SqlStatement& statement, const StepIdentity& run) {
  return statement.bind(run.project).bind(run.job).bind(run.run).bind(run.rank);
}

SqlStatement& bind_step(SqlStatement& statement, const StepIdentity& step) {
  return bind_run(statement, step).bind(step.step);
}

}  // namespace

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
  if (summary.has_alignment()) {
    detail.mutable_alignment()->Swap(summary.mutable_alignment());
    summary.clear_alignment();
  }
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

absl::StatusOr<RecordWriter> RecordWriter::prepare(const SqlConnection* connection) {
  RecordWriter writer(connection);
  const std::pair<SqlStatement*, const char*> all[] = {
      {&writer.touch_run_,
       "INSERT INTO runs(project, job, run, rank, first_seen_us, last_seen_us, owner) VALUES(?,?,?,?,?,?,?) "
       "ON CONFLICT(project, job, run, rank) DO UPDATE SET "
       "first_seen_us=CASE WHEN excluded.first_seen_us<runs.first_seen_us THEN excluded.first_seen_us "
       "ELSE runs.first_seen_us END,"
       "last_seen_us=CASE WHEN excluded.last_seen_us>runs.last_seen_us THEN excluded.last_seen_us "
       "ELSE runs.last_seen_us END"},
      {&writer.client_, "UPDATE runs SET client=? WHERE project=? AND job=? AND run=? AND rank=?"},
      {&writer.remember_,
       "INSERT INTO memories VALUES(?,?,?,?,?) "
       "ON CONFLICT(project, job, run, rank) DO UPDATE SET memory=excluded.memory"},
      {&writer.owner_, "SELECT owner FROM runs WHERE project=? AND job=? AND run=? LIMIT 1"},
      {&writer.insert_verdict_,
       "INSERT INTO verdicts(project, job, run, rank, step, outcome, grade, cause, margin, digest, time_us,"
       "audit_seconds, operations, opaque, summary, detail, surprise, trace_id) "
       "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,NULLIF(CAST(? AS TEXT), ''))"},
      {&writer.clear_error_,
       "DELETE FROM errors WHERE project=? AND job=? AND run=? AND rank=? AND step=? AND digest=''"},
      {&writer.insert_error_,
       "INSERT INTO errors(project, job, run, rank, step, digest, code, message, time_us, trace_id) "
       "VALUES(?,?,?,?,?,?,?,?,?,?) "
       "ON CONFLICT(project, job, run, rank, step, digest) DO UPDATE SET code=excluded.code, "
       "message=excluded.message,"
       "time_us=excluded.time_us, trace_id=excluded.trace_id"},
      {&writer.insert_gap_,
       "INSERT INTO gaps VALUES(?,?,?,?,?,?,?) "
       "ON CONFLICT(project, job, run, rank, step) DO UPDATE SET missed=excluded.missed, reasons=excluded.reasons "
       "WHERE excluded.missed > gaps.missed"},
  };
  for (const auto& [statement, sql] : all) {
    auto prepared = connection->prepare(sql);
    if (!prepared.ok()) return prepared.status();
    *statement = *std::move(prepared);
  }
  auto known = connection->prepare(absl::StrCat("SELECT digest FROM ", connection->steps(),
                                                " WHERE project=? AND job=? AND run=? AND rank=? AND step=?"));
  if (!known.ok()) return known.status();
  writer.digest_ = *std::move(known);
  return writer;
}

// `owner` is that of a new row alone.
absl::Status RecordWriter::touch_run(const StepIdentity& run, std::int64_t first_us, std::int64_t last_us,
                                     const std::string& owner) {
  return bind_run(touch_run_, run).bind(first_us).bind(last_us).bind(owner).run();
}

absl::StatusOr<std::optional<std::string>> RecordWriter::owner(const StepIdentity& run) {
  const SqlReset reset(owner_);
  owner_.bind(run.project).bind(run.job).bind(run.run);
  const auto found = owner_.step();
  if (!found.ok()) return found.status();
  if (!*found) return std::nullopt;
  return owner_.text(0);
}

absl::Status RecordWriter::open_run(const StepIdentity& run, const std::string& owner, const std::string& client,
                                    std::int64_t first_us, std::int64_t last_us, absl::Status* answer) {
  const auto first = this->owner(run);
  if (!first.ok()) return first.status();
  if (*first && **first != owner) {
    *answer = absl::PermissionDeniedError(absl::StrCat("run \"", run.run, "\" was opened by another user"));
    return absl::OkStatus();
  }
  if (auto status = touch_run(run, first_us, last_us, owner); !status.ok()) return status;
  client_.bind(storable(client));
  return bind_run(client_, run).run();
}

absl::Status RecordWriter::gap(const StepIdentity& step, const Missed& missed) {
  if (missed.steps <= 0) return absl::OkStatus();
  bind_step(insert_gap_, step).bind(missed.steps).bind(storable(absl::StrJoin(missed.reasons, "\n")));
  return insert_gap_.run();
}

absl::Status RecordWriter::error(const StepIdentity& step, std::string_view digest, const absl::Status& error,
                                 const Missed& missed, const std::string& trace_id, std::int64_t time_us) {
  if (auto status = touch_run(step, time_us, time_us, ""); !status.ok()) return status;
  if (auto status = gap(step, missed); !status.ok()) return status;
  return write_error(step, digest, error, trace_id, time_us);
}

absl::Status RecordWriter::write_error(const StepIdentity& step, std::string_view digest, const absl::Status& error,
                                       const std::string& trace_id, std::int64_t time_us) {
  bind_step(insert_error_, step)
      .bind(digest)
      .bind(static_cast<int>(error.code()))
      .bind(storable(std::string(error.message())))
      .bind(time_us)
      .bind(trace_id);
  return insert_error_.run();
}

absl::Status RecordWriter::verdict(const VerdictRow& row, const Missed& missed, absl::Status* answer) {
  if (auto status = touch_run(row.step, row.time_us, row.time_us, ""); !status.ok()) return status;
  if (auto status = gap(row.step, missed); !status.ok()) return status;

  std::optional<std::string> digest;
  {
    const SqlReset reset(digest_);
    auto found = bind_step(digest_, row.step).step();
    if (!found.ok()) return found.status();
    if (*found) digest = digest_.text(0);
  }
  if (digest == row.keys.digest()) return absl::OkStatus();
  if (digest) {
    *answer = absl::AlreadyExistsError(absl::StrCat("step ", row.step.id(), " has a verdict of digest ", *digest,
                                                    "; this one is of digest ", row.keys.digest()));
    return write_error(row.step, row.keys.digest(), *answer, row.keys.trace_id(), row.time_us);
  }
  if (auto status = bind_step(clear_error_, row.step).run(); !status.ok()) return status;
  if (auto status = connection_->make_room(row.time_us); !status.ok()) return status;
  bind_step(insert_verdict_, row.step)
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
  if (auto status = insert_verdict_.run(); !status.ok() || row.memory.empty()) return status;
  bind_run(remember_, row.step).bind_blob(row.memory);
  return remember_.run();
}

}  // namespace plumbline
