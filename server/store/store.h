// Verdicts at rest: what the daemon knows of every audited step, behind an interface of a few methods.
//
// Thread-safety: every method may be called from any thread at any time. Reads run in the calling thread and see every
// record whose callback has run. Writes are queued; callbacks and listeners run on the store's writer thread, with no
// lock held: they must not block, and they may call the store.
// Success: a callback with OK means that the record survives kill -9 and power loss.
// Failure: a status, never an exception; a record whose callback got an error is not in the store, and may be appended
// again.
// Ownership: the store copies what it is given. The destructor commits what is queued, runs its callbacks, then
// returns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumbline/v1/query.pb.h"
#include "plumbline/v1/verdict.pb.h"
#include "server/ingest/trace.h"

namespace plumbline {

// Sampled steps that the client dropped before the step at hand. They are stored with it, once.
struct Missed {
  std::int64_t steps = 0;
  std::vector<std::string> reasons;  // StepBegin.missed_reasons.
};

// A verdict as it is at rest, and sent.
using VerdictRecord = v1::Verdict;

// A verdict and its place in the order of commits: larger is newer, never reused.
struct StoredVerdict {
  std::int64_t sequence = 0;
  VerdictRecord verdict;
};

class VerdictStore {
 public:
  using Done = std::function<void(const absl::Status&)>;

  virtual ~VerdictStore() = default;

  // Notes that a run was opened (so that a job is listed before its first verdict). Idempotent. `step` of the identity
  // is not used.
  virtual void open_run(const StepIdentity& run, Done done) = 0;

  // Appends the verdict of a step, under its (project, job, run, rank, step) and digest. Every field is kept, but only
  // verdicts whose `id` agrees with their identity and that have a `time` and a `digest` are taken (INVALID_ARGUMENT).
  // The same identity with the same digest again: OK, the first verdict stays. With another digest: ALREADY_EXISTS, the
  // first verdict stays, and the attempt is counted as an error of the job. A verdict takes the place of an error.
  virtual void append(const VerdictRecord& verdict, const Missed& missed, Done done) = 0;

  // Appends the refusal of a step (error must not be OK). If the step has a verdict already, that stays, and the
  // refusal is counted beside it; a later error takes the place of an earlier one.
  virtual void append_error(const StepIdentity& step, const absl::Status& error, const Missed& missed, Done done) = 0;

  // The largest step of this run and rank (identity without step) with a verdict or an error on disk; -1: none.
  virtual absl::StatusOr<std::int64_t> last_durable_step(const StepIdentity& run) const = 0;

  // Digest of the verdict stored for a step; nullopt if it has none (never audited, or refused).
  virtual absl::StatusOr<std::optional<std::string>> digest_of(const StepIdentity& step) const = 0;

  // The whole verdict by "project/job/run/rank/step". INVALID_ARGUMENT: not of this form; NOT_FOUND.
  virtual absl::StatusOr<VerdictRecord> get(const std::string& id) const = 0;

  // Verdicts that match, in order of commit, from the first after `after_sequence`; at most `limit` of them, and at
  // most as many as serialize to kPageBytesMax (but one at least). Without taps and contributors unless `whole`.
  virtual absl::StatusOr<std::vector<StoredVerdict>> list(const v1::Filter& filter, std::int64_t after_sequence,
                                                          int limit, bool whole) const = 0;

  // Sequence of the newest verdict on disk; 0: none.
  virtual absl::StatusOr<std::int64_t> last_sequence() const = 0;

  // Jobs by (project, job), from the first after the pair given; at most `limit`. An empty project matches all.
  virtual absl::StatusOr<std::vector<v1::JobSummary>> jobs(const std::string& project, const std::string& after_project,
                                                           const std::string& after_job, int limit) const = 0;
  virtual absl::StatusOr<v1::JobSummary> job(const std::string& project,
                                             const std::string& job) const = 0;  // NOT_FOUND

  virtual absl::StatusOr<v1::Stats> stats(const v1::Filter& filter) const = 0;

  // Calls `listener` after every commit that added verdicts (list() with the last sequence seen finds them: neither gap
  // nor duplicate). Returns a handle; when unsubscribe returns, the listener does not run and will not. Do not
  // unsubscribe from within a listener.
  virtual std::uint64_t subscribe(std::function<void()> listener) = 0;
  virtual void unsubscribe(std::uint64_t handle) = 0;

  static constexpr std::size_t kPageBytesMax = 3u << 20;  // Below the 4 MiB that gRPC clients accept by default.
  static constexpr std::size_t kPendingMax = 65536;       // Records queued; past it: RESOURCE_EXHAUSTED at once.
};

struct SqliteOptions {
  std::string vfs;  // Name of a registered SQLite VFS, for tests; empty: the platform's.
  // Takes lines for the log: that the database does not take records, and that it does again. May be empty.
  std::function<void(const std::string&)> trouble;
};

// Opens or creates `data_dir`/verdicts.db (format: server/store/FORMAT.md) and locks the directory against a second
// daemon. Errors name the path and the remedy: PERMISSION_DENIED (not writable), DATA_LOSS (not a database, or
// damaged), FAILED_PRECONDITION (written by a newer version, or by another application), UNAVAILABLE (another daemon
// has it).
absl::StatusOr<std::unique_ptr<VerdictStore>> open_sqlite_store(const std::string& data_dir,
                                                                SqliteOptions options = {});

}  // namespace plumbline
