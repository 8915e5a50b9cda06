#include "server/store/schema.h"

#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

constexpr char kTables[] = R"sql(
CREATE TABLE runs(
  project TEXT NOT NULL, job TEXT NOT NULL, run TEXT NOT NULL, rank INTEGER NOT NULL,
  first_seen_us INTEGER NOT NULL, last_seen_us INTEGER NOT NULL,
  PRIMARY KEY(project, job, run, rank)) WITHOUT ROWID;

CREATE TABLE verdicts(
  sequence INTEGER PRIMARY KEY AUTOINCREMENT,
  project TEXT NOT NULL, job TEXT NOT NULL, run TEXT NOT NULL, rank INTEGER NOT NULL, step INTEGER NOT NULL,
  outcome INTEGER NOT NULL, grade INTEGER NOT NULL, cause INTEGER NOT NULL, margin REAL, digest TEXT NOT NULL,
  time_us INTEGER NOT NULL, audit_seconds REAL NOT NULL, operations INTEGER NOT NULL, opaque INTEGER NOT NULL,
  summary BLOB NOT NULL, detail BLOB NOT NULL, surprise REAL,
  UNIQUE(project, job, run, rank, step));
CREATE INDEX verdicts_by_job ON verdicts(project, job, outcome, sequence);
CREATE INDEX verdicts_by_surprise ON verdicts(project, job, surprise, margin);

CREATE TABLE errors(
  project TEXT NOT NULL, job TEXT NOT NULL, run TEXT NOT NULL, rank INTEGER NOT NULL, step INTEGER NOT NULL,
  digest TEXT NOT NULL, code INTEGER NOT NULL, message TEXT NOT NULL, time_us INTEGER NOT NULL,
  PRIMARY KEY(project, job, run, rank, step, digest)) WITHOUT ROWID;

CREATE TABLE gaps(
  project TEXT NOT NULL, job TEXT NOT NULL, run TEXT NOT NULL, rank INTEGER NOT NULL, step INTEGER NOT NULL,
  missed INTEGER NOT NULL, reasons TEXT NOT NULL,
  PRIMARY KEY(project, job, run, rank, step)) WITHOUT ROWID;
)sql";

// From version 1, which had no surprise. The messages of its verdicts have none either.
constexpr char kFromVersion1[] = R"sql(
ALTER TABLE verdicts ADD COLUMN surprise REAL;
DROP INDEX verdicts_by_margin;
CREATE INDEX verdicts_by_surprise ON verdicts(project, job, surprise, margin);
)sql";

absl::Status at_path(const absl::Status& status, const std::string& path) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

absl::Status check_or_create(const SqliteConnection& connection, const std::string& path) {
  auto application = connection.integer("PRAGMA application_id");
  if (!application.ok()) return at_path(application.status(), path);
  auto version = connection.integer("PRAGMA user_version");
  if (!version.ok()) return at_path(version.status(), path);
  auto tables = connection.integer("SELECT count(*) FROM sqlite_master");
  if (!tables.ok()) return at_path(tables.status(), path);

  if (*tables == 0 && *application == 0 && *version == 0) {
    auto created = connection.run(absl::StrCat("BEGIN IMMEDIATE;", kTables, "PRAGMA application_id=", kApplicationId,
                                               ";PRAGMA user_version=", kSchemaVersion, ";COMMIT;"));
    return created.ok() ? created : at_path(created, path);
  }
  if (*application != kApplicationId) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is a database of another application (application_id ",
                                                      *application, ", expected ", kApplicationId,
                                                      "); choose another --data-dir"));
  }
  if (*version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " has format version ", *version, ", written by a newer plumblined; this one reads up to version ",
        kSchemaVersion, "; start the newer one or choose another --data-dir"));
  }
  auto check = connection.text("PRAGMA quick_check(1)");
  if (!check.ok()) return at_path(check.status(), path);
  if (*check != "ok") {
    return absl::DataLossError(absl::StrCat(path, " is damaged (", *check, "); restore it or move it away"));
  }
  if (*version == kSchemaVersion) return absl::OkStatus();
  auto upgraded = connection.run(
      absl::StrCat("BEGIN IMMEDIATE;", kFromVersion1, "PRAGMA user_version=", kSchemaVersion, ";COMMIT;"));
  return upgraded.ok() ? upgraded : at_path(upgraded, path);
}

}  // namespace

absl::StatusOr<SqliteConnection> open_writer(const std::string& path, const std::string& vfs) {
  auto connection = SqliteConnection::open(path, vfs);
  if (!connection.ok()) return connection.status();
  // Every pragma here needs the file's header: a file that is not a database fails at the first one.
  auto mode = connection->text("PRAGMA journal_mode=WAL");
  if (!mode.ok()) return at_path(mode.status(), path);
  if (*mode != "wal") {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": the file system cannot hold a write-ahead log (journal mode is ", *mode, ")"));
  }
  auto set = connection->run("PRAGMA synchronous=FULL; PRAGMA journal_size_limit=67108864;");
  if (!set.ok()) return at_path(set, path);
  auto ready = check_or_create(*connection, path);
  if (!ready.ok()) return ready;
  return connection;
}

absl::StatusOr<SqliteConnection> open_reader(const std::string& path, const std::string& vfs) {
  auto connection = SqliteConnection::open(path, vfs);
  if (!connection.ok()) return connection.status();
  auto set = connection->run("PRAGMA query_only=1");
  if (!set.ok()) return at_path(set, path);
  return connection;
}

}  // namespace plumbline
