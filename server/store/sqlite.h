// SQLite with statuses in place of return codes. Not thread-safe: one connection and its statements a thread (or lock).
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline {

// FULL is RESOURCE_EXHAUSTED, CORRUPT and NOTADB are DATA_LOSS, CANTOPEN, PERM, READONLY and AUTH are
// PERMISSION_DENIED, BUSY and LOCKED are UNAVAILABLE, INTERRUPT is CANCELLED, anything else is INTERNAL.
absl::Status sqlite_status(int code, std::string_view doing, std::string_view message);

// A prepared statement. bind() takes parameters in order, from the first; reset() readies it for the next use.
// Texts and blobs are copied.
class SqliteStatement {
 public:
  SqliteStatement() = default;

  SqliteStatement& bind(std::int64_t value);
  SqliteStatement& bind(int value) { return bind(static_cast<std::int64_t>(value)); }
  SqliteStatement& bind(double value);  // NaN becomes NULL: SQLite has no NaN.
  SqliteStatement& bind(std::string_view text);
  SqliteStatement& bind_blob(std::string_view bytes);
  void reset();

  absl::StatusOr<bool> step();  // True: there is a row.
  absl::Status run();           // Steps to the end and resets.

  std::int64_t integer(int column) const;
  double real(int column) const;       // NULL is NaN.
  std::string text(int column) const;  // Reads texts and blobs.
  std::size_t bytes(int column) const;
  bool is_null(int column) const;

 private:
  friend class SqliteConnection;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int bound_ = 0;
  int bind_error_ = SQLITE_OK;
};

class SqliteConnection {
 public:
  enum class Mode { kReadOnly, kCreate };

  // Opens a database file; kCreate: to write, and creates it where it is not there.
  static absl::StatusOr<SqliteConnection> open(const std::string& path, const std::string& vfs, Mode mode);

  // Whether to give up, asked every few thousand steps of a statement on this connection, which then ends with
  // CANCELLED. The function must outlive its use; null: never. An object for a scope, below, sets and unsets it.
  void set_stop(const std::function<bool()>* stop) const;

  absl::StatusOr<SqliteStatement> prepare(std::string_view sql) const;
  absl::Status run(const std::string& sql) const;  // One or more statements without results of interest.
  absl::StatusOr<std::int64_t> integer(std::string_view sql) const;  // First column of the first row.
  absl::StatusOr<std::string> text(std::string_view sql) const;
  bool in_transaction() const { return sqlite3_get_autocommit(connection_.get()) == 0; }
  std::int64_t changes() const { return sqlite3_changes64(connection_.get()); }

 private:
  struct Close {
    void operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }
  };
  std::unique_ptr<sqlite3, Close> connection_;
};

// Lets the statements of a scope be given up.
class SqliteStop {
 public:
  SqliteStop(const SqliteConnection& connection, const std::function<bool()>& stop) : connection_(connection) {
    if (stop) connection_.set_stop(&stop);
  }
  ~SqliteStop() { connection_.set_stop(nullptr); }
  SqliteStop(const SqliteStop&) = delete;
  SqliteStop& operator=(const SqliteStop&) = delete;

 private:
  const SqliteConnection& connection_;
};

// Resets a statement at the end of a scope, so that no read transaction is left open.
class SqliteReset {
 public:
  explicit SqliteReset(SqliteStatement& statement) : statement_(statement) {}
  ~SqliteReset() { statement_.reset(); }
  SqliteReset(const SqliteReset&) = delete;
  SqliteReset& operator=(const SqliteReset&) = delete;

 private:
  SqliteStatement& statement_;
};

}  // namespace plumbline
