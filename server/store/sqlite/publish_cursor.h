// How far a daemon's own verdicts are in the stream that it publishes them to (FORMAT.md, "node").
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/sqlite/outbox.h"
#include "server/store/sqlite/sqlite.h"
#include "server/store/sqlite/unsent.h"

namespace plumbline {

// Thread-safe. Errors are those of the database.
class PublishCursor {
 public:
  // Where it stands. All of it is of one stream.
  struct Place {
    std::string stream;          // Which one that is, by an identity of its own; empty: none yet.
    std::int64_t published = 0;  // The sequence, in our own history, up to which the stream has acknowledged verdicts,
    std::uint64_t last = 0;      // and the stream's number of the last message of ours; 0: it has none.
    bool operator==(const Place&) const = default;
  };

  // From now on verdicts stay until they were published, whatever the limits of retention. `store` is that of
  // `data_dir` and outlives the cursor.
  static absl::StatusOr<std::unique_ptr<PublishCursor>> open(const std::string& data_dir, SqlStore* store,
                                                             const std::string& vfs = "");
  // A daemon that publishes nothing: nothing is waited for. A later open() begins with all.
  static absl::Status close(SqlStore* store);

  const std::string& node() const { return node_; }  // This data directory's identity, for all times.

  absl::StatusOr<Place> place() const;
  absl::Status move(const Place& place);  // Waits for the commit.

  absl::StatusOr<UnsentVerdicts> next(std::int64_t after) const;
  absl::StatusOr<std::optional<v1::Verdict>> at(std::int64_t sequence) const;  // nullopt: there is none, or none yet.
  absl::StatusOr<std::int64_t> last_sequence() const;                          // Of what was ever committed.
  absl::StatusOr<Backlog> backlog() const;

 private:
  PublishCursor(SqlStore* store, std::unique_ptr<SqliteConnection> reader, std::string node)
      : store_(store), reader_(std::move(reader)), node_(std::move(node)) {}

  SqlStore* const store_;
  mutable std::mutex mutex_;  // Of the reader.
  const std::unique_ptr<SqliteConnection> reader_;
  const std::string node_;
};

}  // namespace plumbline
