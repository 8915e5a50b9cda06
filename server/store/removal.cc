#include "server/store/removal.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/store/filter.h"

namespace plumbline {
namespace {

constexpr std::int64_t kRowsMax = 500;

// Removes the rows of a table that match, and the gaps that were told with those steps. `key`: columns that name a row.
// How many.
absl::StatusOr<std::int64_t> remove_rows(const SqlConnection& connection, const std::string& table,
                                         const std::string& key, const std::string& order, const Where& where,
                                         std::int64_t limit) {
  auto removal = connection.prepare(absl::StrCat("DELETE FROM ", table, " WHERE (", key, ") IN (SELECT ", key, " FROM ",
                                                 table, " WHERE ", where.sql, " ", order,
                                                 " LIMIT ?) RETURNING project, job, run, rank, step"));
  if (!removal.ok()) return removal.status();
  where.bind(*removal);
  removal->bind(limit);
  std::vector<StepIdentity> steps;  // Read to the end before the next statement begins.
  for (;;) {
    auto row = removal->step();
    if (!row.ok()) return row.status();
    if (!*row) break;
    steps.push_back({removal->text(0), removal->text(1), removal->text(2),
                     static_cast<std::int32_t>(removal->integer(3)), removal->integer(4)});
  }
  auto gap = connection.prepare("DELETE FROM gaps WHERE project=? AND job=? AND run=? AND rank=? AND step=?");
  if (!gap.ok()) return gap.status();
  for (const StepIdentity& step : steps) {
    gap->bind(step.project).bind(step.job).bind(step.run).bind(step.rank).bind(step.step);
    if (auto removed = gap->run(); !removed.ok()) return removed;
  }
  return static_cast<std::int64_t>(steps.size());
}

absl::StatusOr<std::int64_t> remove_verdicts(const SqlConnection& connection, const Where& where,
                                             const std::string& order, std::int64_t limit) {
  return remove_rows(connection, "verdicts", "sequence", order, where, limit);
}

absl::StatusOr<std::int64_t> remove_errors(const SqlConnection& connection, const Where& where,
                                           const std::string& order, std::int64_t limit) {
  return remove_rows(connection, "errors", "project,job,run,rank,step,digest", order, where, limit);
}

// What a limit may take of a table.
Where removable(const SqlConnection& connection, std::string_view table) {
  Where where;
  where.add(connection.removable(table));
  return where;
}

Where before(const std::string& column, absl::Duration age, std::int64_t now_us, Where where) {
  where.add(absl::StrCat(column, "<?"), now_us - absl::ToInt64Microseconds(age));
  return where;
}

absl::StatusOr<std::int64_t> expire_verdicts(const SqlConnection& connection, const KeepLimits& limits,
                                             std::int64_t now_us) {
  const Where may = removable(connection, "verdicts");
  if (limits.age != absl::InfiniteDuration()) {
    const auto old =
        remove_verdicts(connection, before("time_us", limits.age, now_us, may), "ORDER BY time_us", kRowsMax);
    if (!old.ok() || *old > 0) return old;
  }
  if (limits.count > 0) {
    const auto held =
        connection.integer("SELECT CAST(coalesce(sum(type_i+type_ii+inconclusive), 0) AS BIGINT) FROM jobs");
    if (!held.ok()) return held.status();
    if (*held > limits.count) {
      return remove_verdicts(connection, may, "ORDER BY sequence", std::min(kRowsMax, *held - limits.count));
    }
  }
  if (limits.bytes > 0) {
    const auto used = connection.used_bytes();
    if (!used.ok()) return used.status();
    if (*used > limits.bytes) return remove_verdicts(connection, may, "ORDER BY sequence", kRowsMax / 10);
  }
  return 0;
}

absl::StatusOr<std::int64_t> expire_errors(const SqlConnection& connection, const KeepLimits& limits,
                                           std::int64_t now_us) {
  const Where may = removable(connection, "errors");
  if (limits.age != absl::InfiniteDuration()) {
    const auto old =
        remove_errors(connection, before("time_us", limits.age, now_us, may), "ORDER BY time_us", kRowsMax);
    if (!old.ok() || *old > 0) return old;
  }
  if (limits.count == 0) return 0;
  const auto held = connection.integer("SELECT CAST(coalesce(sum(errors), 0) AS BIGINT) FROM jobs");
  if (!held.ok()) return held.status();
  if (*held <= limits.count) return 0;
  return remove_errors(connection, may, "ORDER BY time_us", std::min(kRowsMax, *held - limits.count));
}

// Removes the rows that `where` matches: verdicts first, then errors, gaps and runs.
absl::StatusOr<std::int64_t> remove_matching(const SqlConnection& connection, const Where& where) {
  for (const auto remove : {remove_verdicts, remove_errors}) {
    const auto removed = remove(connection, where, "", kRowsMax);
    if (!removed.ok() || *removed > 0) return removed;
  }
  for (const char* const table : {"gaps", "runs"}) {
    auto removal = connection.prepare(absl::StrCat("DELETE FROM ", table, " WHERE ", where.sql));
    if (!removal.ok()) return removal.status();
    where.bind(*removal);
    if (auto removed = removal->run(); !removed.ok()) return removed;
  }
  return 0;
}

Where of_run(const StepIdentity& run) {
  Where where;
  where.add("project=?", run.project);
  where.add("job=?", run.job);
  where.add("run=?", run.run);
  where.add("rank=?", static_cast<std::int64_t>(run.rank));
  return where;
}

absl::StatusOr<std::int64_t> expire_runs(const SqlConnection& connection, const KeepLimits& limits,
                                         std::int64_t now_us) {
  const Where may = removable(connection, "runs");
  std::optional<Where> due;
  if (limits.age != absl::InfiniteDuration()) due = before("last_seen_us", limits.age, now_us, may);
  if (limits.count > 0) {
    const auto held = connection.integer("SELECT count(*) FROM runs");
    if (!held.ok()) return held.status();
    if (*held > limits.count) due = may;
  }
  if (!due) return 0;
  auto oldest = connection.prepare(
      absl::StrCat("SELECT project, job, run, rank FROM runs WHERE ", due->sql, " ORDER BY last_seen_us LIMIT 1"));
  if (!oldest.ok()) return oldest.status();
  due->bind(*oldest);
  const auto row = oldest->step();
  if (!row.ok()) return row.status();
  if (!*row) return 0;
  const StepIdentity run = {oldest->text(0), oldest->text(1), oldest->text(2),
                            static_cast<std::int32_t>(oldest->integer(3)), 0};
  oldest->reset();
  const auto removed = remove_matching(connection, of_run(run));
  if (!removed.ok()) return removed;
  return std::max<std::int64_t>(*removed, 1);  // The run itself.
}

absl::StatusOr<bool> give_back(const SqlConnection& connection, bool more) {
  if (auto given = connection.give_back(); !given.ok()) return given;
  return more;
}

}  // namespace

absl::StatusOr<bool> expire_some(const SqlConnection& connection, const Retention& retention, std::int64_t now_us) {
  const struct {
    const KeepLimits& limits;
    absl::StatusOr<std::int64_t> (*expire)(const SqlConnection&, const KeepLimits&, std::int64_t);
  } kinds[] = {{retention.verdicts, expire_verdicts}, {retention.errors, expire_errors}, {retention.runs, expire_runs}};
  for (const auto& kind : kinds) {
    const auto removed = kind.expire(connection, kind.limits, now_us);
    if (!removed.ok()) return removed.status();
    if (*removed > 0) return give_back(connection, true);
  }
  return give_back(connection, false);
}

absl::StatusOr<bool> remove_some(const SqlConnection& connection, const std::string& project, const std::string& job) {
  if (auto noted = connection.note_removal(project, job); !noted.ok()) return noted;
  Where where;
  where.add("project=?", project);
  where.add("job=?", job);
  const auto removed = remove_matching(connection, where);
  if (!removed.ok()) return removed.status();
  return give_back(connection, *removed > 0);
}

absl::StatusOr<bool> remove_some(const SqlConnection& connection, const StepIdentity& run) {
  const auto removed = remove_matching(connection, of_run(run));
  if (!removed.ok()) return removed.status();
  return give_back(connection, *removed > 0);
}

}  // namespace plumbline
