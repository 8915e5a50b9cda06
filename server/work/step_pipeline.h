// A step from its last frame to its durable answer: known already? - all ranks here? - reference there? - audit -
// store. No gRPC.
// Thread-safe. Nothing here blocks the caller: disk work is on one thread, audits are on the workers'.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/ingest/assembler.h"
#include "server/ingest/golden_store.h"
#include "server/ingest/trace_store.h"
#include "server/judge/verdict.h"
#include "server/metrics/metrics.h"
#include "server/store/shared_golden.h"
#include "server/store/store.h"
#include "server/work/pair_watch.h"
#include "server/work/pairing.h"
#include "server/work/run_registry.h"
#include "server/work/serial_executor.h"
#include "server/work/steady.h"
#include "server/work/unstored.h"
#include "server/work/workers.h"

namespace plumbline {

struct Joined;
namespace v1 {
class NodePart;
}

// What a client says of a step beside what the step did.
struct Told {
  Missed missed;
  std::string trace_id;
};
Told told_by(const AssembledStep& step);

// What became of a step. `durable` unless the store itself failed or the daemon gave up on it.
struct StepAnswer {
  // When the client may send the step again, which is neither stored nor refused; nullopt: the answer is final.
  std::optional<absl::Duration> retry_after() const;

  StepIdentity step;
  absl::Status error;  // OK: `verdict` holds.
  std::string field;   // At fault; may be empty.
  VerdictRecord verdict;
  bool durable = false;
  double memory_share = 0;  // What its audit was taken to need, of what one may take; 0: that was not asked.
  WantedOutputs outputs = WantedOutputs::kNone;
};

// A step between its admission and its answer.
struct StepUnderWay {
  enum class Stage { kAdmitted, kWaitingForReference, kQueued, kAuditing, kStoring };
  StepIdentity step;
  Stage stage = Stage::kAdmitted;
  absl::Time since;  // When the stage began.
};

// Who waits for a step's answer: one that has left needs none.
class StepClient {
 public:
  void leave() { left_ns_ = absl::ToUnixNanos(steady_now()); }
  // InfiniteFuture: it has not.
  absl::Time left() const { return left_ns_ == 0 ? absl::InfiniteFuture() : absl::FromUnixNanos(left_ns_); }

 private:
  std::atomic<std::int64_t> left_ns_ = 0;
};

class StepPipeline {
 public:
  using Done = std::function<void(const StepAnswer&)>;  // From any thread; must not block.

  struct Options {
    absl::Duration reference_timeout = absl::Seconds(60);  // And how long ranks wait for each other.
    absl::Duration audit_timeout = absl::InfiniteDuration();
    // An audit has so long once all who wait for it have left.
    absl::Duration orphan_timeout = absl::Seconds(10);
    std::uint64_t step_bytes_max = UINT64_MAX;                    // Joining a step's ranks may make no more.
    double work_per_second = 1e11;                                // Multiplications that no worker exceeds.
    double work_limit = std::numeric_limits<double>::infinity();  // Multiplications of a step; beyond: refused.
  };
  // The parts must outlive the pipeline. `references`, `kept` and `metrics` may be null, and `golden` where no run
  // names a golden run.
  struct Parts {
    VerdictStore* store = nullptr;
    TraceStore* references = nullptr;
    TraceStore* kept = nullptr;  // It keeps the traces of TYPE_II verdicts.
    GoldenStore* golden = nullptr;
    RunRegistry* runs = nullptr;
    Workers* workers = nullptr;
    SerialExecutor* disk = nullptr;
    Metrics* metrics = nullptr;
    MemoryBudget* memory = nullptr;         // All steps that are held are charged to it; null means no budget.
    SharedGolden* shared_golden = nullptr;  // Golden runs that were recorded elsewhere; null: none.
    // Takes what other daemons are told of a step some of whose run's ranks stream to them, before its verdict is
    // stored; empty: they share no history.
    std::function<void(NodePartRow)> tell_nodes = {};
    // Steps of this daemon's reference runs, to be shipped, and what the shared history has of those of others. Both
    // null: none is shared.
    GoldenStore* pairs = nullptr;
    SharedGolden* shared_pairs = nullptr;
    std::shared_ptr<BufferPool> buffers = nullptr;  // For the payloads of references.
  };

  StepPipeline(Parts parts, Options options);
  ~StepPipeline();

  // A whole step. Idempotent on identity and digest: a step with a verdict is answered with it again, one that is being
  // audited is answered when that is done; another digest is ALREADY_EXISTS, and recorded.
  // Without an answer where `client` (null: it never does) leaves before there is one.
  void submit(std::shared_ptr<Run> run, AssembledStep step, Done done,
              std::shared_ptr<const StepClient> client = nullptr);
  // A step that cannot be audited: recorded, then answered. What the disk does not take is no final answer: the client
  // sends the step again, and what was judged once is stored then.
  void refuse(const StepIdentity& step, Violation violation, Told told, Done done);

  // Stops waiting for references and ranks, then for new ones too.
  void stop_waiting();
  // Gives up all audits, those that run too: their steps get no answer.
  void give_up() { giving_up_ = true; }
  std::size_t in_flight() const;  // Steps taken and not answered yet.
  // Those of them, of the owners and jobs that `wanted` says, whose ids come after `after` in the order of text; at
  // most `limit`. `wanted` must not call the pipeline.
  using Wanted = std::function<bool(const StepIdentity& step, const std::string& owner)>;
  std::vector<StepUnderWay> under_way(const std::string& after, std::size_t limit, const Wanted& wanted) const;
  std::size_t waiting() const { return pairing_.waiting(); }  // For references or ranks.
  std::size_t waiting_for_ranks() const;

  static constexpr std::size_t kUnkeptMax = 1024;

 private:
  // What an audit reads and makes, on a worker.
  struct Audit {
    TraceRecord record;
    std::string missing;  // Why the reference is not there; empty: it is, or there is none.
    std::string advice;   // What to do about that; may be empty.
    Violation wrong;      // What keeps the step from being audited.
    Verdict verdict;
    StepMemory memory;
    absl::StatusOr<GoldenStep> golden = GoldenStep{};  // Where the run records one, or is a reference of others.
    double seconds = 0;
    bool given_up = false;  // Nobody wants it any more.
  };
  struct Waiter {
    Done done;
    std::shared_ptr<const StepClient> client;
  };
  struct Step {
    std::shared_ptr<Run> run;
    AssembledStep assembled;
    std::unique_ptr<Audit> audit;
    std::shared_ptr<const Trace> trace() const { return assembled.trace; }
    std::vector<Waiter> waiters;
    std::vector<MemoryBudget::Reservation> of_ranks;  // What their traces hold, which the joined one shares.
    std::optional<Verdict> given;                     // Without an audit: the ranks' traces make no step.
    std::shared_ptr<v1::NodePart> part;               // Where other daemons are told of it.
    double memory_share = 0;
    StepUnderWay::Stage stage = StepUnderWay::Stage::kAdmitted;  // Guarded by the pipeline's mutex_, as `since` is.
    absl::Time since = absl::Now();
  };
  // Steps of one identity, by rank, until those of all ranks that stream to this daemon are here.
  struct RankGroup {
    std::map<std::int32_t, std::shared_ptr<Step>> steps;
  };

  // On the disk thread. The waiters are the step's, or those of a step of its identity that is under way.
  void admit(const std::shared_ptr<Step>& step, std::vector<Waiter> waiters);
  // Answers a step on whose way something threw.
  void failed(const std::shared_ptr<Step>& step, const absl::Status& fault, const std::vector<Waiter>& waiters = {});
  bool wanted(const Step& step, absl::Time deadline) const;  // Its audit.
  void enter(Step& step, StepUnderWay::Stage stage) const;
  // Gathers the ranks of a run that has several, on the disk thread (step_ranks.cc).
  void gather(const std::shared_ptr<Step>& step, std::vector<Waiter> waiters);
  void close_group(const std::string& id, const std::string& missing_because);
  // The ranks' traces become one on a worker; then the step goes on as one of a single rank does.
  void join(const std::shared_ptr<Step>& step, std::vector<std::shared_ptr<const Trace>> traces,
            std::vector<Waiter> waiters);
  void admit_joined(const std::shared_ptr<Step>& step, const Joined& joined, const absl::Status& ran);
  void give_up_passed(const StepIdentity& judged, std::int32_t rank);
  // Answers from the store. False: the step is not known there.
  bool answer_rank_from_store(const Step& step, const Done& done);
  void refuse_other_digest(const AssembledStep& step, const std::string& known, Done done);
  void schedule(const std::shared_ptr<Step>& step);                              // On the disk thread.
  void audit_step(Step& step) const;                                             // On a worker, perhaps twice.
  void answer_step(const std::shared_ptr<Step>& step, const Workers::Ran& ran);  // On a worker.
  // Why the reference's step is not there and will not come any more; empty: it is, or it may.
  std::string lost_reference(const StepIdentity& wanted) const;
  // Fills the record's reference. Why it is missing; empty: it is there.
  std::string load_reference(const Step& step, TraceRecord* record, std::string* advice) const;
  // The same of what another daemon recorded of it; nullopt: the shared history has nothing of its run.
  std::optional<std::string> load_from_elsewhere(const Run& run, const StepIdentity& wanted, TraceRecord* record,
                                                 std::string* advice) const;
  // Fills the record's golden step. What is wrong with that otherwise.
  // Why it could not be asked for, in `missing`: the history that has it is away.
  Violation load_golden(const Run& run, TraceRecord* record, std::string* missing) const;
  void record_golden_step(const Run& run, const Audit& audit, Verdict* verdict) const;
  // Of a run that was opened as a reference, for those that are paired with it at other daemons.
  bool records_for_others(const Run& run) const;
  void record_for_others(const Run& run, const Audit& audit, Verdict* verdict) const;
  void keep_trace(const TraceRecord& record, const std::string& trace_id, Verdict* verdict) const;
  void record_refusal(const StepIdentity& step, Violation violation, Told told, Done done);
  void store_verdict(const std::shared_ptr<Step>& step, std::shared_ptr<const JudgedStep> judged);
  void stored(const std::shared_ptr<Step>& step, const std::shared_ptr<const JudgedStep>& judged,
              const absl::Status& status);
  void finish(const std::shared_ptr<Step>& step, StepAnswer answer);
  // Calls each back; a callback that throws keeps none from the others.
  static void call_back(const std::vector<Waiter>& waiters, const StepAnswer& answer);
  static Done to_all(std::vector<Waiter> waiters);
  void drop(const std::shared_ptr<Step>& step, const absl::Status& why);  // Without an answer.
  void expire_loop();
  void wake_expirer();

  const Parts parts_;
  const Options options_;
  Pairing pairing_;
  Unstored unstored_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, std::shared_ptr<Step>> steps_;  // In flight, by id.
  // The disk thread's own; the key is the id of the verdict to be.
  std::map<std::string, RankGroup> groups_;
  std::map<std::string, std::string> unkept_;  // Traces that could not be kept, by id: why. At most kUnkeptMax.
  bool stop_waiting_ = false;
  std::atomic<bool> giving_up_ = false;
  bool stop_ = false;
  std::unique_ptr<PairWatch> pair_watch_;  // Null: no history is shared.
  std::thread expirer_;
};

}  // namespace plumbline
