#include "server/store/postgres/golden.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/ingest/golden_store.h"

namespace plumbline {
namespace {

using absl::StrCat;

// Far from PostgreSQL's own limit, which would end the whole shipment.
constexpr std::size_t kStepBytesMax = 64u << 20;

std::string runs_of(GoldenKind kind) { return kind == GoldenKind::kGolden ? "golden_runs" : "pair_runs"; }
std::string steps_of(GoldenKind kind) { return kind == GoldenKind::kGolden ? "golden_steps" : "pair_steps"; }

// What one statement finds of a golden run: whose it is, and of which run.
std::string origin_of(GoldenKind kind) {
  return StrCat("SELECT owner, node, run FROM ", runs_of(kind), " WHERE project=? AND name=?");
}

absl::Status write_steps(const PostgresConnection& connection, GoldenKind kind, const GoldenOutbox::Shipment& shipment,
                         absl::Status* answer) {
  auto step =
      connection.prepare(StrCat("INSERT INTO ", steps_of(kind),
                                "(project, name, rank, step, message) VALUES(?,?,?,?,?) "
                                "ON CONFLICT(project, name, rank, step) DO UPDATE SET message=excluded.message"));
  if (!step.ok()) return step.status();
  for (const v1::GoldenStep& recorded : shipment.steps) {
    const std::string message = recorded.SerializeAsString();
    if (message.size() > kStepBytesMax) {
      *answer = absl::ResourceExhaustedError(StrCat("step ", recorded.step(), " has ", message.size(),
                                                    " bytes, more than ", kStepBytesMax, ", and is known here alone"));
      continue;
    }
    step->bind(shipment.header.project()).bind(shipment.header.name()).bind(recorded.rank()).bind(recorded.step());
    if (auto written = step->bind_blob(message).run(); !written.ok()) return written;
  }
  return absl::OkStatus();
}

absl::Status no_such(const std::string& project, const std::string& name) {
  return absl::NotFoundError(
      StrCat("there is no golden run '", name, "' in project ", project, ", neither here nor in the shared history"));
}

}  // namespace

absl::Status write_golden(const PostgresConnection& connection, GoldenKind kind, const GoldenOutbox::Shipment& shipment,
                          const std::string& node, absl::Status* answer) {
  const v1::GoldenHeader& header = shipment.header;
  if (shipment.removed) {
    auto removal =
        connection.prepare(StrCat("DELETE FROM ", runs_of(kind), " WHERE project=? AND name=? AND run=? AND owner=?"));
    if (!removal.ok()) return removal.status();
    return removal->bind(header.project()).bind(header.name()).bind(header.run()).bind(shipment.owner).run();
  }
  auto run = connection.prepare(StrCat("INSERT INTO ", runs_of(kind),
                                       "(project, name, run, profile, owner, node, time_us) VALUES(?,?,?,?,?,?,?) "
                                       "ON CONFLICT(project, name) DO NOTHING"));
  if (!run.ok()) return run.status();
  run->bind(header.project()).bind(header.name()).bind(header.run()).bind(header.profile()).bind(shipment.owner);
  if (auto written = run->bind(node).bind(header.time().seconds() * 1'000'000 + header.time().nanos() / 1000).run();
      !written.ok())
    return written;
  auto first = connection.prepare(origin_of(kind));
  if (!first.ok()) return first.status();
  const auto found = first->bind(header.project()).bind(header.name()).step();
  if (!found.ok()) return found.status();
  const std::string owner = *found ? first->text(0) : "", of = *found ? first->text(2) : "";
  first->reset();
  if (owner != shipment.owner || of != header.run()) {
    *answer = absl::AlreadyExistsError(StrCat("the history has one of this name, which run ", of,
                                              " recorded; this one, of run ", header.run(), ", is known here alone"));
    return absl::OkStatus();
  }
  return write_steps(connection, kind, shipment, answer);
}

absl::Status PostgresGolden::told(const absl::Status& status) const {
  if (absl::IsUnavailable(status)) reader_->failed(status);
  return status;
}

absl::StatusOr<SharedGolden::Origin> PostgresGolden::find(const std::string& project, const std::string& name) const {
  auto query = connection_.prepare(origin_of(kind_));
  if (!query.ok()) return query.status();
  const SqlReset reset(*query);
  const auto found = query->bind(project).bind(name).step();
  if (!found.ok()) return found.status();
  if (!*found) return no_such(project, name);
  return Origin{query->text(0), query->text(1), query->text(2)};
}

absl::StatusOr<SharedGolden::Origin> PostgresGolden::origin(const std::string& project, const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (auto away = reader_->state(); !away.ok()) return away;
  auto found = find(project, name);
  if (!found.ok()) return told(found.status());
  return found;
}

absl::StatusOr<GoldenStep> PostgresGolden::read(const std::string& project, const std::string& name, std::int32_t rank,
                                                std::int64_t step) const {
  auto query = connection_.prepare(
      StrCat("SELECT message FROM ", steps_of(kind_), " WHERE project=? AND name=? AND rank=? AND step=?"));
  if (!query.ok()) return query.status();
  const SqlReset reset(*query);
  const auto found = query->bind(project).bind(name).bind(rank).bind(step).step();
  if (!found.ok()) return found.status();
  if (!*found) {
    return absl::NotFoundError(StrCat("step ", step, " of rank ", rank, " is not in golden run '", name,
                                      "', as far as the shared history has it"));
  }
  const auto damaged = [&](const std::string& why) {
    return absl::DataLossError(StrCat("golden run '", name, "' is damaged in the shared history: ", why));
  };
  v1::GoldenStep message;
  if (!message.ParseFromString(query->text(0))) return damaged(StrCat("step ", step, " cannot be read"));
  GoldenStep read = from_proto(message);
  if (auto wrong = check_golden_step(read)) return damaged(wrong.message());
  if (read.rank != rank || read.step != step) return damaged(StrCat("step ", step, " is another one"));
  return read;
}

absl::StatusOr<std::shared_ptr<const GoldenStep>> PostgresGolden::load(const std::string& project,
                                                                       const std::string& name, const std::string& run,
                                                                       std::int32_t rank, std::int64_t step) {
  const std::lock_guard lock(mutex_);
  if (auto away = reader_->state(); !away.ok()) return away;
  const auto origin = find(project, name);
  if (!origin.ok()) return told(origin.status());
  if (!run.empty() && origin->run != run) return no_such(project, name);
  auto found = read(project, name, rank, step);
  if (!found.ok()) return told(found.status());
  return std::make_shared<const GoldenStep>(*std::move(found));
}

absl::StatusOr<SharedGolden::Reach> PostgresGolden::reach(const std::string& project, const std::string& name,
                                                          std::int32_t rank, std::int64_t step) {
  const std::lock_guard lock(mutex_);
  if (auto away = reader_->state(); !away.ok()) return away;
  auto query = connection_.prepare(
      StrCat("SELECT min(step) FROM ", steps_of(kind_), " WHERE project=? AND name=? AND rank=? AND step>=?"));
  if (!query.ok()) return query.status();
  const SqlReset reset(*query);
  const auto found = query->bind(project).bind(name).bind(rank).bind(step).step();
  if (!found.ok()) return told(found.status());
  if (!*found || query->is_null(0)) return Reach::kNotYet;
  return query->integer(0) == step ? Reach::kThere : Reach::kPassed;
}

bool PostgresGolden::sees(const Visibility& here, const std::string& project, const Origin& origin) const {
  const Visibility there = reader_->seen(here);
  return there.whole(project) || (there.owner == origin.owner && (there.node.empty() || there.node == origin.node));
}

}  // namespace plumbline
