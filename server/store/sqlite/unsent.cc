#include "server/store/sqlite/unsent.h"

#include <future>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

constexpr char kVerdicts[] =
    "SELECT v.sequence, v.summary, v.detail, coalesce(r.owner, '') FROM verdicts AS v LEFT JOIN runs AS r ON "
    "r.project=v.project AND r.job=v.job AND r.run=v.run AND r.rank=v.rank WHERE v.sequence>? ORDER BY v.sequence "
    "LIMIT ?";

}  // namespace

absl::StatusOr<UnsentVerdicts> read_unsent(const SqlConnection& reader, std::int64_t after, int records_max,
                                           std::size_t bytes_max) {
  auto rows = reader.prepare(kVerdicts);
  if (!rows.ok()) return rows.status();
  const SqlReset reset(*rows);
  rows->bind(after).bind(records_max);
  UnsentVerdicts unsent;
  unsent.through = after;
  int read = 0;
  std::size_t bytes = 0;
  while (bytes < bytes_max) {
    const auto row = rows->step();
    if (!row.ok()) return row.status();
    if (!*row) break;
    ++read;
    unsent.through = rows->integer(0);
    const std::string whole = absl::StrCat(rows->text(1), rows->text(2));
    bytes += whole.size();
    UnsentVerdicts::Verdict sent{unsent.through, {}, rows->text(3)};
    if (sent.verdict.ParseFromString(whole)) {
      unsent.verdicts.push_back(std::move(sent));
    } else {
      unsent.unreadable.push_back(absl::StrCat("the verdict of sequence ", unsent.through, " cannot be parsed"));
    }
  }
  unsent.more = read == records_max || bytes >= bytes_max;
  return unsent;
}

absl::StatusOr<Backlog> read_backlog(const SqlConnection& reader, const char* records, const char* oldest_us) {
  const auto number = reader.integer(records);
  if (!number.ok()) return number.status();
  const auto oldest = reader.integer(oldest_us);
  if (!oldest.ok()) return oldest.status();
  return Backlog{*number, *oldest};
}

absl::Status commit_change(SqlStore* store, SqlStore::Change change) {
  std::promise<absl::Status> answer;
  store->change(std::move(change), [&](const absl::Status& status) {
    answer.set_value({status.code(), status.message()});
  });
  return answer.get_future().get();
}

}  // namespace plumbline
