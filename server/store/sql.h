// What the store asks of a database engine. The statements themselves are written once, in the SQL that all engines
// speak: `?` for parameters, upserts with a named key, FILTER and NULLS LAST; what differs has a method here.
//
// Not thread-safe: one connection and its statements a thread (or lock). A statement must not outlive its connection,
// and is read to its end, or reset, before another one of the same connection begins.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline {

// A prepared statement. bind() takes parameters in order, from the first; reset() readies it for the next use.
// Texts and blobs are copied.
class SqlStatement {
 public:
  // What an engine makes of it.
  class Prepared {
   public:
    virtual ~Prepared() = default;
    virtual void bind(std::int64_t value) = 0;
    virtual void bind(double value) = 0;  // NaN becomes NULL.
    virtual void bind_text(std::string_view text) = 0;
    virtual void bind_blob(std::string_view bytes) = 0;
    virtual void reset() = 0;
    virtual absl::StatusOr<bool> step() = 0;
    virtual std::int64_t integer(int column) const = 0;
    virtual double real(int column) const = 0;  // NULL is NaN.
    virtual std::string text(int column) const = 0;
    virtual bool is_null(int column) const = 0;
  };

  SqlStatement() = default;
  explicit SqlStatement(std::unique_ptr<Prepared> prepared) : prepared_(std::move(prepared)) {}

  SqlStatement& bind(std::int64_t value) {
    prepared_->bind(value);
    return *this;
  }
  SqlStatement& bind(int value) { return bind(static_cast<std::int64_t>(value)); }
  SqlStatement& bind(double value) {
    prepared_->bind(value);
    return *this;
  }
  SqlStatement& bind(std::string_view text) {
    prepared_->bind_text(text);
    return *this;
  }
  SqlStatement& bind_blob(std::string_view bytes) {
    prepared_->bind_blob(bytes);
    return *this;
  }
  void reset() { prepared_->reset(); }

  absl::StatusOr<bool> step() { return prepared_->step(); }  // True: there is a row.
  absl::Status run();                                        // Steps to the end and resets.

  std::int64_t integer(int column) const { return prepared_->integer(column); }
  double real(int column) const { return prepared_->real(column); }
  std::string text(int column) const { return prepared_->text(column); }  // Reads texts and blobs.
  bool is_null(int column) const { return prepared_->is_null(column); }

 private:
  std::unique_ptr<Prepared> prepared_;
};

class SqlConnection {
 public:
  virtual ~SqlConnection() = default;

  // Whether to give up, asked again and again while a statement of this connection runs, which then ends with
  // CANCELLED. The function must outlive its use; null: never. An object for a scope, below, sets and unsets it.
  virtual void set_stop(const std::function<bool()>* stop) const = 0;

  virtual absl::StatusOr<SqlStatement> prepare(std::string_view sql) const = 0;
  virtual absl::Status run(const std::string& sql) const = 0;  // One or more statements without results of interest.
  absl::StatusOr<std::int64_t> integer(std::string_view sql) const;  // First column of the first row; none: 0.
  absl::StatusOr<std::string> text(std::string_view sql) const;

  virtual bool in_transaction() const = 0;
  virtual absl::Status begin_write() const = 0;  // No other writer's transaction runs until this one's end.
  virtual absl::Status begin_read() const = 0;   // All statements up to the commit see the same commits.
  virtual absl::Status commit() const = 0;
  virtual absl::Status roll_back() const = 0;  // Does nothing outside of a transaction.

  // A savepoint within a transaction that writes, and its two ends.
  virtual absl::Status mark() const { return run("SAVEPOINT change"); }
  virtual absl::Status keep() const { return run("RELEASE change"); }
  virtual absl::Status undo() const { return run("ROLLBACK TO change; RELEASE change"); }

  // Makes ready for verdicts of that time, within the transaction that adds them.
  virtual absl::Status make_room(std::int64_t time_us) const = 0;
  // The table that has digest and time of each step's verdict by the step's identity.
  virtual const char* steps() const = 0;
  // The name of the daemon that wrote a row of "verdicts", "errors" or "runs", as an expression; empty: it is ours.
  virtual std::string node_of(std::string_view table) const = 0;
  // Sequence of the newest verdict that was ever committed, removed ones included; 0: none.
  virtual absl::StatusOr<std::int64_t> last_sequence() const = 0;
  virtual absl::StatusOr<std::uint64_t> used_bytes() const = 0;  // Of the disk, by what is there.
  virtual absl::Status give_back() const = 0;  // Some of the space of removed rows, within their transaction.
  // A condition for rows of "verdicts", "errors" or "runs": what is beyond the limits may go, unless another history is
  // still to have it.
  virtual std::string removable(std::string_view table) const = 0;
  // A job is being removed, of everywhere: called within each transaction that removes of it, before it does.
  virtual absl::Status note_removal(const std::string& project, const std::string& job) const = 0;
};

// Lets the statements of a scope be given up.
class SqlStop {
 public:
  SqlStop(const SqlConnection& connection, const std::function<bool()>& stop) : connection_(connection) {
    if (stop) connection_.set_stop(&stop);
  }
  ~SqlStop() { connection_.set_stop(nullptr); }
  SqlStop(const SqlStop&) = delete;
  SqlStop& operator=(const SqlStop&) = delete;

 private:
  const SqlConnection& connection_;
};

// Resets a statement at the end of a scope, so that no read transaction is left open.
class SqlReset {
 public:
  explicit SqlReset(SqlStatement& statement) : statement_(statement) {}
  ~SqlReset() { statement_.reset(); }
  SqlReset(const SqlReset&) = delete;
  SqlReset& operator=(const SqlReset&) = delete;

 private:
  SqlStatement& statement_;
};

}  // namespace plumbline
