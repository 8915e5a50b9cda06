#include "server/store/postgres/postgres.h"

#include <endian.h>
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/store/postgres/statement.h"

namespace plumbline {
namespace {

constexpr int kServerVersionMin = 140000;                     // client_connection_check_interval.
constexpr absl::Duration kAskEvery = absl::Milliseconds(20);  // The stop.
constexpr std::int64_t kDayUs = 86'400'000'000;
constexpr std::int64_t kWritersLock = 0x504C4D42;  // "PLMB"; with the schema's hash it is the lock.

using Options = std::unique_ptr<PQconninfoOption, decltype(&PQconninfoFree)>;

Options parse(const std::string& url) { return {PQconninfoParse(url.c_str(), nullptr), &PQconninfoFree}; }

// Which server and database, without anything else that a URL may say.
std::string name_of(const std::string& url) {
  const Options options = parse(url);
  std::string host = "local", port, database;
  for (const PQconninfoOption* option = options.get(); option != nullptr && option->keyword != nullptr; ++option) {
    if (option->val == nullptr) continue;
    if (std::strcmp(option->keyword, "host") == 0) host = option->val;
    if (std::strcmp(option->keyword, "port") == 0) port = absl::StrCat(":", option->val);
    if (std::strcmp(option->keyword, "dbname") == 0) database = absl::StrCat("/", option->val);
  }
  return absl::StrCat("PostgreSQL at ", host, port, database);
}

std::string trimmed(const char* message) {
  std::string text = message == nullptr ? "" : message;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

absl::Status check_postgres_url(const std::string& url) {
  constexpr char kExpected[] = "expected postgresql://USER@HOST/DATABASE, found ";
  if (!absl::StartsWith(url, "postgresql://") && !absl::StartsWith(url, "postgres://")) {
    return absl::InvalidArgumentError(absl::StrCat(kExpected, "a text that begins otherwise"));
  }
  const Options options = parse(url);
  if (options == nullptr) return absl::InvalidArgumentError(absl::StrCat(kExpected, "a URL that libpq does not read"));
  for (const PQconninfoOption* option = options.get(); option->keyword != nullptr; ++option) {
    if (option->val == nullptr || !absl::EndsWith(option->keyword, "password")) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("expected a URL without a password, which every user of this machine could read, found \"",
                     option->keyword, "\"; put it into a file (~/.pgpass, or passfile=PATH) or into $PGPASSWORD"));
  }
  return absl::OkStatus();
}

absl::Status postgres_status(const char* sqlstate, std::string_view doing, std::string_view message) {
  const std::string_view state = sqlstate == nullptr ? "" : sqlstate;
  const auto is = [&](std::initializer_list<std::string_view> prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(),
                       [&](std::string_view prefix) { return state.substr(0, prefix.size()) == prefix; });
  };
  absl::StatusCode code = absl::StatusCode::kInternal;
  if (state.empty() || is({"08", "57", "40", "55P03", "53300", "25P03"})) {
    code = absl::StatusCode::kUnavailable;
  } else if (is({"53"})) {
    code = absl::StatusCode::kResourceExhausted;
  } else if (is({"42501", "28", "25006"})) {
    code = absl::StatusCode::kPermissionDenied;
  } else if (is({"XX001", "XX002"})) {
    code = absl::StatusCode::kDataLoss;
  } else if (is({"22"})) {
    code = absl::StatusCode::kInvalidArgument;
  }
  return absl::Status(code, absl::StrCat(std::string(doing), ": ", std::string(message)));
}

PostgresConnection::PostgresConnection(PostgresSettings settings)
    : settings_(std::move(settings)), name_(name_of(settings_.url)) {}

PostgresConnection::~PostgresConnection() = default;

absl::Status PostgresConnection::connect() const {
  if (connection_ != nullptr && PQstatus(connection_.get()) == CONNECTION_OK) return absl::OkStatus();
  prepared_.clear();
  busy_ = false;
  // Seconds, and at least two, by libpq's rules. The kernel gives up on what the server's does not acknowledge.
  const std::string connect_timeout =
      std::to_string(std::max<std::int64_t>(2, absl::ToInt64Seconds(settings_.connect_timeout)));
  const std::string user_timeout = std::to_string(absl::ToInt64Milliseconds(settings_.statement_timeout));
  const char* const keywords[] = {"dbname",
                                  "connect_timeout",
                                  "tcp_user_timeout",
                                  "keepalives_idle",
                                  "client_encoding",
                                  "fallback_application_name",
                                  nullptr};
  const char* const values[] = {
      settings_.url.c_str(), connect_timeout.c_str(), user_timeout.c_str(), "10", "UTF8", "plumblined", nullptr};
  connection_.reset(PQconnectdbParams(keywords, values, /*expand_dbname=*/1));
  if (connection_ == nullptr) return absl::ResourceExhaustedError(absl::StrCat(name_, ": no memory for a connection"));
  PGconn* const raw = connection_.get();
  if (PQstatus(raw) != CONNECTION_OK) {
    const bool refused = PQconnectionNeedsPassword(raw) != 0 || PQconnectionUsedPassword(raw) != 0;
    const std::string message = absl::StrCat(name_, " cannot be reached: ", trimmed(PQerrorMessage(raw)));
    connection_.reset();
    return refused ? absl::PermissionDeniedError(message) : absl::UnavailableError(message);
  }
  if (PQserverVersion(raw) < kServerVersionMin) {
    return lose(absl::FailedPreconditionError(
        absl::StrCat(name_, ": expected PostgreSQL 14 or newer, found ", PQparameterStatus(raw, "server_version"))));
  }
  if (const char* encoding = PQparameterStatus(raw, "server_encoding");
      encoding && std::strcmp(encoding, "UTF8") != 0) {
    return lose(
        absl::FailedPreconditionError(absl::StrCat(name_, ": expected a database of encoding UTF8, found ", encoding)));
  }
  PQsetnonblocking(raw, 1);
  PQsetNoticeProcessor(
      raw, [](void*, const char*) {}, nullptr);
  // A transaction whose daemon was cut off must not keep the others; a query that nobody waits for ends. What commits
  // is on the server's disk.
  const std::int64_t limit = absl::ToInt64Milliseconds(settings_.statement_timeout);
  const Transaction before = std::exchange(transaction_, Transaction::kNone);
  const absl::Status set = run(absl::StrCat(
      "SET search_path=", identifier(settings_.schema), "; SET statement_timeout=", limit, "; SET lock_timeout=", limit,
      "; SET idle_in_transaction_session_timeout=", limit,
      "; SET client_connection_check_interval=1000; SET default_transaction_isolation='read committed';"
      "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit')='off'"));
  transaction_ = before;
  return set.ok() ? set : lose(set);
}

std::string PostgresConnection::identifier(std::string_view name) const {
  std::string quoted = "\"";
  for (const char c : name) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + "\"";
}

std::string PostgresConnection::literal(std::string_view text) const {
  std::string quoted = "'";
  for (const char c : text) quoted.append(c == '\'' ? 2 : 1, c);
  return quoted + "'";  // With standard_conforming_strings, which is on since version 9.1.
}

absl::Status PostgresConnection::lose(absl::Status status) const {
  if (transaction_ != Transaction::kNone) transaction_ = Transaction::kLost;
  connection_.reset();
  prepared_.clear();
  busy_ = false;
  return status;
}

absl::Status PostgresConnection::ready() const {
  if (stop_ != nullptr && (*stop_)()) return absl::CancelledError("the query was given up");
  if (busy_) return absl::InternalError("a statement began before the one at hand was read to its end");
  if (transaction_ == Transaction::kLost) {
    return absl::UnavailableError(absl::StrCat(name_, ": the connection was lost within a transaction"));
  }
  if (connection_ != nullptr && PQstatus(connection_.get()) != CONNECTION_OK && transaction_ != Transaction::kNone) {
    return lose(absl::UnavailableError(absl::StrCat(name_, ": the connection was lost")));
  }
  if (auto connected = connect(); !connected.ok()) return connected;
  // The server has a limit of its own; this one is for a server that does not run.
  deadline_ = absl::Now() + settings_.statement_timeout + absl::Seconds(1);
  return absl::OkStatus();
}

absl::Status PostgresConnection::sent(int taken) const {
  if (taken == 1) {
    busy_ = true;
    return absl::OkStatus();
  }
  return lose(absl::UnavailableError(absl::StrCat(name_, ": ", trimmed(PQerrorMessage(connection_.get())))));
}

absl::StatusOr<PostgresConnection::Result> PostgresConnection::next() const {
  PGconn* const raw = connection_.get();
  const auto lost = [&] {
    return lose(absl::UnavailableError(absl::StrCat(name_, ": ", trimmed(PQerrorMessage(raw)))));
  };
  for (;;) {
    const int unsent = PQflush(raw);
    if (unsent < 0) return lost();
    if (unsent == 0 && PQisBusy(raw) == 0) break;
    const absl::Duration left = deadline_ - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return lose(absl::UnavailableError(
          absl::StrCat(name_, " does not answer for ", absl::FormatDuration(settings_.statement_timeout))));
    }
    pollfd socket{PQsocket(raw), static_cast<short>(unsent > 0 ? POLLIN | POLLOUT : POLLIN), 0};
    const absl::Duration wait = stop_ == nullptr ? left : std::min(left, kAskEvery);
    const int woken = ::poll(&socket, 1, static_cast<int>(absl::ToInt64Milliseconds(wait)) + 1);
    if (stop_ != nullptr && (*stop_)()) {
      return lose(absl::CancelledError("the query was given up"));  // The server notices that nobody waits.
    }
    if (woken > 0 && PQconsumeInput(raw) == 0) return lost();
  }
  Result result(PQgetResult(raw));
  if (result == nullptr) busy_ = false;
  return result;
}

absl::Status PostgresConnection::check(const PGresult* result) const {
  const ExecStatusType status = PQresultStatus(result);
  if (status != PGRES_FATAL_ERROR && status != PGRES_BAD_RESPONSE) return absl::OkStatus();
  return postgres_status(PQresultErrorField(result, PG_DIAG_SQLSTATE), name_, trimmed(PQresultErrorMessage(result)));
}

absl::Status PostgresConnection::drain() const {
  absl::Status first;
  while (busy_) {
    const auto result = next();
    if (!result.ok()) return first.ok() ? result.status() : first;
    if (*result != nullptr && first.ok()) first = check(result->get());
  }
  // The server's last word may be an error that ends the session.
  if (!first.ok() && PQstatus(connection_.get()) != CONNECTION_OK) return lose(first);
  return first;
}

absl::StatusOr<SqlStatement> PostgresConnection::prepare(std::string_view sql) const {
  return SqlStatement(std::make_unique<PostgresStatement>(this, sql));
}

absl::Status PostgresConnection::run(const std::string& sql) const {
  if (auto is = ready(); !is.ok()) return is;
  if (auto went = sent(PQsendQuery(connection_.get(), sql.c_str())); !went.ok()) return went;
  return drain();
}

bool PostgresConnection::in_transaction() const {
  return transaction_ != Transaction::kNone && transaction_ != Transaction::kLost && connection_ != nullptr &&
         PQtransactionStatus(connection_.get()) != PQTRANS_IDLE;
}

absl::Status PostgresConnection::begin(const std::string& sql, Transaction transaction) const {
  transaction_ = Transaction::kNone;
  day_ = kNoDay;
  // A connection that was idle may be gone without our knowing: it is tried once more.
  const bool was_connected = connection_ != nullptr;
  absl::Status begun = run(sql);
  if (absl::IsUnavailable(begun) && was_connected && connection_ == nullptr) begun = run(sql);
  if (begun.ok()) {
    transaction_ = transaction;
  } else if (connection_ != nullptr && PQtransactionStatus(connection_.get()) != PQTRANS_IDLE) {
    run("ROLLBACK").IgnoreError();
  }
  return begun;
}

absl::Status PostgresConnection::begin_write() const {
  // Held until the commit is seen by all: who comes next has the next sequence numbers, and sees these ones.
  return begin(absl::StrCat("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SELECT pg_advisory_xact_lock(",
                            kWritersLock, ", hashtext(", literal(settings_.schema), "))"),
               Transaction::kWrite);
}

absl::Status PostgresConnection::begin_read() const {
  return begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", Transaction::kRead);
}

absl::Status PostgresConnection::commit() const {
  const Transaction transaction = std::exchange(transaction_, Transaction::kNone);
  if (transaction == Transaction::kLost) {
    return absl::UnavailableError(absl::StrCat(name_, ": the connection was lost within a transaction"));
  }
  if (connection_ == nullptr) return absl::InternalError("there is no transaction to commit");
  transaction_ = transaction;
  // Watchers begin after last_sequence: it is of the same transaction, unlike the sequence's own value.
  const std::string told = absl::StrCat(
      "WITH moved AS (UPDATE history SET last_sequence=(SELECT last_value FROM verdict_sequence) WHERE last_sequence<"
      "(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM verdict_sequence) RETURNING 1) "
      "SELECT pg_notify('plumbline_verdicts', ",
      literal(settings_.schema), ") FROM moved; COMMIT");
  const absl::Status ended = run(transaction == Transaction::kRead ? "COMMIT" : told);
  if (ended.ok() || connection_ == nullptr) transaction_ = Transaction::kNone;
  return ended;
}

absl::Status PostgresConnection::roll_back() const {
  const bool open = in_transaction();
  transaction_ = Transaction::kNone;
  if (!open) return absl::OkStatus();
  if (busy_) return lose(absl::OkStatus());
  return run("ROLLBACK");
}

absl::Status PostgresConnection::undo() const {
  day_ = kNoDay;
  return SqlConnection::undo();
}

absl::Status PostgresConnection::make_room(std::int64_t time_us) const {
  // Asked again in each transaction: another daemon may have dropped the day since.
  const std::int64_t day = time_us / kDayUs;
  if (day == day_) return absl::OkStatus();
  auto statement = prepare("SELECT make_day(?)");
  if (!statement.ok()) return statement.status();
  const absl::Status made = statement->bind(time_us).run();
  if (made.ok() && time_us >= 0) day_ = day;
  return made;
}

std::string PostgresConnection::node_of(std::string_view of) const {
  const std::string table(of);
  // Rows of before version 4 name none.
  return absl::StrCat("coalesce((SELECT n.host || '/' FROM nodes AS n WHERE n.node=", table, ".node) || ", table,
                      ".node, '')");
}

absl::StatusOr<std::int64_t> PostgresConnection::last_sequence() const {
  return integer("SELECT last_sequence FROM history");
}

absl::StatusOr<std::uint64_t> PostgresConnection::used_bytes() const {
  const auto bytes = integer("SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM jobs");
  if (!bytes.ok()) return bytes.status();
  return static_cast<std::uint64_t>(*bytes);
}

absl::Status PostgresConnection::give_back() const { return run("SELECT drop_empty_days()"); }

}  // namespace plumbline
