// SQLite with statuses in place of return codes.
#pragma once

#include <sqlite3.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/sql.h"

namespace plumbline {

// FULL is RESOURCE_EXHAUSTED, CORRUPT and NOTADB are DATA_LOSS, CANTOPEN, PERM, READONLY and AUTH are
// PERMISSION_DENIED, BUSY and LOCKED are UNAVAILABLE, INTERRUPT is CANCELLED, anything else is INTERNAL.
absl::Status sqlite_status(int code, std::string_view doing, std::string_view message);

class SqliteConnection final : public SqlConnection {
 public:
  enum class Mode { kReadOnly, kCreate };

  // Opens a database file; kCreate: to write, and creates it where it is not there.
  static absl::StatusOr<std::unique_ptr<SqliteConnection>> open(const std::string& path, const std::string& vfs,
                                                                Mode mode);

  void set_stop(const std::function<bool()>* stop) const override;
  absl::StatusOr<SqlStatement> prepare(std::string_view sql) const override;
  absl::Status run(const std::string& sql) const override;
  bool in_transaction() const override { return sqlite3_get_autocommit(connection_.get()) == 0; }
  absl::Status begin_write() const override { return run("BEGIN IMMEDIATE"); }
  absl::Status begin_read() const override { return run("BEGIN"); }
  absl::Status commit() const override { return run("COMMIT"); }
  absl::Status roll_back() const override { return in_transaction() ? run("ROLLBACK") : absl::OkStatus(); }
  absl::Status make_room(std::int64_t) const override { return absl::OkStatus(); }
  const char* steps() const override { return "verdicts"; }
  std::string node_of(std::string_view) const override { return "''"; }
  absl::StatusOr<std::int64_t> last_sequence() const override;
  absl::StatusOr<std::uint64_t> used_bytes() const override;  // Of pages that hold something.
  absl::Status give_back() const override;                    // At most 4 MiB of free pages, to the file system.
  std::string removable(std::string_view table) const override;
  absl::Status note_removal(const std::string& project, const std::string& job) const override;

 private:
  struct Close {
    void operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }
  };
  std::unique_ptr<sqlite3, Close> connection_;
};

}  // namespace plumbline
