#include "server/store/postgres/retention.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/fault/fault.h"
#include "server/store/postgres/schema.h"
#include "server/store/removal.h"

namespace plumbline {

SharedRetention::SharedRetention(Options options)
    : options_(std::move(options)),
      connection_(options_.settings),
      stop_([this] {
        const std::lock_guard lock(mutex_);
        return end_;
      }),
      thread_([this] { contained("the shared history's retention", [this] { run(); }).IgnoreError(); }) {}

SharedRetention::~SharedRetention() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void SharedRetention::run() {
  for (;;) {
    absl::Status applied;
    const absl::Status fault = contained("the shared history's retention", [&] { applied = apply(); });
    if (!fault.ok()) applied = fault;
    // That the history is away the shipper tells.
    const bool tells = !applied.ok() && !absl::IsCancelled(applied) && !absl::IsUnavailable(applied);
    if (tells && !std::exchange(told_, true) && options_.trouble) options_.trouble(std::string(applied.message()));
    if (applied.ok()) told_ = false;
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, absl::ToChronoNanoseconds(options_.every), [this] { return end_; })) return;
  }
}

absl::Status SharedRetention::apply() {
  const SqlStop stop(connection_, stop_);
  const auto turn = take_turn();
  if (!turn.ok() || !*turn) return turn.status();
  const auto now_us = connection_.integer("SELECT CAST(extract(epoch FROM clock_timestamp())*1000000 AS BIGINT)");
  if (!now_us.ok()) return now_us.status();
  for (;;) {
    const auto more = remove_some(*now_us);
    if (!more.ok() || !*more) return more.status();
  }
}

absl::StatusOr<bool> SharedRetention::take_turn() {
  if (auto connected = connection_.connect(); !connected.ok()) return connected;
  if (session_ == PQbackendPID(connection_.raw())) return true;
  session_ = 0;
  const auto taken = connection_.integer(absl::StrCat(
      "SELECT CAST(pg_try_advisory_lock(hashtextextended(",
      connection_.literal(absl::StrCat("plumbline retention ", options_.settings.schema)), ", 0)) AS INTEGER)"));
  if (!taken.ok()) return taken.status();
  if (*taken != 0 && connection_.raw() != nullptr) session_ = PQbackendPID(connection_.raw());
  return *taken != 0;
}

absl::StatusOr<bool> SharedRetention::remove_some(std::int64_t now_us) {
  if (auto begun = connection_.begin_write(); !begun.ok()) return begun;
  absl::StatusOr<bool> more = false;
  if (PQbackendPID(connection_.raw()) != session_) {  // Made in between: it does not hold the lock.
    more = absl::UnavailableError(absl::StrCat(connection_.name(), ": the connection was lost"));
  } else if (auto checked = check_postgres_version(connection_); !checked.ok()) {
    more = checked;
  } else {
    more = expire_some(connection_, options_.retention, now_us);
    // Steps of several nodes of which nobody made a verdict.
    const absl::Duration age = options_.retention.verdicts.age;
    if (more.ok() && age != absl::InfiniteDuration()) {
      const absl::Status removed = connection_.run(
          absl::StrCat("DELETE FROM node_steps WHERE first_us<", now_us - absl::ToInt64Microseconds(age)));
      if (!removed.ok()) more = removed;
    }
  }
  const absl::Status ended = more.ok() ? connection_.commit() : more.status();
  if (!ended.ok()) {
    connection_.roll_back().IgnoreError();
    return ended;
  }
  return more;
}

}  // namespace plumbline
