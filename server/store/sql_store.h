// A VerdictStore over the connections of an engine: what is stored and how it is asked for, without where.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/listeners.h"
#include "server/store/queries.h"
#include "server/store/sql.h"
#include "server/store/store.h"

namespace plumbline {

// Connections to tables as FORMAT.md describes them, and what else an engine brings.
struct SqlParts {
  // What must outlive every connection (a lock, say); may be null.
  std::shared_ptr<void> held;
  std::unique_ptr<SqlConnection> writer;                // Used by the writer's thread alone.
  std::unique_ptr<SqlConnection> points;                // Reads, for a step's admission.
  std::vector<std::unique_ptr<SqlConnection>> readers;  // Reads, for operators' queries: kReaders of them.
  // Why nothing may be committed any more (OK: it may); asked within every transaction that writes. May be empty.
  std::function<absl::Status()> lost;
  // Begins to call `notify` when verdicts were committed by another process; what it returns ends that, and waits for a
  // call that runs. Asked once, at the first subscription. Empty: no other process writes.
  Listeners::Watch watch;
  // Takes lines for the log, as SqliteOptions::trouble. May be empty.
  std::function<void(const std::string&)> trouble;
  // Takes the times of commits, as SqliteOptions::timed. May be empty.
  std::function<void(double seconds, std::size_t records, bool stored)> timed = {};
};

class SqlStore : public VerdictStore {
 public:
  // Runs on the writer's thread, on its connection, within a transaction that takes it back where it does not answer
  // OK.
  using Change = std::function<absl::Status(const SqlConnection&)>;

  // What operators ask, by parts.
  virtual const Queries& queries() const = 0;

  // Commits a change that is no record, with the records that are queued.
  virtual void change(Change change, Done done) = 0;
};

absl::StatusOr<std::unique_ptr<SqlStore>> make_sql_store(SqlParts parts);

// As open_sqlite_store(), for whoever also ships what is there (sqlite/outbox.h).
absl::StatusOr<std::unique_ptr<SqlStore>> open_local_store(const std::string& data_dir, SqliteOptions options = {});

}  // namespace plumbline
