// What a daemon's own history still has to ship to the one that it shares with others (FORMAT.md, "node" and "outbox").
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/node_part.h"
#include "server/store/records.h"
#include "server/store/sql_store.h"
#include "server/store/sqlite/sqlite.h"
#include "server/store/sqlite/unsent.h"

namespace plumbline {

// Some of it, to be written in the order of these lists: what it says of a job is then in the order of the job.
struct Shipment {
  // One rank of a run as it is now. The others below name its `owner` too.
  struct Run {
    StepIdentity run;
    std::string owner, client;
    std::int64_t first_us = 0, last_us = 0;
  };
  struct Removal {
    StepIdentity run;
    std::string owner;
  };
  struct Verdict {
    VerdictRow row;
    std::string owner;
  };
  struct Error {
    StepIdentity step;
    std::string owner, digest;
    absl::Status error;
    std::string trace_id;
    std::int64_t time_us = 0;
  };
  struct Gap {
    StepIdentity step;
    std::string owner;
    Missed missed;
  };

  struct Part {
    NodePartRow row;
    std::string owner;
  };

  std::vector<Removal> removals;
  std::vector<Run> runs;
  std::vector<Verdict> verdicts;
  std::vector<Error> errors;
  std::vector<Gap> gaps;
  std::vector<Part> parts;
  std::vector<std::string> unreadable;  // Verdicts whose rows are damaged, by what is wrong: nobody can ship them.

  std::int64_t through = 0;         // What acknowledging says: the sequence up to which verdicts are in it,
  std::vector<std::int64_t> notes;  // and the notes that it answers,
  std::vector<std::int64_t> told;   // and the parts of steps, by their numbers.
  bool more = false;                // Something was left for the next one.
  bool empty() const { return notes.empty() && verdicts.empty() && unreadable.empty() && told.empty(); }
  std::size_t records() const {
    return removals.size() + runs.size() + verdicts.size() + errors.size() + gaps.size() + parts.size();
  }
};

// Thread-safe. Errors are those of the database.
class Outbox {
 public:
  // From now on what changes is noted, and stays until it was shipped, whatever the limits of retention. `store` is
  // that of `data_dir` and outlives the outbox.
  static absl::StatusOr<std::unique_ptr<Outbox>> open(const std::string& data_dir, SqlStore* store,
                                                      const std::string& vfs = "");
  // A daemon that ships nothing: nothing is noted, and what was noted is forgotten. A later open() begins with all.
  static absl::Status close(SqlStore* store);

  const std::string& node() const { return node_; }  // This data directory's identity, for all times.

  // Nothing of it is older than what was acknowledged, and all of it was committed.
  absl::StatusOr<Shipment> next() const;
  // Waits for the commit.
  absl::Status acknowledge(const Shipment& shipment);

  // Which history it is that shipments go to. If it is another one than before, everything is to be shipped again.
  absl::Status begin(const std::string& history);

  // Takes what the other daemons are to be told of a step, before its verdict is appended; in the place of an earlier
  // one. A disk that does not take it does not take the verdict either, after which both come again.
  void put(NodePartRow part);

  absl::StatusOr<Backlog> backlog() const;
  absl::StatusOr<std::int64_t> shipped() const;  // The sequence up to which verdicts were acknowledged.

  static constexpr int kRecordsMax = 256;             // Of a kind, in one shipment.
  static constexpr std::size_t kBytesMax = 4u << 20;  // Of verdicts; one may be larger.

 private:
  Outbox(SqlStore* store, std::unique_ptr<SqliteConnection> reader, std::string node)
      : store_(store), reader_(std::move(reader)), node_(std::move(node)) {}
  absl::Status read_notes(bool runs, Shipment* into) const;
  absl::Status read_verdicts(std::int64_t after, Shipment* into) const;
  absl::Status read_parts(Shipment* into) const;
  absl::StatusOr<Shipment> read() const;

  SqlStore* const store_;
  mutable std::mutex mutex_;  // Of the reader.
  const std::unique_ptr<SqliteConnection> reader_;
  const std::string node_;
};

}  // namespace plumbline
