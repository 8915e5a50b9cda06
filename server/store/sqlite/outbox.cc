#include "server/store/sqlite/outbox.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/store/sqlite/schema.h"
#include "server/store/sqlite/unsent.h"

namespace plumbline {
namespace {

// What a note is about; the numbers are those of the triggers (schema.cc).
enum Kind : std::int64_t { kRun = 1, kError = 2, kGap = 3, kRemoval = 4 };

StepIdentity identity(const SqlStatement& row, int first) {
  return {row.text(first), row.text(first + 1), row.text(first + 2), static_cast<std::int32_t>(row.integer(first + 3)),
          row.integer(first + 4)};
}

// Notes with what they are about, as it is now. A row that is gone leaves NULLs: the note is answered by nothing.
constexpr char kNotesOfRuns[] =
    "SELECT o.number, o.kind, o.project, o.job, o.run, o.rank, o.step, o.detail, r.owner, r.client, r.first_seen_us, "
    "r.last_seen_us FROM outbox AS o LEFT JOIN runs AS r ON r.project=o.project AND r.job=o.job AND r.run=o.run AND "
    "r.rank=o.rank WHERE o.kind IN (1, 4) ORDER BY o.number LIMIT ?";
constexpr char kNotesOfSteps[] =
    "SELECT o.number, o.kind, o.project, o.job, o.run, o.rank, o.step, o.detail, r.owner, e.code, e.message, "
    "e.time_us, g.missed, g.reasons, e.trace_id FROM outbox AS o LEFT JOIN runs AS r ON r.project=o.project AND "
    "r.job=o.job AND "
    "r.run=o.run AND r.rank=o.rank LEFT JOIN errors AS e ON o.kind=2 AND e.project=o.project AND e.job=o.job AND "
    "e.run=o.run AND e.rank=o.rank AND e.step=o.step AND e.digest=o.detail LEFT JOIN gaps AS g ON o.kind=3 AND "
    "g.project=o.project AND g.job=o.job AND g.run=o.run AND g.rank=o.rank AND g.step=o.step "
    "WHERE o.kind IN (2, 3) ORDER BY o.number LIMIT ?";
// Everything but verdicts, which are found by their sequence, is noted.
constexpr char kNoteAll[] = R"sql(
INSERT OR IGNORE INTO outbox(kind, project, job, run, rank, step, detail, time_us)
  SELECT 1, project, job, run, rank, -1, '', strftime('%s', 'now')*1000000 FROM runs ORDER BY first_seen_us;
INSERT OR IGNORE INTO outbox(kind, project, job, run, rank, step, detail, time_us)
  SELECT 2, project, job, run, rank, step, digest, strftime('%s', 'now')*1000000 FROM errors ORDER BY time_us;
INSERT OR IGNORE INTO outbox(kind, project, job, run, rank, step, detail, time_us)
  SELECT 3, project, job, run, rank, step, '', strftime('%s', 'now')*1000000 FROM gaps;
)sql";

// Beside the versions of the schema, so that an older daemon can have the directory back: it leaves the table alone.
constexpr char kParts[] =
    "CREATE TABLE IF NOT EXISTS node_parts(number INTEGER PRIMARY KEY AUTOINCREMENT, project TEXT NOT NULL, job TEXT "
    "NOT "
    "NULL, run TEXT NOT NULL, rank INTEGER NOT NULL, step INTEGER NOT NULL, ranks TEXT NOT NULL, ranks_of_run INTEGER "
    "NOT NULL, digest TEXT NOT NULL, part BLOB NOT NULL, time_us INTEGER NOT NULL, UNIQUE(project, job, run, rank, "
    "step))";

}  // namespace

absl::StatusOr<std::unique_ptr<Outbox>> Outbox::open(const std::string& data_dir, SqlStore* store,
                                                     const std::string& vfs) {
  auto reader = open_reader(data_dir + "/verdicts.db", vfs);
  if (!reader.ok()) return reader.status();
  auto node = (*reader)->text("SELECT id FROM node");
  if (!node.ok()) return node.status();
  const absl::Status begun = commit_change(store, [](const SqlConnection& connection) {
    if (auto made = connection.run(kParts); !made.ok()) return made;
    return connection.run("UPDATE node SET ships=1, history='', shipped=0 WHERE NOT ships");
  });
  if (!begun.ok()) return begun;
  return std::unique_ptr<Outbox>(new Outbox(store, *std::move(reader), *std::move(node)));
}

absl::Status Outbox::close(SqlStore* store) {
  return commit_change(store, [](const SqlConnection& connection) {
    return connection.run("UPDATE node SET ships=0 WHERE ships; DELETE FROM outbox; DROP TABLE IF EXISTS node_parts");
  });
}

absl::Status Outbox::begin(const std::string& history) {
  return commit_change(store_, [&history](const SqlConnection& connection) {
    const auto before = connection.text("SELECT history FROM node");
    if (!before.ok() || *before == history) return before.status();
    auto set = connection.prepare("UPDATE node SET history=?, shipped=0");
    if (!set.ok()) return set.status();
    if (auto done = set->bind(history).run(); !done.ok()) return done;
    return connection.run(kNoteAll);
  });
}

absl::Status Outbox::acknowledge(const Shipment& shipment) {
  return commit_change(store_, [&shipment](const SqlConnection& connection) {
    auto mark = connection.prepare("UPDATE node SET shipped=? WHERE shipped<?");
    if (!mark.ok()) return mark.status();
    if (auto done = mark->bind(shipment.through).bind(shipment.through).run(); !done.ok()) return done;
    auto answered = connection.prepare("DELETE FROM outbox WHERE number=?");
    if (!answered.ok()) return answered.status();
    for (const std::int64_t number : shipment.notes) {
      if (auto done = answered->bind(number).run(); !done.ok()) return done;
    }
    auto told = connection.prepare("DELETE FROM node_parts WHERE number=?");
    if (!told.ok()) return told.status();
    for (const std::int64_t number : shipment.told) {
      if (auto done = told->bind(number).run(); !done.ok()) return done;
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Shipment> Outbox::next() const {
  const std::lock_guard lock(mutex_);
  if (auto begun = reader_->begin_read(); !begun.ok()) return begun;
  auto shipment = read();
  if (auto ended = reader_->roll_back(); !ended.ok()) return ended;
  return shipment;
}

// Runs come first, since their owners own what follows, and removals before them; refusals and gaps once all verdicts
// are there, of which one takes the place of a refusal that came before it.
absl::StatusOr<Shipment> Outbox::read() const {
  Shipment shipment;
  const auto after = reader_->integer("SELECT shipped FROM node");
  if (!after.ok()) return after.status();
  shipment.through = *after;
  if (auto read = read_notes(true, &shipment); !read.ok()) return read;
  if (shipment.more) return shipment;
  if (auto read = read_verdicts(*after, &shipment); !read.ok()) return read;
  if (shipment.more) return shipment;
  // What was removed before it was shipped is not waited for.
  const auto last = reader_->last_sequence();
  if (!last.ok()) return last.status();
  shipment.through = *last;
  if (auto read = read_notes(false, &shipment); !read.ok()) return read;
  if (auto read = read_parts(&shipment); !read.ok()) return read;
  return shipment;
}

void Outbox::put(NodePartRow part) {
  store_->change(
      [part = std::move(part)](const SqlConnection& connection) -> absl::Status {
        auto put = connection.prepare(
            "INSERT OR REPLACE INTO node_parts(project, job, run, rank, step, ranks, ranks_of_run, digest, part, "
            "time_us) "
            "VALUES(?,?,?,?,?,?,?,?,?,strftime('%s', 'now')*1000000)");
        if (!put.ok()) return put.status();
        const StepIdentity& step = part.step;
        put->bind(step.project).bind(step.job).bind(step.run).bind(step.rank).bind(step.step);
        put->bind(absl::StrJoin(part.ranks, ",")).bind(part.ranks_of_run).bind(part.digest);
        return put->bind_blob(part.part).run();
      },
      [](const absl::Status&) {});
}

absl::Status Outbox::read_parts(Shipment* into) const {
  auto rows = reader_->prepare(
      "SELECT p.number, p.project, p.job, p.run, p.rank, p.step, p.ranks, p.ranks_of_run, p.digest, p.part, r.owner "
      "FROM node_parts AS p LEFT JOIN runs AS r ON r.project=p.project AND r.job=p.job AND r.run=p.run AND "
      "r.rank=p.rank ORDER BY p.number LIMIT ?");
  if (!rows.ok()) return rows.status();
  const SqlReset reset(*rows);
  rows->bind(kRecordsMax);
  std::size_t bytes = 0;
  for (int read = 0; bytes < kBytesMax; ++read) {
    const auto row = rows->step();
    if (!row.ok()) return row.status();
    if (!*row) break;
    into->told.push_back(rows->integer(0));
    NodePartRow part{identity(*rows, 1), {}, static_cast<std::int32_t>(rows->integer(7)), rows->text(8), rows->text(9)};
    for (const auto rank : absl::StrSplit(rows->text(6), ',')) {
      std::int32_t number = 0;
      if (absl::SimpleAtoi(rank, &number)) part.ranks.push_back(number);
    }
    bytes += part.part.size();
    if (!rows->is_null(10)) into->parts.push_back({std::move(part), rows->text(10)});  // Otherwise its run is removed.
    into->more = into->more || read + 1 == kRecordsMax || bytes >= kBytesMax;
  }
  return absl::OkStatus();
}

absl::Status Outbox::read_notes(bool runs, Shipment* into) const {
  auto notes = reader_->prepare(runs ? kNotesOfRuns : kNotesOfSteps);
  if (!notes.ok()) return notes.status();
  const SqlReset reset(*notes);
  notes->bind(kRecordsMax);
  int read = 0;
  for (;; ++read) {
    const auto row = notes->step();
    if (!row.ok()) return row.status();
    if (!*row) break;
    into->notes.push_back(notes->integer(0));
    const StepIdentity of = identity(*notes, 2);
    const std::string detail = notes->text(7), owner = notes->text(8);
    switch (notes->integer(1)) {
      case kRemoval:
        into->removals.push_back({of, detail});
        break;
      case kRun:
        if (!notes->is_null(8)) {
          into->runs.push_back({of, owner, notes->text(9), notes->integer(10), notes->integer(11)});
        }
        break;
      case kError:
        if (!notes->is_null(9)) {
          const absl::Status error(static_cast<absl::StatusCode>(notes->integer(9)), notes->text(10));
          into->errors.push_back({of, owner, detail, error, notes->text(14), notes->integer(11)});
        }
        break;
      default:  // kGap.
        if (!notes->is_null(12)) {
          const std::vector<std::string> reasons = absl::StrSplit(notes->text(13), '\n', absl::SkipEmpty());
          into->gaps.push_back({of, owner, {notes->integer(12), reasons}});
        }
    }
  }
  into->more = into->more || read == kRecordsMax;
  return absl::OkStatus();
}

absl::Status Outbox::read_verdicts(std::int64_t after, Shipment* into) const {
  auto unsent = read_unsent(*reader_, after, kRecordsMax, kBytesMax);
  if (!unsent.ok()) return unsent.status();
  into->through = unsent->through;
  into->more = unsent->more;
  into->unreadable = std::move(unsent->unreadable);
  for (UnsentVerdicts::Verdict& sent : unsent->verdicts) {
    auto made = make_row(sent.verdict);
    if (made.ok()) {
      into->verdicts.push_back({*std::move(made), std::move(sent.owner)});
    } else {
      into->unreadable.push_back(
          absl::StrCat("the verdict of sequence ", sent.sequence, ": ", made.status().message()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::int64_t> Outbox::shipped() const {
  const std::lock_guard lock(mutex_);
  return reader_->integer("SELECT shipped FROM node");
}

absl::StatusOr<Backlog> Outbox::backlog() const {
  const std::lock_guard lock(mutex_);
  return read_backlog(
      *reader_,
      "SELECT (SELECT count(*) FROM outbox)+(SELECT count(*) FROM node_parts)+(SELECT max(0, coalesce((SELECT seq FROM "
      "sqlite_sequence WHERE "
      "name='verdicts'), 0)-shipped) FROM node)",
      "SELECT min(t) FROM (SELECT time_us AS t FROM (SELECT time_us FROM outbox ORDER BY number LIMIT 1) UNION ALL "
      "SELECT time_us FROM (SELECT time_us FROM node_parts ORDER BY number LIMIT 1) UNION ALL "
      "SELECT time_us FROM (SELECT time_us FROM verdicts WHERE sequence>(SELECT shipped FROM node) ORDER BY sequence "
      "LIMIT 1))");
}

}  // namespace plumbline
