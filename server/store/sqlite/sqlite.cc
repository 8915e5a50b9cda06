#include "server/store/sqlite/sqlite.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace plumbline {

absl::Status sqlite_status(int code, std::string_view doing, std::string_view message) {
  absl::StatusCode status = absl::StatusCode::kInternal;
  switch (code & 0xff) {
    case SQLITE_FULL:
      status = absl::StatusCode::kResourceExhausted;
      break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      status = absl::StatusCode::kDataLoss;
      break;
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
      status = absl::StatusCode::kPermissionDenied;
      break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      status = absl::StatusCode::kUnavailable;
      break;
    case SQLITE_INTERRUPT:
      status = absl::StatusCode::kCancelled;
      break;
    default:
      break;
  }
  return absl::Status(status, absl::StrCat(std::string(doing), ": ", std::string(message)));
}

namespace {

constexpr int kPagesMax = 1024;  // Given back to the file system at a time: 4 MiB.

class SqliteStatement final : public SqlStatement::Prepared {
 public:
  explicit SqliteStatement(sqlite3_stmt* statement) : statement_(statement) {}

  void bind(std::int64_t value) override { note(sqlite3_bind_int64(statement_.get(), ++bound_, value)); }
  void bind(double value) override {
    ++bound_;
    note(std::isnan(value) ? sqlite3_bind_null(statement_.get(), bound_)
                           : sqlite3_bind_double(statement_.get(), bound_, value));
  }
  void bind_text(std::string_view text) override {
    note(sqlite3_bind_text64(statement_.get(), ++bound_, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
  }
  void bind_blob(std::string_view bytes) override {
    // A null pointer would bind NULL, and an empty view may have one.
    const char* data = bytes.empty() ? "" : bytes.data();
    note(sqlite3_bind_blob64(statement_.get(), ++bound_, data, bytes.size(), SQLITE_TRANSIENT));
  }
  void reset() override {
    sqlite3_reset(statement_.get());  // Repeats the error of the last step, which step() has told.
    sqlite3_clear_bindings(statement_.get());
    bound_ = 0;
    bind_error_ = SQLITE_OK;
  }

  absl::StatusOr<bool> step() override {
    const int code = bind_error_ != SQLITE_OK ? bind_error_ : sqlite3_step(statement_.get());
    if (code == SQLITE_ROW) return true;
    if (code == SQLITE_DONE) return false;
    return sqlite_status(
        code, "the verdict database",
        bind_error_ != SQLITE_OK ? sqlite3_errstr(code) : sqlite3_errmsg(sqlite3_db_handle(statement_.get())));
  }

  std::int64_t integer(int column) const override { return sqlite3_column_int64(statement_.get(), column); }
  double real(int column) const override {
    if (is_null(column)) return std::numeric_limits<double>::quiet_NaN();
    return sqlite3_column_double(statement_.get(), column);
  }
  std::string text(int column) const override {
    const void* data = sqlite3_column_blob(statement_.get(), column);
    if (data == nullptr) return {};
    return {static_cast<const char*>(data), static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
  }
  bool is_null(int column) const override { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }

 private:
  void note(int code) {
    if (code != SQLITE_OK) bind_error_ = code;
  }

  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int bound_ = 0;
  int bind_error_ = SQLITE_OK;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteConnection>> SqliteConnection::open(const std::string& path,
                                                                         const std::string& vfs, Mode mode) {
  sqlite3* raw = nullptr;
  const int flags = mode == Mode::kReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const int code =
      sqlite3_open_v2(path.c_str(), &raw, flags | SQLITE_OPEN_NOMUTEX, vfs.empty() ? nullptr : vfs.c_str());
  auto connection = std::make_unique<SqliteConnection>();
  connection->connection_.reset(raw);
  if (code != SQLITE_OK) {
    return sqlite_status(code, absl::StrCat("cannot open ", path), raw ? sqlite3_errmsg(raw) : sqlite3_errstr(code));
  }
  sqlite3_busy_timeout(raw, 5000);
  sqlite3_extended_result_codes(raw, 1);
  return connection;
}

void SqliteConnection::set_stop(const std::function<bool()>* stop) const {
  constexpr int kEvery = 4000;  // Instructions of SQLite's machine: well below a millisecond.
  const auto ask = [](void* asked) { return (*static_cast<const std::function<bool()>*>(asked))() ? 1 : 0; };
  sqlite3_progress_handler(connection_.get(), stop == nullptr ? 0 : kEvery, stop == nullptr ? nullptr : +ask,
                           const_cast<std::function<bool()>*>(stop));
}

absl::StatusOr<SqlStatement> SqliteConnection::prepare(std::string_view sql) const {
  sqlite3_stmt* raw = nullptr;
  const int code = sqlite3_prepare_v3(connection_.get(), sql.data(), static_cast<int>(sql.size()), 0, &raw, nullptr);
  SqlStatement statement(std::make_unique<SqliteStatement>(raw));
  if (code != SQLITE_OK) return sqlite_status(code, "the verdict database", sqlite3_errmsg(connection_.get()));
  return statement;
}

absl::Status SqliteConnection::run(const std::string& sql) const {
  const int code = sqlite3_exec(connection_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  if (code == SQLITE_OK) return absl::OkStatus();
  return sqlite_status(code, "the verdict database", sqlite3_errmsg(connection_.get()));
}

absl::StatusOr<std::int64_t> SqliteConnection::last_sequence() const {
  // Not the largest that is there: the newest verdict may have been removed.
  return integer("SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name='verdicts'), 0)");
}

absl::StatusOr<std::uint64_t> SqliteConnection::used_bytes() const {
  std::int64_t values[3];
  const char* const pragmas[] = {"PRAGMA page_count", "PRAGMA freelist_count", "PRAGMA page_size"};
  for (int i = 0; i < 3; ++i) {
    const auto value = integer(pragmas[i]);
    if (!value.ok()) return value.status();
    values[i] = *value;
  }
  return static_cast<std::uint64_t>((values[0] - values[1]) * values[2]);
}

absl::Status SqliteConnection::give_back() const {
  return run(absl::StrCat("PRAGMA incremental_vacuum(", kPagesMax, ")"));
}

// What is to be shipped or published (schema.cc) stays until it was.
std::string SqliteConnection::removable(std::string_view table) const {
  const std::string name(table);
  const bool runs = name == "runs";
  const std::string same = absl::StrCat("x.project=", name, ".project AND x.job=", name, ".job AND x.run=", name,
                                        ".run AND x.rank=", name, ".rank");
  const std::string noted = absl::StrCat("NOT EXISTS(SELECT 1 FROM outbox AS x WHERE ", same,
                                         runs ? ")" : absl::StrCat(" AND x.step=", name, ".step)"));
  const char* const last =
      "(SELECT min(CASE WHEN ships THEN shipped ELSE 9223372036854775807 END, CASE WHEN publishes THEN published ELSE "
      "9223372036854775807 END) FROM node)";
  if (name == "verdicts") return absl::StrCat("sequence<=", last, " AND ", noted);
  if (!runs) return noted;
  return absl::StrCat(noted, " AND NOT EXISTS(SELECT 1 FROM verdicts AS x WHERE ", same, " AND x.sequence>", last, ")");
}

absl::Status SqliteConnection::note_removal(const std::string& project, const std::string& job) const {
  // Again in each transaction: the last note comes after whatever was opened in between.
  auto statement = prepare(
      "INSERT OR REPLACE INTO outbox(kind, project, job, run, rank, step, detail, time_us) "
      "SELECT 4, project, job, run, rank, -1, owner, strftime('%s', 'now')*1000000 FROM runs "
      "WHERE (SELECT ships FROM node) AND project=? AND job=?");
  if (!statement.ok()) return statement.status();
  return statement->bind(project).bind(job).run();
}

}  // namespace plumbline
