#include "server/store/sqlite/publish_cursor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/store/sqlite/schema.h"

namespace plumbline {

absl::StatusOr<std::unique_ptr<PublishCursor>> PublishCursor::open(const std::string& data_dir, SqlStore* store,
                                                                   const std::string& vfs) {
  auto reader = open_reader(data_dir + "/verdicts.db", vfs);
  if (!reader.ok()) return reader.status();
  auto node = (*reader)->text("SELECT id FROM node");
  if (!node.ok()) return node.status();
  const absl::Status begun = commit_change(store, [](const SqlConnection& connection) {
    return connection.run("UPDATE node SET publishes=1, stream='', published=0, stream_last=0 WHERE NOT publishes");
  });
  if (!begun.ok()) return begun;
  return std::unique_ptr<PublishCursor>(new PublishCursor(store, *std::move(reader), *std::move(node)));
}

absl::Status PublishCursor::close(SqlStore* store) {
  return commit_change(store, [](const SqlConnection& connection) {
    return connection.run("UPDATE node SET publishes=0 WHERE publishes");
  });
}

absl::StatusOr<PublishCursor::Place> PublishCursor::place() const {
  const std::lock_guard lock(mutex_);
  auto row = reader_->prepare("SELECT stream, published, stream_last FROM node");
  if (!row.ok()) return row.status();
  const SqlReset reset(*row);
  const auto found = row->step();
  if (!found.ok()) return found.status();
  if (!*found) return absl::DataLossError("the verdict database has no row that says which node it is");
  return Place{row->text(0), row->integer(1), static_cast<std::uint64_t>(row->integer(2))};
}

absl::Status PublishCursor::move(const Place& place) {
  return commit_change(store_, [&place](const SqlConnection& connection) {
    auto mark = connection.prepare("UPDATE node SET stream=?, published=?, stream_last=?");
    if (!mark.ok()) return mark.status();
    return mark->bind(place.stream).bind(place.published).bind(static_cast<std::int64_t>(place.last)).run();
  });
}

absl::StatusOr<UnsentVerdicts> PublishCursor::next(std::int64_t after) const {
  const std::lock_guard lock(mutex_);
  return read_unsent(*reader_, after, Outbox::kRecordsMax, Outbox::kBytesMax);
}

absl::StatusOr<std::optional<v1::Verdict>> PublishCursor::at(std::int64_t sequence) const {
  const std::lock_guard lock(mutex_);
  const auto found = read_unsent(*reader_, sequence - 1, 1, Outbox::kBytesMax);
  if (!found.ok()) return found.status();
  if (found->verdicts.empty() || found->verdicts[0].sequence != sequence) return std::nullopt;
  return found->verdicts[0].verdict;
}

absl::StatusOr<std::int64_t> PublishCursor::last_sequence() const {
  const std::lock_guard lock(mutex_);
  return reader_->last_sequence();
}

absl::StatusOr<Backlog> PublishCursor::backlog() const {
  const std::lock_guard lock(mutex_);
  // Not by the largest sequence that is there: a job that was removed leaves none to be published.
  return read_backlog(
      *reader_, "SELECT count(*) FROM verdicts WHERE sequence>(SELECT published FROM node)",
      "SELECT time_us FROM verdicts WHERE sequence>(SELECT published FROM node) ORDER BY sequence LIMIT 1");
}

}  // namespace plumbline
