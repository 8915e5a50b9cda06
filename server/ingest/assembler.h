// Frames of a stream to validated traces, one frame at a time. No gRPC, no threads, no blocking.
//
// Errors of two kinds: one fails its step (the rest of it is skimmed and dropped, the next step is taken as ever), the
// other the stream (frames out of order). Memory is asked for before it is taken. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "plumbline/v1/audit.pb.h"
#include "server/ingest/memory_budget.h"
#include "server/ingest/payloads.h"
#include "server/ingest/shared_regions.h"
#include "server/ingest/tensor_rules.h"
#include "server/ingest/trace.h"
#include "server/ingest/violation.h"

namespace plumbline {

struct AssembledStep {
  std::shared_ptr<const Trace> trace;
  MemoryBudget::Reservation memory;  // What the trace holds of the budget.
  std::string trace_id;              // Logs know the step by it (StepBegin.trace_id); it is no part of its trace.
};

class TraceAssembler {
 public:
  struct Options {
    StepIdentity run;  // Every trace has this identity; `step` comes from StepBegin.
    std::uint64_t step_bytes_max = UINT64_MAX;
    std::int64_t elements_max = INT64_MAX;  // One window may have so many, as far as memory for its fp64 values goes.
    std::shared_ptr<BufferPool> buffers;    // Shared by all streams; null: fresh memory for every payload.
    // The same stream's regions; null means that every byte comes in the frames.
    SharedRegions* regions = nullptr;
    MemoryBudget* budget = nullptr;  // Shared by all streams; null: no budget.
    // What the run's project may take of it; null: all.
    std::shared_ptr<MemoryBudget::Share> share = nullptr;
    bool leaves_may_lack_payloads = false;  // Those of parameters, buffers and state: a trace at rest.
  };

  enum class Progress {
    kTaken,
    kWait,         // The budget has nothing left at the moment: offer the same frame again (see when_released).
    kStepDone,     // take_step() has the trace.
    kStepFailed,   // Once for a step; the frames after it are dropped.
    kStreamFailed  // Nothing more is taken.
  };
  struct Result {
    Progress progress = Progress::kTaken;
    Violation violation;
  };

  explicit TraceAssembler(Options options);

  Result add(const v1::AuditRequest& frame);
  // A data frame whose bytes are read straight from where they were received. They are read only if it is taken.
  Result add(const Chunk& chunk, ByteSource* source);
  // A message of so many bytes came, and is about to be parsed: they are charged to the open step, or to the one that
  // begins with it, until settle(). kStepFailed: there is no memory for it, and it would be waited for in vain; without
  // an open step there is nothing that failed.
  Result arrive(std::uint64_t bytes);
  // What the message held was charged by itself, or is gone.
  void settle();
  AssembledStep take_step() { return std::move(done_); }
  // Fails the open step by what is not its own fault: the daemon's.
  Result abandon(Violation violation) { return fail(std::move(violation)); }

  bool in_step() const { return open_; }
  std::int64_t step() const { return trace_ ? trace_->identity.step : step_; }
  // Counts the steps that were missed before the one that is or was open.
  std::int64_t missed() const { return missed_; }
  const std::vector<std::string>& missed_reasons() const { return missed_reasons_; }
  const std::string& trace_id() const { return trace_id_; }
  // What is wrong if the stream ends here: an open step, perhaps in the middle of a tensor.
  Violation end_of_stream() const;
  void when_released(std::function<void()> callback) { memory_.when_released(std::move(callback)); }

 private:
  // Which frame's field a payload must fit; turned into text only for an error.
  struct Expected {
    enum class Field : std::uint8_t { kLeaf, kObserved, kDecision, kTerm, kReference };
    PayloadId payload = 0;
    std::uint64_t bytes = 0;
    std::uint32_t frame = 0;  // Index of the leaf, operation or tap.
    std::uint32_t item = 0;   // Index of the result or term.
    Field field = Field::kLeaf;
  };

  Result begin(const v1::StepBegin& begin);
  Result end(const v1::StepEnd& end);
  Result add_from_region(const v1::TensorData& data);
  Violation add_scope(const v1::Scope& wire);
  Violation add_leaf(const v1::Leaf& leaf);
  Violation add_op(const v1::Op& op);
  Violation add_result(const v1::Result& wire, int index, TraceOp* op);
  Violation add_tap(const v1::Tap& tap);
  Violation define(ValueId value, const StorageValue& storage, const std::string& field);
  Violation take_payloads();
  Violation expect(PayloadId payload, std::int64_t elements, int element_bytes, Expected::Field field,
                   std::size_t frame, std::size_t item);
  std::string describe(const Expected& expected) const;
  // Takes memory for `bytes` more of the step.
  Result charge(std::uint64_t bytes);
  Result fail(Violation violation);
  void drop();
  void hash(const google::protobuf::MessageLite& message, char kind);
  std::string digest() const;

  const Options options_;
  bool open_ = false;
  bool failed_ = false;  // The open step is dropped.
  std::int64_t step_ = -1;
  std::int64_t missed_ = 0;
  std::vector<std::string> missed_reasons_;
  std::string trace_id_;
  std::uint64_t frames_ = 0;
  std::uint64_t bytes_ = 0;          // The open step holds so many.
  std::uint64_t payload_bytes_ = 0;  // Part of them.
  std::unique_ptr<Trace> trace_;
  Values values_;
  std::unordered_set<std::string> tap_names_;
  Payloads payloads_;
  std::vector<Expected> expected_;
  MemoryBudget::Reservation memory_;
  std::uint64_t arrived_ = 0;  // Part of it: of the message at hand.
  struct FreeState {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, FreeState> hash_;
  std::string scratch_;
  AssembledStep done_;
};

}  // namespace plumbline
