// Verdicts at rest: what the daemon knows of every audited step, behind an interface of a few methods.
//
// Thread-safety: every method may be called from any thread at any time. Reads run in the calling thread and see every
// record whose callback has run. Writes are queued; callbacks run on the store's writer thread, listeners on a
// thread of the store's, with no lock held but the listeners' own: they must not block, and they may call the store.
// Success: a callback with OK means that the record survives kill -9 and power loss.
// Failure: a status, never an exception; a record whose callback got an error is not in the store (or may be, where a
// connection broke during its commit), and may be appended again, which makes no second one.
// Ownership: the store copies what it is given. The destructor commits what is queued, runs its callbacks, then
// returns.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "plumbline/v1/query.pb.h"
#include "plumbline/v1/verdict.pb.h"
#include "server/ingest/trace.h"
#include "server/store/visibility.h"

namespace plumbline {

// Sampled steps that the client dropped before the step at hand. They are stored with it, once.
struct Missed {
  std::int64_t steps = 0;
  std::vector<std::string> reasons;  // StepBegin.missed_reasons.
};

// A verdict as it is at rest, and sent.
using VerdictRecord = v1::Verdict;

// Which order a list has. Where two are equal, that of commits decides.
struct Order {
  enum class Key { kSequence, kTime, kStep, kSurprise };
  Key key = Key::kSequence;
  bool descending = false;
};

// Where in its order a verdict stands.
struct ListPlace {
  std::int64_t sequence = 0;  // In the order of commits: larger is newer, never reused.
  std::string key = {};       // In the list's own order, as a number's text; empty: that is the order of commits.
  std::string cut = {};       // Of a list that is from two histories (fleet_reader.h): where one ends and the other
  bool own = false;           // begins, and whether the verdict is of the daemon's own, whose sequence it then has.
};

struct StoredVerdict : ListPlace {
  VerdictRecord verdict;
};

// How much of something is kept; what is beyond is removed, the oldest first. Zero or infinite: no limit.
struct KeepLimits {
  absl::Duration age = absl::InfiniteDuration();
  std::int64_t count = 0;
  std::uint64_t bytes = 0;
  bool any() const { return age != absl::InfiniteDuration() || count > 0 || bytes > 0; }
};

struct Retention {
  KeepLimits verdicts;  // Bytes: of the whole database.
  KeepLimits errors;    // No bytes.
  KeepLimits runs;      // Runs go by when they were last seen, with all that is theirs. They have no limit of bytes.
  bool any() const { return verdicts.any() || errors.any() || runs.any(); }
};

// Asked while a query runs; true: give it up, with CANCELLED.
using Stop = std::function<bool()>;

// What is asked about verdicts: of one history, or of a daemon's own and the one that it shares (fleet_reader.h).
class VerdictReader {
 public:
  virtual ~VerdictReader() = default;

  // Verdicts that match, in order, from the first after `after` (null: from the first); at most `limit` of them, and at
  // most as many as serialize to VerdictStore::kPageBytesMax (but one at least). Without taps, contributors and
  // alignment unless `whole`.
  virtual absl::StatusOr<std::vector<StoredVerdict>> list(const v1::Filter& filter, const Order& order,
                                                          const ListPlace* after, int limit, bool whole,
                                                          const Visibility& seen, const Stop& stop) const = 0;
  // In order of commit, from the first after `after_sequence`.
  absl::StatusOr<std::vector<StoredVerdict>> list(const v1::Filter& filter, std::int64_t after_sequence, int limit,
                                                  bool whole, const Visibility& seen = {}) const {
    const ListPlace after{after_sequence, ""};
    return list(filter, {}, &after, limit, whole, seen, {});
  }

  // Jobs by (project, job), from the first after the pair given; at most `limit`. An empty project matches all.
  virtual absl::StatusOr<std::vector<v1::JobSummary>> jobs(const std::string& project, const std::string& after_project,
                                                           const std::string& after_job, int limit,
                                                           const Visibility& seen, const Stop& stop) const = 0;
  absl::StatusOr<std::vector<v1::JobSummary>> jobs(const std::string& project, const std::string& after_project,
                                                   const std::string& after_job, int limit) const {
    return jobs(project, after_project, after_job, limit, {}, {});
  }
  virtual absl::StatusOr<v1::JobSummary> job(const std::string& project, const std::string& job, const Visibility& seen,
                                             const Stop& stop) const = 0;  // NOT_FOUND
  absl::StatusOr<v1::JobSummary> job(const std::string& project, const std::string& job) const {
    return this->job(project, job, {}, {});
  }

  // Ranks of runs of a job, by run and rank, from the first after the pair given.
  virtual absl::StatusOr<std::vector<v1::RunSummary>> runs(const std::string& project, const std::string& job,
                                                           const std::string& after_run, std::int32_t after_rank,
                                                           int limit, const Visibility& seen,
                                                           const Stop& stop) const = 0;

  // Refused steps of a job, by run, rank, step and digest, from the first after the one given (default: from the
  // first).
  virtual absl::StatusOr<std::vector<v1::RefusedStep>> errors(const std::string& project, const std::string& job,
                                                              const v1::RefusedStep& after, int limit,
                                                              const Visibility& seen, const Stop& stop) const = 0;

  virtual absl::StatusOr<v1::Stats> stats(const v1::Filter& filter, const Visibility& seen, const Stop& stop) const = 0;
  absl::StatusOr<v1::Stats> stats(const v1::Filter& filter) const { return stats(filter, {}, {}); }
};

class VerdictStore : public VerdictReader {
 public:
  using Done = std::function<void(const absl::Status&)>;

  // Notes that a run was opened (so that a job is listed before its first verdict), by whom, and by a client of which
  // version. Idempotent; all ranks of a run have one owner: PERMISSION_DENIED where it has another. `step` of the
  // identity is not used.
  virtual void open_run(const StepIdentity& run, const std::string& owner, const std::string& client, Done done) = 0;

  // Who opened the run first (of whatever rank); nullopt: nobody did. Empty: it is of a time without owners.
  virtual absl::StatusOr<std::optional<std::string>> owner_of(const StepIdentity& run) const = 0;

  // Appends the verdict of a step, under its (project, job, run, rank, step) and digest. Every field is kept, but only
  // verdicts whose `id` agrees with their identity and that have a `time` and a `digest` are taken (INVALID_ARGUMENT).
  // The same identity with the same digest again: OK, the first verdict stays. With another digest: ALREADY_EXISTS, the
  // first verdict stays, and the attempt is counted as an error of the job. A verdict takes the place of an error.
  // `memory`, what the run is to remember of its steps, takes the place of what it remembered; empty: that stays.
  virtual void append(const VerdictRecord& verdict, const Missed& missed, const std::string& memory, Done done) = 0;

  // Appends the refusal of a step (error must not be OK). If the step has a verdict already, that stays, and the
  // refusal is counted beside it; a later error takes the place of an earlier one. `trace_id`: the step's; empty: none.
  virtual void append_error(const StepIdentity& step, const absl::Status& error, const Missed& missed,
                            const std::string& trace_id, Done done) = 0;

  // Removes what is beyond the limits, in small commits between which others have their turn; then `done`. `now_us`:
  // from which ages count. CANCELLED: `stop`, which is asked between commits, said so; some may be left.
  virtual void expire(const Retention& retention, std::int64_t now_us, Stop stop, Done done) = 0;

  // Removes a job with all its runs, verdicts, errors and gaps, in small commits. NOT_FOUND; CANCELLED as above.
  virtual void remove_job(const std::string& project, const std::string& job, Stop stop, Done done) = 0;

  // The largest step of this run and rank (identity without step) that ever had a verdict; -1: none. Refused steps do
  // not count: their number may be any.
  virtual absl::StatusOr<std::int64_t> last_durable_step(const StepIdentity& run) const = 0;

  // Whether the step was refused and has no verdict.
  virtual absl::StatusOr<bool> was_refused(const StepIdentity& step) const = 0;

  // What the run remembers (see append()); empty: nothing.
  virtual absl::StatusOr<std::string> memory_of(const StepIdentity& run) const = 0;

  // Digest of the verdict stored for a step; nullopt if it has none (never audited, or refused).
  virtual absl::StatusOr<std::optional<std::string>> digest_of(const StepIdentity& step) const = 0;

  // The whole verdict by "project/job/run/rank/step". INVALID_ARGUMENT: not of this form; NOT_FOUND.
  virtual absl::StatusOr<VerdictRecord> get(const std::string& id) const = 0;

  // Sequence of the newest verdict that was ever on disk; 0: none.
  virtual absl::StatusOr<std::int64_t> last_sequence() const = 0;

  // How many verdicts are stored of each project that has a job; 0 of one whose jobs have none.
  virtual absl::StatusOr<std::map<std::string, std::uint64_t>> verdicts_of_projects(const Stop& stop) const = 0;
  // Of one job; 0 of one that does not exist.
  virtual absl::StatusOr<std::uint64_t> verdicts_of_job(const std::string& project, const std::string& job,
                                                        const Stop& stop) const = 0;

  // Whether records are being stored: not, since the last commit failed.
  virtual bool takes_records() const = 0;

  // Calls `listener` after every commit that added verdicts, by whatever process (list() with the last sequence seen
  // finds them: neither gap nor duplicate). Returns a handle; when unsubscribe returns, the listener does not run and
  // will not. Do not unsubscribe from within a listener.
  virtual std::uint64_t subscribe(std::function<void()> listener) = 0;
  virtual void unsubscribe(std::uint64_t handle) = 0;

  static constexpr int kReaders = 4;                      // Queries at one time; more wait for their turn.
  static constexpr std::size_t kRunsListedMax = 100;      // In a job's summary: the last ones.
  static constexpr std::size_t kPageBytesMax = 3u << 20;  // Below the 4 MiB that gRPC clients accept by default.
  static constexpr std::size_t kPendingMax = 65536;       // Records queued; past it: RESOURCE_EXHAUSTED at once.
};

struct SqliteOptions {
  std::string vfs;  // Name of a registered SQLite VFS, for tests; empty: the platform's.
  // Takes lines for the log: that the database does not take records, and that it does again. May be empty.
  std::function<void(const std::string&)> trouble;
  // Takes, on the writer thread, how long each group of records took, its size, and whether it is stored. May be empty.
  std::function<void(double seconds, std::size_t records, bool stored)> timed = {};
};

// Opens or creates `data_dir`/verdicts.db (format: server/store/FORMAT.md) and locks the directory against a second
// daemon. Errors name the path and the remedy: PERMISSION_DENIED (not writable), DATA_LOSS (not a database, or
// damaged), FAILED_PRECONDITION (written by a newer version, or by another application), UNAVAILABLE (another daemon
// has it).
absl::StatusOr<std::unique_ptr<VerdictStore>> open_sqlite_store(const std::string& data_dir,
                                                                SqliteOptions options = {});

}  // namespace plumbline
