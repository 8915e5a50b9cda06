#include "server/store/postgres/shipper.h"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "server/store/postgres/listener.h"
#include "server/store/postgres/schema.h"
#include "server/store/removal.h"

namespace plumbline {
namespace {

std::string random_name() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

// Queries give up sooner than shipments: whoever asks can have the daemon's own history.
constexpr absl::Duration kQueryConnectMax = absl::Seconds(2);
constexpr absl::Duration kQueryStatementMax = absl::Seconds(10);

PostgresSettings query_settings(const SharedHistory::Options& options) {
  return {options.url, options.schema, std::min(options.connect_timeout, kQueryConnectMax),
          std::min(options.statement_timeout, kQueryStatementMax)};
}

SharedReader::Parts make_reader(const SharedHistory::Options& options, const std::string& node) {
  const PostgresSettings settings = query_settings(options);
  SharedReader::Parts parts;
  for (int i = 0; i < VerdictStore::kReaders; ++i) {
    parts.readers.push_back(std::make_unique<PostgresConnection>(settings));
  }
  parts.watch = [settings](std::function<void()> notify) -> std::shared_ptr<void> {
    return std::make_shared<PostgresListener>(settings, std::move(notify));
  };
  parts.node = node;
  parts.host = options.host;
  parts.same_users = options.same_users;
  return parts;
}

std::unique_ptr<SharedRetention> make_retention(const SharedHistory::Options& options) {
  if (!options.retention.any()) return nullptr;
  return std::make_unique<SharedRetention>(
      SharedRetention::Options{{options.url, options.schema, options.connect_timeout, options.statement_timeout},
                               options.retention,
                               options.tidy_every,
                               options.untidy});
}

std::unique_ptr<NodeSteps> make_nodes(const SharedHistory::Options& options, const std::string& node) {
  if (!options.judge_nodes) return nullptr;
  NodeSteps::Options nodes;
  nodes.settings = {options.url, options.schema, options.connect_timeout, options.statement_timeout};
  nodes.node = node;
  nodes.judge = options.judge_nodes;
  nodes.deadline = options.nodes_timeout;
  nodes.others_after = options.others_judge_after;
  nodes.lease = options.judge_lease;
  nodes.every = std::min(nodes.every, options.idle_max);
  nodes.idle = options.idle_max;
  nodes.trouble = options.unjudged;
  return std::make_unique<NodeSteps>(std::move(nodes));
}

std::string name(const StepIdentity& run) {
  return absl::StrCat(run.project, "/", run.job, "/", run.run, "/", run.rank);
}

}  // namespace

Shipper::Shipper(Options options, SqlStore* store, Outbox* outbox)
    : options_(std::move(options)),
      store_(store),
      outbox_(outbox),
      instance_(random_name()),
      connection_({options_.url, options_.schema, options_.connect_timeout, options_.statement_timeout}),
      reader_(make_reader(options_, outbox->node())),
      golden_(GoldenKind::kGolden, query_settings(options_), &reader_),
      pairs_(GoldenKind::kPair, query_settings(options_), &reader_),
      retention_(make_retention(options_)),
      nodes_(make_nodes(options_, outbox->node())),
      stop_([this] { return courier_.is_over(); }),
      courier_({"the shipper's thread", options_.retry_min, options_.retry_max, options_.idle_max, options_.lost,
                options_.back},
               [this] { return tried(ship_all()); }) {
  handle_ = store_->subscribe([this] { courier_.wake(); });
}

Shipper::~Shipper() { store_->unsubscribe(handle_); }

void Shipper::finish(absl::Duration limit) {
  retention_.reset();
  courier_.end_by(Courier::Clock::now() +
                  (courier_.delivery().up ? absl::ToChronoNanoseconds(limit) : std::chrono::nanoseconds(0)));
  courier_.wait();
  nodes_.reset();  // The courier wakes it.
}

ShipState Shipper::state() const {
  const std::lock_guard lock(mutex_);
  ShipState all = state_;
  static_cast<Delivery&>(all) = courier_.delivery();
  return all;
}

absl::Status Shipper::tried(absl::Status shipped) {
  if (shipped.ok()) {
    reader_.answers();
  } else if (!absl::IsCancelled(shipped)) {
    reader_.failed(shipped);
  }
  return shipped;
}

absl::Status Shipper::ship_all() {
  const SqlStop stop(connection_, stop_);
  for (;;) {
    if (auto joined = join(); !joined.ok()) return joined;
    const auto shipment = outbox_->next();
    if (!shipment.ok()) return shipment.status();
    if (shipment->empty()) break;
    if (auto shipped = ship(*shipment); !shipped.ok()) return shipped;
    if (auto acknowledged = outbox_->acknowledge(*shipment); !acknowledged.ok()) return acknowledged;
    if (!shipment->parts.empty() && nodes_ != nullptr) nodes_->wake();
    {
      const std::lock_guard lock(mutex_);
      state_.shipped += shipment->records() - turned_.size();
      state_.turned_away += turned_.size() + shipment->unreadable.size();
    }
    if (!options_.turned_away) continue;
    for (const std::string& what : turned_) options_.turned_away(what);
    for (const std::string& what : shipment->unreadable) options_.turned_away(what);
  }
  if (auto shipped = ship_golden(options_.golden, GoldenKind::kGolden); !shipped.ok()) return shipped;
  if (auto shipped = ship_golden(options_.pairs, GoldenKind::kPair); !shipped.ok()) return shipped;
  return connection_.integer("SELECT CAST(version AS BIGINT) FROM history").status();
}

absl::Status Shipper::join() {
  if (joined_ != 0 && connection_.raw() != nullptr && PQstatus(connection_.raw()) == CONNECTION_OK &&
      PQbackendPID(connection_.raw()) == joined_) {
    return absl::OkStatus();
  }
  joined_ = 0;
  if (auto connected = connection_.connect(); !connected.ok()) return connected;
  const int session = PQbackendPID(connection_.raw());
  if (auto upgraded = upgrade_postgres(connection_); !upgraded.ok()) return upgraded;
  if (!writer_) {
    auto writer = RecordWriter::prepare(&connection_);
    if (!writer.ok()) return writer.status();
    writer_ = *std::move(writer);
  }
  // The server gives up on a peer that is gone, so that the identity is free for who comes back.
  if (auto set = connection_.run("SET tcp_keepalives_idle=10; SET tcp_keepalives_interval=10; SET "
                                 "tcp_keepalives_count=3; SET tcp_user_timeout=30000");
      !set.ok()) {
    return set;
  }
  if (auto taken = take_identity(); !taken.ok()) return taken;
  const auto history = connection_.text("SELECT CAST(id AS TEXT) FROM history");
  if (!history.ok()) return history.status();
  if (auto begun = outbox_->begin(*history); !begun.ok()) return begun;
  history_ = *history;
  // Each node removes its own sooner, unless it is gone for good.
  const absl::Status tidied =
      connection_.run("DELETE FROM pair_runs WHERE to_timestamp(time_us/1000000)<now()-INTERVAL '7 days'");
  if (!tidied.ok()) return tidied;
  // What was acknowledged is there; an older version shipped without saying so.
  const auto shipped = outbox_->shipped();
  if (!shipped.ok()) return shipped.status();
  if (auto told = tell_shipped(*shipped); !told.ok()) return told;
  if (connection_.raw() == nullptr || PQbackendPID(connection_.raw()) != session) {
    return absl::UnavailableError(absl::StrCat(connection_.name(), ": the connection was lost"));
  }
  joined_ = session;
  return absl::OkStatus();
}

absl::Status Shipper::take_identity() {
  auto lock = connection_.prepare("SELECT pg_try_advisory_lock(hashtextextended(CAST(? AS TEXT), 0))");
  if (!lock.ok()) return lock.status();
  lock->bind(absl::StrCat("plumbline node ", options_.schema, "/", outbox_->node()));
  const auto row = lock->step();
  if (!row.ok()) return row.status();
  const bool ours = *row && lock->integer(0) != 0;
  lock->reset();
  if (ours) {
    const std::int64_t now_us = absl::ToUnixMicros(absl::Now());
    auto told = connection_.prepare(
        "INSERT INTO nodes(node, host, instance, daemon_version, first_seen_us, last_seen_us) VALUES(?,?,?,?,?,?) "
        "ON CONFLICT(node) DO UPDATE SET host=excluded.host, "
        "instance=excluded.instance, daemon_version=excluded.daemon_version, last_seen_us=excluded.last_seen_us");
    if (!told.ok()) return told.status();
    told->bind(outbox_->node()).bind(options_.host).bind(instance_).bind(options_.version).bind(now_us).bind(now_us);
    if (auto written = told->run(); !written.ok()) return written;
    // Rows that this session writes say whose they are.
    return connection_.run(absl::StrCat("SET plumbline.node=", connection_.literal(outbox_->node())));
  }
  auto other = connection_.prepare("SELECT host, instance FROM nodes WHERE node=?");
  if (!other.ok()) return other.status();
  const auto found = other->bind(outbox_->node()).step();
  if (!found.ok()) return found.status();
  const std::string host = *found ? other->text(0) : "", instance = *found ? other->text(1) : "";
  other->reset();
  if (instance == instance_) {
    return absl::UnavailableError(
        absl::StrCat(connection_.name(), ": our last connection has not ended yet, and has our identity"));
  }
  return absl::AlreadyExistsError(absl::StrCat(
      connection_.name(), ": another daemon, on ", host.empty() ? "an unknown host" : host,
      ", ships under the identity ", outbox_->node(),
      " of this data directory: expected a data directory of its own for "
      "each daemon, found a copy (or that daemon was cut off, and the server will notice within a minute)"));
}

absl::Status Shipper::begin() {
  owned_.clear();
  turned_.clear();
  if (auto begun = connection_.begin_write(); !begun.ok()) return begun;
  absl::Status checked;
  if (PQbackendPID(connection_.raw()) != joined_) {
    // A session that was made in between has not our identity.
    checked = absl::UnavailableError(absl::StrCat(connection_.name(), ": the connection was lost"));
  } else {
    checked = check_postgres_version(connection_);
  }
  if (!checked.ok()) {
    joined_ = 0;  // The next attempt looks at the tables again.
    connection_.roll_back().IgnoreError();
  }
  return checked;
}

absl::Status Shipper::ship(const Shipment& shipment) {
  for (const Shipment::Removal& removal : shipment.removals) {
    if (auto removed = remove(removal); !removed.ok()) return removed;
  }
  if (auto begun = begin(); !begun.ok()) return begun;
  const auto all = [&]() -> absl::Status {
    using Answer = absl::Status*;
    for (const Shipment::Run& run : shipment.runs) {
      const auto write = [&](Answer answer) {
        return writer_->open_run(run.run, run.owner, run.client, run.first_us, run.last_us, answer);
      };
      if (auto written = one(name(run.run), write); !written.ok()) return written;
    }
    for (const Shipment::Verdict& verdict : shipment.verdicts) {
      const auto own = ours(verdict.row.step, verdict.owner, verdict.row.time_us);
      if (!own.ok()) return own.status();
      if (!*own) continue;
      const auto write = [&](Answer answer) { return writer_->verdict(verdict.row, {}, answer); };
      if (auto written = one(verdict.row.step.id(), write); !written.ok()) return written;
    }
    for (const Shipment::Error& error : shipment.errors) {
      const auto own = ours(error.step, error.owner, error.time_us);
      if (!own.ok()) return own.status();
      if (!*own) continue;
      const auto write = [&](Answer) {
        return writer_->error(error.step, error.digest, error.error, {}, error.trace_id, error.time_us);
      };
      if (auto written = one(error.step.id(), write); !written.ok()) return written;
    }
    for (const Shipment::Gap& gap : shipment.gaps) {
      const auto own = ours(gap.step, gap.owner, absl::ToUnixMicros(absl::Now()));
      if (!own.ok()) return own.status();
      if (!*own) continue;
      const auto write = [&](Answer) { return writer_->gap(gap.step, gap.missed); };
      if (auto written = one(gap.step.id(), write); !written.ok()) return written;
    }
    for (const Shipment::Part& part : shipment.parts) {
      const auto own = ours(part.row.step, part.owner, absl::ToUnixMicros(absl::Now()));
      if (!own.ok()) return own.status();
      if (!*own) continue;
      const auto write = [&](Answer answer) { return store_node_part(connection_, part.row, part.owner, answer); };
      if (auto written = one(part.row.step.id(), write); !written.ok()) return written;
    }
    if (auto told = tell_shipped(shipment.through); !told.ok()) return told;
    return connection_.commit();
  }();
  if (!all.ok()) connection_.roll_back().IgnoreError();
  return all;
}

absl::Status Shipper::ship_golden(GoldenOutbox* outbox, GoldenKind kind) {
  if (outbox == nullptr) return absl::OkStatus();
  for (;;) {
    const auto shipment = outbox->next(history_);
    if (!shipment.ok()) return shipment.status();
    if (!*shipment) return absl::OkStatus();
    if (auto begun = begin(); !begun.ok()) return begun;
    const v1::GoldenHeader& of = (*shipment)->header;
    absl::Status done = one(
        absl::StrCat(kind == GoldenKind::kGolden ? "golden run " : "steps for pairs ", of.project(), "/", of.name()),
        [&](absl::Status* answer) { return write_golden(connection_, kind, **shipment, outbox_->node(), answer); });
    if (done.ok()) done = connection_.commit();
    if (!done.ok()) connection_.roll_back().IgnoreError();
    if (!done.ok()) return done;
    if (auto acknowledged = outbox->acknowledge(history_, **shipment); !acknowledged.ok()) return acknowledged;
    {
      const std::lock_guard lock(mutex_);
      state_.shipped += turned_.empty() ? (*shipment)->steps.size() : 0;
      state_.turned_away += turned_.size();
    }
    if (!options_.turned_away) continue;
    for (const std::string& what : turned_) options_.turned_away(what);
  }
}

absl::Status Shipper::tell_shipped(std::int64_t through) {
  auto told = connection_.prepare("UPDATE nodes SET shipped=? WHERE node=? AND shipped<?");
  if (!told.ok()) return told.status();
  return told->bind(through).bind(outbox_->node()).bind(through).run();
}

absl::StatusOr<bool> Shipper::ours(const StepIdentity& run, const std::string& owner, std::int64_t time_us) {
  const std::string key = name(run);
  const auto known = owned_.find(key);
  bool own = false;
  if (known != owned_.end()) {
    own = known->second;
  } else {
    const auto first = writer_->owner(run);
    if (absl::IsInvalidArgument(first.status())) {  // A name that PostgreSQL cannot hold.
      turned_.push_back(absl::StrCat(run.id(), ": ", std::string(first.status().message())));
      return false;
    }
    if (!first.ok()) return first.status();
    own = !*first || **first == owner;
    if (!*first) {
      absl::Status answer;
      const auto open = [&](absl::Status* at) { return writer_->open_run(run, owner, "", time_us, time_us, at); };
      if (auto opened = one(key, open); !opened.ok()) return opened;
    }
    owned_[key] = own;
  }
  if (!own)
    turned_.push_back(absl::StrCat(run.id(), ": a run of this name was opened by another user on another node"));
  return own;
}

absl::Status Shipper::one(const std::string& what, const std::function<absl::Status(absl::Status* answer)>& write) {
  if (auto marked = connection_.mark(); !marked.ok()) return marked;
  absl::Status answer;
  const absl::Status written = write(&answer);
  if (written.ok()) {
    if (!answer.ok()) turned_.push_back(absl::StrCat(what, ": ", std::string(answer.message())));
    return connection_.keep();
  }
  if (!absl::IsInvalidArgument(written) || !connection_.in_transaction()) return written;
  turned_.push_back(absl::StrCat(what, ": ", std::string(written.message())));
  return connection_.undo();
}

absl::Status Shipper::remove(const Shipment::Removal& removal) {
  for (;;) {
    if (auto begun = begin(); !begun.ok()) return begun;
    absl::StatusOr<bool> more = false;
    const auto first = writer_->owner(removal.run);
    if (!first.ok() && !absl::IsInvalidArgument(first.status())) {
      more = first.status();
    } else if (first.ok() && *first && **first == removal.owner) {
      more = remove_some(connection_, removal.run);
      const absl::Status forgotten = forget_node_steps(connection_, removal.run);
      if (more.ok() && !forgotten.ok()) more = forgotten;
    }
    const absl::Status ended = more.ok() ? connection_.commit() : more.status();
    if (!ended.ok()) connection_.roll_back().IgnoreError();
    if (!ended.ok() || !*more) return ended;
  }
}

absl::Status check_store_url(const std::string& url) { return check_postgres_url(url); }

absl::StatusOr<std::unique_ptr<SharedHistory>> open_shared_history(SharedHistory::Options options, SqlStore* store,
                                                                   Outbox* outbox) {
  if (auto checked = check_store_url(options.url); !checked.ok()) return checked;
  return std::make_unique<Shipper>(std::move(options), store, outbox);
}

}  // namespace plumbline
