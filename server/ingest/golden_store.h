// Golden runs under a directory. Thread-safe; blocks on the disk.
//
// A golden run is at DIRECTORY/p_PROJECT/g_NAME.golden. Format, version 2: the 8 bytes "PLGOLDN2"; then records, each
// the length of a GoldenRecord (proto/plumbline/v1/archive.proto) as 4 bytes, little-endian, the message, and XXH3-64
// of it as 8 bytes, big-endian. The first is the header; then come its owner and steps, in any order, the later of one
// step (and of owners) counts. An exported file ends in a record that counts its steps; a file in the directory has
// none, since it may grow. What a crash left of a last record is cut off.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumbline/v1/archive.pb.h"
#include "server/ingest/golden_step.h"

namespace plumbline {

v1::GoldenStep to_proto(const GoldenStep& step);
GoldenStep from_proto(const v1::GoldenStep& wire);

class GoldenStore {
 public:
  using Sink = std::function<bool(const std::string& bytes)>;  // False: it takes no more.

  // Nothing is written that would leave less than `reserve_bytes` of the file system.
  explicit GoldenStore(std::string directory, std::uint64_t reserve_bytes = 0)
      : directory_(std::move(directory)), reserve_(reserve_bytes) {}

  // Makes a golden run, or finds the one that the same run of the same job began. ALREADY_EXISTS: another did;
  // INVALID_ARGUMENT: the name; DATA_LOSS: its file is damaged. `owner` is whose it is, if it is made.
  absl::Status begin(const v1::GoldenHeader& header, const std::string& owner);
  // Adds a step, in place of an earlier one.
  absl::Status append(const std::string& project, const std::string& name, const GoldenStep& step);
  // Whose it is; empty: that is not known. NOT_FOUND: no such golden run.
  absl::StatusOr<std::string> owner_of(const std::string& project, const std::string& name);
  // Which run recorded it, "job/run". NOT_FOUND.
  absl::StatusOr<std::string> run_of(const std::string& project, const std::string& name);
  // NOT_FOUND: no such golden run, or it does not hold the step.
  absl::StatusOr<std::shared_ptr<const GoldenStep>> load(const std::string& project, const std::string& name,
                                                         std::int32_t rank, std::int64_t step);
  // Lists runs by project and name; an empty project stands for all. Damaged ones say so in `error`.
  std::vector<v1::GoldenSummary> list(const std::string& project);

  absl::Status export_to(const std::string& project, const std::string& name, const Sink& sink);
  // Takes the file in under its own project and name, or under those given. INVALID_ARGUMENT: no golden run;
  // FAILED_PRECONDITION: of another version; DATA_LOSS: damaged or cut short; ALREADY_EXISTS: the name is taken.
  // `may` is asked about the project that it would be in.
  absl::StatusOr<v1::GoldenSummary> import(const std::string& file, const std::string& project, const std::string& name,
                                           const std::string& owner,
                                           const std::function<absl::Status(const std::string& project)>& may);
  absl::Status remove(const std::string& project, const std::string& name);  // NOT_FOUND
  void remove_job(const std::string& project, const std::string& job);       // What its runs recorded.

  struct Name {
    std::string project, name;
    auto operator<=>(const Name&) const = default;
  };
  // In order; `shipped`: also of those that are not there any more, of which a history is to be told (golden_outbox.h).
  std::vector<Name> names(bool shipped = false) const;
  std::string shipped_path(const Name& of) const;
  // Grows with each change.
  std::uint64_t changes() const { return changes_; }
  struct Stretch {
    v1::GoldenHeader header;  // With the project and name that it has here.
    std::string owner;
    std::vector<v1::GoldenStep> steps;  // In the order in which they were recorded.
    std::uint64_t through = 0;          // Where the next record begins.
  };
  // The steps in the records from `from` on (0: the first), in about `bytes` of them, but one at least. NOT_FOUND;
  // DATA_LOSS.
  absl::StatusOr<Stretch> read(const Name& of, std::uint64_t from, std::uint64_t bytes);

  // Removes golden runs that were not written since `time`, then the least recently written ones until at most `count`
  // of them and `bytes` are left (0: no limit). How many.
  // `everywhere`: a shared history is told to remove them, too.
  std::size_t expire(std::chrono::system_clock::time_point time, std::int64_t count, std::uint64_t bytes,
                     bool everywhere = false);

 private:
  using Key = std::pair<std::int32_t, std::int64_t>;  // Rank and step.
  struct Golden {
    v1::GoldenHeader header;
    std::string owner;
    std::map<Key, std::uint64_t> offsets;  // The steps' records begin there.
    std::uint64_t end = 0;                 // The last whole record ends there.
  };
  std::string path(const std::string& project, const std::string& name) const;
  // With the lock held, of the file at `path`; `what` is for messages.
  static absl::StatusOr<Golden> scan(const std::string& path, const std::string& what, bool exported);
  static v1::GoldenSummary summary_of(const Golden& golden);
  absl::StatusOr<Golden*> find(const std::string& project, const std::string& name);

  const std::string directory_;
  const std::uint64_t reserve_;
  std::mutex mutex_;
  std::map<std::string, Golden> known_;  // The key is the path.
  std::atomic<std::uint64_t> imports_ = 0, changes_ = 0;
};

}  // namespace plumbline
