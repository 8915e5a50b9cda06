#include "server/store/sqlite/schema.h"

#include <filesystem>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

constexpr std::int64_t kIncremental = 2;  // PRAGMA auto_vacuum has this value.

// What each version added to the one before it; an empty database is of version 0. A version that was released is never
// changed again: tests bring databases of every version up to ours.
constexpr char kVersion1[] = R"sql(
CREATE TABLE runs(
  project TEXT NOT NULL, job TEXT NOT NULL, run TEXT NOT NULL, rank INTEGER NOT NULL,
  first_seen_us INTEGER NOT NULL, last_seen_us INTEGER NOT NULL,
  PRIMARY KEY(project, job, run, rank)) WITHOUT ROWID;

CREATE TABLE verdicts(
  sequence INTEGER PRIMARY KEY AUTOINCREMENT,
  project TEXT NOT NULL, job TEXT NOT NULL, run TEXT NOT NULL, rank INTEGER NOT NULL, step INTEGER NOT NULL,
  outcome INTEGER NOT NULL, grade INTEGER NOT NULL, cause INTEGER NOT NULL, margin REAL, digest TEXT NOT NULL,
  time_us INTEGER NOT NULL, audit_seconds REAL NOT NULL, operations INTEGER NOT NULL, opaque INTEGER NOT NULL,
  summary BLOB NOT NULL, detail BLOB NOT NULL,
  UNIQUE(project, job, run, rank, step));
CREATE INDEX verdicts_by_job ON verdicts(project, job, outcome, sequence);
CREATE INDEX verdicts_by_margin ON verdicts(project, job, margin);

CREATE TABLE errors(
  project TEXT NOT NULL, job TEXT NOT NULL, run TEXT NOT NULL, rank INTEGER NOT NULL, step INTEGER NOT NULL,
  digest TEXT NOT NULL, code INTEGER NOT NULL, message TEXT NOT NULL, time_us INTEGER NOT NULL,
  PRIMARY KEY(project, job, run, rank, step, digest)) WITHOUT ROWID;

CREATE TABLE gaps(
  project TEXT NOT NULL, job TEXT NOT NULL, run TEXT NOT NULL, rank INTEGER NOT NULL, step INTEGER NOT NULL,
  missed INTEGER NOT NULL, reasons TEXT NOT NULL,
  PRIMARY KEY(project, job, run, rank, step)) WITHOUT ROWID;
)sql";

// The verdicts of before have no surprise, and their messages are without it.
constexpr char kVersion2[] = R"sql(
ALTER TABLE verdicts ADD COLUMN surprise REAL;
DROP INDEX verdicts_by_margin;
CREATE INDEX verdicts_by_surprise ON verdicts(project, job, surprise, margin);
)sql";

// What is known of a job without counting, what a run remembers, and places to search by time. Triggers keep the
// counts, so that whoever adds or removes rows cannot forget them.
constexpr char kVersion3[] = R"sql(
ALTER TABLE runs ADD COLUMN last_step INTEGER NOT NULL DEFAULT -1;
ALTER TABLE runs ADD COLUMN client TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN owner TEXT NOT NULL DEFAULT '';
UPDATE runs SET last_step = coalesce((SELECT max(step) FROM verdicts WHERE verdicts.project=runs.project AND
  verdicts.job=runs.job AND verdicts.run=runs.run AND verdicts.rank=runs.rank), -1);

CREATE TABLE memories(
  project TEXT NOT NULL, job TEXT NOT NULL, run TEXT NOT NULL, rank INTEGER NOT NULL, memory BLOB NOT NULL,
  PRIMARY KEY(project, job, run, rank));

CREATE TABLE jobs(
  project TEXT NOT NULL, job TEXT NOT NULL, first_seen_us INTEGER NOT NULL, last_seen_us INTEGER NOT NULL,
  type_i INTEGER NOT NULL DEFAULT 0, type_ii INTEGER NOT NULL DEFAULT 0, inconclusive INTEGER NOT NULL DEFAULT 0,
  missed INTEGER NOT NULL DEFAULT 0, errors INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY(project, job)) WITHOUT ROWID;
INSERT INTO jobs(project, job, first_seen_us, last_seen_us)
  SELECT project, job, min(first_seen_us), max(last_seen_us) FROM runs GROUP BY project, job;
UPDATE jobs SET
  type_i=(SELECT count(*) FROM verdicts v WHERE v.project=jobs.project AND v.job=jobs.job AND v.outcome=1),
  type_ii=(SELECT count(*) FROM verdicts v WHERE v.project=jobs.project AND v.job=jobs.job AND v.outcome=2),
  inconclusive=(SELECT count(*) FROM verdicts v WHERE v.project=jobs.project AND v.job=jobs.job AND v.outcome=3),
  missed=(SELECT coalesce(sum(missed), 0) FROM gaps g WHERE g.project=jobs.project AND g.job=jobs.job),
  errors=(SELECT count(*) FROM errors e WHERE e.project=jobs.project AND e.job=jobs.job);

CREATE TRIGGER run_added AFTER INSERT ON runs BEGIN
  INSERT INTO jobs(project, job, first_seen_us, last_seen_us)
    VALUES(new.project, new.job, new.first_seen_us, new.last_seen_us)
    ON CONFLICT DO UPDATE SET first_seen_us=min(first_seen_us, excluded.first_seen_us),
      last_seen_us=max(last_seen_us, excluded.last_seen_us);
END;
CREATE TRIGGER run_seen AFTER UPDATE OF first_seen_us, last_seen_us ON runs BEGIN
  UPDATE jobs SET first_seen_us=min(first_seen_us, new.first_seen_us), last_seen_us=max(last_seen_us, new.last_seen_us)
    WHERE project=new.project AND job=new.job;
END;
CREATE TRIGGER run_removed AFTER DELETE ON runs BEGIN
  DELETE FROM memories WHERE project=old.project AND job=old.job AND run=old.run AND rank=old.rank;
  DELETE FROM jobs WHERE project=old.project AND job=old.job AND
    NOT EXISTS(SELECT 1 FROM runs WHERE runs.project=old.project AND runs.job=old.job);
END;
CREATE TRIGGER verdict_added AFTER INSERT ON verdicts BEGIN
  UPDATE jobs SET type_i=type_i+(new.outcome=1), type_ii=type_ii+(new.outcome=2),
    inconclusive=inconclusive+(new.outcome=3) WHERE project=new.project AND job=new.job;
  UPDATE runs SET last_step=new.step
    WHERE project=new.project AND job=new.job AND run=new.run AND rank=new.rank AND last_step<new.step;
END;
CREATE TRIGGER verdict_removed AFTER DELETE ON verdicts BEGIN
  UPDATE jobs SET type_i=type_i-(old.outcome=1), type_ii=type_ii-(old.outcome=2),
    inconclusive=inconclusive-(old.outcome=3) WHERE project=old.project AND job=old.job;
END;
CREATE TRIGGER error_added AFTER INSERT ON errors BEGIN
  UPDATE jobs SET errors=errors+1 WHERE project=new.project AND job=new.job;
END;
CREATE TRIGGER error_removed AFTER DELETE ON errors BEGIN
  UPDATE jobs SET errors=errors-1 WHERE project=old.project AND job=old.job;
END;
CREATE TRIGGER gap_added AFTER INSERT ON gaps BEGIN
  UPDATE jobs SET missed=missed+new.missed WHERE project=new.project AND job=new.job;
END;
CREATE TRIGGER gap_grown AFTER UPDATE OF missed ON gaps BEGIN
  UPDATE jobs SET missed=missed+new.missed-old.missed WHERE project=new.project AND job=new.job;
END;
CREATE TRIGGER gap_removed AFTER DELETE ON gaps BEGIN
  UPDATE jobs SET missed=missed-old.missed WHERE project=old.project AND job=old.job;
END;

CREATE INDEX verdicts_by_time ON verdicts(time_us);
CREATE INDEX errors_by_time ON errors(time_us);
CREATE INDEX runs_by_time ON runs(last_seen_us);
)sql";

// Steps by their trace ids. Verdicts of before have theirs in `summary`: tag and length of Verdict.trace_id, then 32
// digits. NULL, not an empty text, is what the index leaves out: a search for an id finds it without being told so.
constexpr char kVersion4[] = R"sql(
ALTER TABLE verdicts ADD COLUMN trace_id TEXT;
UPDATE verdicts SET trace_id=CAST(substr(summary, instr(summary, X'A20220') + 3, 32) AS TEXT)
  WHERE instr(summary, X'A20220')>0;
UPDATE verdicts SET trace_id=NULL WHERE length(trace_id)<>32 OR trace_id GLOB '*[^0-9a-f]*';
CREATE INDEX verdicts_by_trace_id ON verdicts(trace_id) WHERE trace_id IS NOT NULL;
ALTER TABLE errors ADD COLUMN trace_id TEXT NOT NULL DEFAULT '';
)sql";

// What a daemon ships to a history that it shares with others: verdicts by their sequence, and a note of everything
// else that changed, of which the newest alone counts. Triggers write the notes, so that they are of the same commit.
constexpr char kVersion5[] = R"sql(
CREATE TABLE node(
  only_row INTEGER PRIMARY KEY CHECK(only_row=1), id TEXT NOT NULL, ships INTEGER NOT NULL DEFAULT 0,
  history TEXT NOT NULL DEFAULT '', shipped INTEGER NOT NULL DEFAULT 0);
INSERT INTO node(only_row, id) VALUES(1, lower(hex(randomblob(16))));

CREATE TABLE outbox(
  number INTEGER PRIMARY KEY AUTOINCREMENT, kind INTEGER NOT NULL,
  project TEXT NOT NULL, job TEXT NOT NULL, run TEXT NOT NULL, rank INTEGER NOT NULL, step INTEGER NOT NULL,
  detail TEXT NOT NULL, time_us INTEGER NOT NULL,
  UNIQUE(project, job, run, rank, step, kind, detail));

CREATE TRIGGER run_to_ship AFTER INSERT ON runs WHEN (SELECT ships FROM node) BEGIN
  DELETE FROM outbox WHERE project=new.project AND job=new.job AND run=new.run AND rank=new.rank AND step=-1 AND kind=1;
  INSERT INTO outbox(kind, project, job, run, rank, step, detail, time_us)
    VALUES(1, new.project, new.job, new.run, new.rank, -1, '', strftime('%s', 'now')*1000000);
END;
CREATE TRIGGER client_to_ship AFTER UPDATE OF client ON runs WHEN (SELECT ships FROM node) BEGIN
  DELETE FROM outbox WHERE project=new.project AND job=new.job AND run=new.run AND rank=new.rank AND step=-1 AND kind=1;
  INSERT INTO outbox(kind, project, job, run, rank, step, detail, time_us)
    VALUES(1, new.project, new.job, new.run, new.rank, -1, '', strftime('%s', 'now')*1000000);
END;
CREATE TRIGGER error_to_ship AFTER INSERT ON errors WHEN (SELECT ships FROM node) BEGIN
  DELETE FROM outbox WHERE project=new.project AND job=new.job AND run=new.run AND rank=new.rank AND step=new.step AND
    kind=2 AND detail=new.digest;
  INSERT INTO outbox(kind, project, job, run, rank, step, detail, time_us)
    VALUES(2, new.project, new.job, new.run, new.rank, new.step, new.digest, strftime('%s', 'now')*1000000);
END;
CREATE TRIGGER later_error_to_ship AFTER UPDATE ON errors WHEN (SELECT ships FROM node) BEGIN
  DELETE FROM outbox WHERE project=new.project AND job=new.job AND run=new.run AND rank=new.rank AND step=new.step AND
    kind=2 AND detail=new.digest;
  INSERT INTO outbox(kind, project, job, run, rank, step, detail, time_us)
    VALUES(2, new.project, new.job, new.run, new.rank, new.step, new.digest, strftime('%s', 'now')*1000000);
END;
CREATE TRIGGER gap_to_ship AFTER INSERT ON gaps WHEN (SELECT ships FROM node) BEGIN
  DELETE FROM outbox WHERE project=new.project AND job=new.job AND run=new.run AND rank=new.rank AND step=new.step AND
    kind=3;
  INSERT INTO outbox(kind, project, job, run, rank, step, detail, time_us)
    VALUES(3, new.project, new.job, new.run, new.rank, new.step, '', strftime('%s', 'now')*1000000);
END;
CREATE TRIGGER larger_gap_to_ship AFTER UPDATE OF missed ON gaps WHEN (SELECT ships FROM node) BEGIN
  DELETE FROM outbox WHERE project=new.project AND job=new.job AND run=new.run AND rank=new.rank AND step=new.step AND
    kind=3;
  INSERT INTO outbox(kind, project, job, run, rank, step, detail, time_us)
    VALUES(3, new.project, new.job, new.run, new.rank, new.step, '', strftime('%s', 'now')*1000000);
END;
)sql";

// How far verdicts are in the stream that they are published to.
constexpr char kVersion6[] = R"sql(
ALTER TABLE node ADD COLUMN publishes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE node ADD COLUMN stream TEXT NOT NULL DEFAULT '';
ALTER TABLE node ADD COLUMN published INTEGER NOT NULL DEFAULT 0;
ALTER TABLE node ADD COLUMN stream_last INTEGER NOT NULL DEFAULT 0;
)sql";

constexpr const char* kVersions[] = {kVersion1, kVersion2, kVersion3, kVersion4, kVersion5, kVersion6};
static_assert(std::size(kVersions) == kSchemaVersion);

absl::Status at_path(const absl::Status& status, const std::string& path) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

// What a file is, from a connection that cannot write.
struct Found {
  std::int64_t application = 0, version = 0, tables = 0;
  bool fresh() const { return tables == 0 && application == 0 && version == 0; }
};

absl::StatusOr<Found> look(const SqliteConnection& connection, const std::string& path) {
  Found found;
  const std::pair<std::int64_t*, const char*> all[] = {{&found.application, "PRAGMA application_id"},
                                                       {&found.version, "PRAGMA user_version"},
                                                       {&found.tables, "SELECT count(*) FROM sqlite_master"}};
  for (const auto& [value, sql] : all) {
    const auto read = connection.integer(sql);
    if (!read.ok()) return at_path(read.status(), path);
    *value = *read;
  }
  return found;
}

absl::Status check(const Found& found, const std::string& path) {
  if (found.fresh()) return absl::OkStatus();
  if (found.application != kApplicationId) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is a database of another application (application_id ",
                                                      found.application, ", expected ", kApplicationId,
                                                      "); choose another --data-dir"));
  }
  if (found.version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " has format version ", found.version, ", written by a newer plumblined; this one reads up to version ",
        kSchemaVersion, "; start the newer one or choose another --data-dir"));
  }
  return absl::OkStatus();
}

// Before anything is opened for writing: what is refused stays as it is.
absl::Status check_file(const std::string& path, const std::string& vfs) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return absl::OkStatus();
  const auto connection = SqliteConnection::open(path, vfs, SqliteConnection::Mode::kReadOnly);
  if (!connection.ok()) return connection.status();
  const auto found = look(**connection, path);
  return found.ok() ? check(*found, path) : found.status();
}

absl::Status upgrade(const SqliteConnection& connection, const std::string& path) {
  const auto found = look(connection, path);
  if (!found.ok()) return found.status();
  if (!found->fresh()) {
    const auto damage = connection.text("PRAGMA quick_check(1)");
    if (!damage.ok()) return at_path(damage.status(), path);
    if (*damage != "ok") {
      return absl::DataLossError(absl::StrCat(path, " is damaged (", *damage, "); restore it or move it away"));
    }
  }
  for (std::int64_t version = found->version; version < kSchemaVersion; ++version) {
    const auto changed =
        connection.run(absl::StrCat("BEGIN IMMEDIATE;", kVersions[version], "PRAGMA application_id=", kApplicationId,
                                    ";PRAGMA user_version=", version + 1, ";COMMIT;"));
    if (!changed.ok()) {
      if (connection.in_transaction()) connection.run("ROLLBACK").IgnoreError();
      return absl::Status(changed.code(),
                          absl::StrCat(path, ": cannot be brought to version ", version + 1, ": ", changed.message()));
    }
  }
  // What is removed gives its pages back in steps. A database that was made without that is rewritten once; where the
  // disk has no room for it, its pages are used again all the same.
  const auto vacuum = connection.integer("PRAGMA auto_vacuum");
  if (!vacuum.ok()) return at_path(vacuum.status(), path);
  if (*vacuum != kIncremental) connection.run("PRAGMA auto_vacuum=INCREMENTAL; VACUUM").IgnoreError();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteConnection>> open_writer(const std::string& path, const std::string& vfs) {
  if (auto checked = check_file(path, vfs); !checked.ok()) return checked;
  auto connection = SqliteConnection::open(path, vfs, SqliteConnection::Mode::kCreate);
  if (!connection.ok()) return connection.status();
  // SQLite takes this for a database without tables alone; it needs the file's header, as every pragma here does: a
  // file that is not a database fails at the first one.
  auto set = (*connection)->run("PRAGMA auto_vacuum=INCREMENTAL");
  if (!set.ok()) return at_path(set, path);
  auto mode = (*connection)->text("PRAGMA journal_mode=WAL");
  if (!mode.ok()) return at_path(mode.status(), path);
  if (*mode != "wal") {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": the file system cannot hold a write-ahead log (journal mode is ", *mode, ")"));
  }
  set = (*connection)->run("PRAGMA synchronous=FULL; PRAGMA journal_size_limit=67108864;");
  if (!set.ok()) return at_path(set, path);
  if (auto upgraded = upgrade(**connection, path); !upgraded.ok()) return upgraded;
  return connection;
}

absl::StatusOr<std::unique_ptr<SqliteConnection>> open_reader(const std::string& path, const std::string& vfs) {
  auto connection = SqliteConnection::open(path, vfs, SqliteConnection::Mode::kCreate);
  if (!connection.ok()) return connection.status();
  auto set = (*connection)->run("PRAGMA query_only=1");
  if (!set.ok()) return at_path(set, path);
  return connection;
}

}  // namespace plumbline
