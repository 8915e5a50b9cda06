#include "server/store/sqlite.h"

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

SqliteStatement& SqliteStatement::bind(std::int64_t value) {
  const int code = sqlite3_bind_int64(statement_.get(), ++bound_, value);
  if (code != SQLITE_OK) bind_error_ = code;
  return *this;
}

SqliteStatement& SqliteStatement::bind(double value) {
  const int code = std::isnan(value) ? sqlite3_bind_null(statement_.get(), ++bound_)
                                     : sqlite3_bind_double(statement_.get(), ++bound_, value);
  if (code != SQLITE_OK) bind_error_ = code;
  return *this;
}

SqliteStatement& SqliteStatement::bind(std::string_view text) {
  const int code =
      sqlite3_bind_text64(statement_.get(), ++bound_, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  if (code != SQLITE_OK) bind_error_ = code;
  return *this;
}

SqliteStatement& SqliteStatement::bind_blob(std::string_view bytes) {
  // A null pointer would bind NULL, and an empty view may have one.
  const char* data = bytes.empty() ? "" : bytes.data();
  const int code = sqlite3_bind_blob64(statement_.get(), ++bound_, data, bytes.size(), SQLITE_TRANSIENT);
  if (code != SQLITE_OK) bind_error_ = code;
  return *this;
}

void SqliteStatement::reset() {
  sqlite3_reset(statement_.get());  // Repeats the error of the last step, which step() has told.
  sqlite3_clear_bindings(statement_.get());
  bound_ = 0;
  bind_error_ = SQLITE_OK;
}

absl::StatusOr<bool> SqliteStatement::step() {
  const int code = bind_error_ != SQLITE_OK ? bind_error_ : sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return sqlite_status(
      code, "the verdict database",
      bind_error_ != SQLITE_OK ? sqlite3_errstr(code) : sqlite3_errmsg(sqlite3_db_handle(statement_.get())));
}

absl::Status SqliteStatement::run() {
  absl::StatusOr<bool> row = true;
  while (row.ok() && *row) row = step();
  reset();
  return row.status();
}

std::int64_t SqliteStatement::integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }

double SqliteStatement::real(int column) const {
  if (is_null(column)) return std::numeric_limits<double>::quiet_NaN();
  return sqlite3_column_double(statement_.get(), column);
}

std::string SqliteStatement::text(int column) const {
  const void* data = sqlite3_column_blob(statement_.get(), column);
  if (data == nullptr) return {};
  return {static_cast<const char*>(data), bytes(column)};
}

std::size_t SqliteStatement::bytes(int column) const {
  return static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column));
}

bool SqliteStatement::is_null(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }

absl::StatusOr<SqliteConnection> SqliteConnection::open(const std::string& path, const std::string& vfs, Mode mode) {
  sqlite3* raw = nullptr;
  const int flags = mode == Mode::kReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const int code =
      sqlite3_open_v2(path.c_str(), &raw, flags | SQLITE_OPEN_NOMUTEX, vfs.empty() ? nullptr : vfs.c_str());
  SqliteConnection connection;
  connection.connection_.reset(raw);
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

absl::StatusOr<SqliteStatement> SqliteConnection::prepare(std::string_view sql) const {
  sqlite3_stmt* raw = nullptr;
  const int code = sqlite3_prepare_v3(connection_.get(), sql.data(), static_cast<int>(sql.size()), 0, &raw, nullptr);
  SqliteStatement statement;
  statement.statement_.reset(raw);
  if (code != SQLITE_OK) return sqlite_status(code, "the verdict database", sqlite3_errmsg(connection_.get()));
  return statement;
}

absl::Status SqliteConnection::run(const std::string& sql) const {
  const int code = sqlite3_exec(connection_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  if (code == SQLITE_OK) return absl::OkStatus();
  return sqlite_status(code, "the verdict database", sqlite3_errmsg(connection_.get()));
}

absl::StatusOr<std::int64_t> SqliteConnection::integer(std::string_view sql) const {
  auto statement = prepare(sql);
  if (!statement.ok()) return statement.status();
  auto row = statement->step();
  if (!row.ok()) return row.status();
  return *row ? statement->integer(0) : 0;
}

absl::StatusOr<std::string> SqliteConnection::text(std::string_view sql) const {
  auto statement = prepare(sql);
  if (!statement.ok()) return statement.status();
  auto row = statement->step();
  if (!row.ok()) return row.status();
  return *row ? statement->text(0) : std::string();
}

}  // namespace plumbline
