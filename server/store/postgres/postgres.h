// PostgreSQL by libpq, with statuses in place of results, and a limit of time on everything: a server that was stopped,
// or lies behind a cut cable, costs the time limit and is UNAVAILABLE. A connection that was lost comes back by itself
// with the next transaction, or the next statement outside of one.
#pragma once

#include <libpq-fe.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/sql.h"

namespace plumbline {

struct PostgresSettings {
  std::string url;     // Of check_postgres_url().
  std::string schema;  // Where the tables are; need not exist yet.
  absl::Duration connect_timeout = absl::Seconds(5);
  absl::Duration statement_timeout = absl::Seconds(30);
};

// INVALID_ARGUMENT: it is not a postgresql:// URL, or it has a password, which every user of the machine could read
// from the command line. The text has nothing of the URL.
absl::Status check_postgres_url(const std::string& url);

// Lost connections, timeouts, shutdowns, lock timeouts and deadlocks are UNAVAILABLE, a full disk or memory is
// RESOURCE_EXHAUSTED, privileges and read-only servers are PERMISSION_DENIED, damage is DATA_LOSS, values that a column
// cannot hold (a NUL in a text) are INVALID_ARGUMENT, anything else is INTERNAL. `sqlstate` may be null.
absl::Status postgres_status(const char* sqlstate, std::string_view doing, std::string_view message);

class PostgresConnection final : public SqlConnection {
 public:
  explicit PostgresConnection(PostgresSettings settings);  // Connects when it is first used.
  ~PostgresConnection() override;

  absl::Status connect() const;  // Does nothing where there is a connection.

  void set_stop(const std::function<bool()>* stop) const override { stop_ = stop; }
  absl::StatusOr<SqlStatement> prepare(std::string_view sql) const override;
  absl::Status run(const std::string& sql) const override;
  bool in_transaction() const override;
  absl::Status begin_write() const override;
  absl::Status begin_read() const override;
  absl::Status commit() const override;
  absl::Status roll_back() const override;
  absl::Status undo() const override;
  absl::Status make_room(std::int64_t time_us) const override;
  const char* steps() const override { return "steps"; }
  std::string node_of(std::string_view table) const override;
  absl::StatusOr<std::int64_t> last_sequence() const override;
  absl::StatusOr<std::uint64_t> used_bytes() const override;  // Of verdicts' messages: what is removed counts no more.
  absl::Status give_back() const override;                    // Days that are empty.
  std::string removable(std::string_view) const override { return "TRUE"; }
  absl::Status note_removal(const std::string&, const std::string&) const override { return absl::OkStatus(); }

  const PostgresSettings& settings() const { return settings_; }
  const std::string& name() const { return name_; }     // Of the server, for messages; without secrets.
  std::string identifier(std::string_view name) const;  // Quoted.
  std::string literal(std::string_view text) const;     // Quoted.
  PGconn* raw() const { return connection_.get(); }     // Null: not connected.

 private:
  friend class PostgresStatement;
  static constexpr std::int64_t kNoDay = INT64_MIN;
  enum class Transaction { kNone, kRead, kWrite, kLost };
  struct Finish {
    void operator()(PGconn* connection) const { PQfinish(connection); }
  };
  struct Clear {
    void operator()(PGresult* result) const { PQclear(result); }
  };
  using Result = std::unique_ptr<PGresult, Clear>;

  // What a statement goes through: ready() before it is sent, sent() with the answer of PQsend..., then next() until it
  // has null. An error of a result is in the result.
  absl::Status ready() const;
  absl::Status sent(int taken) const;
  absl::StatusOr<Result> next() const;
  absl::Status drain() const;  // To the end of the statement at hand; the first error in it.
  absl::Status check(const PGresult* result) const;
  absl::Status lose(absl::Status status) const;  // Drops the connection and what it was at; the status.
  absl::Status begin(const std::string& sql, Transaction transaction) const;

  const PostgresSettings settings_;
  const std::string name_;
  mutable std::unique_ptr<PGconn, Finish> connection_;
  mutable std::map<std::string, std::string, std::less<>> prepared_;  // Names of statements that ran more than once.
  mutable Transaction transaction_ = Transaction::kNone;
  mutable std::int64_t day_ = kNoDay;  // The last that this transaction has room for.
  mutable bool busy_ = false;          // A statement is being read.
  mutable absl::Time deadline_;
  mutable const std::function<bool()>* stop_ = nullptr;
};

}  // namespace plumbline
