// One stream of AuditService.Audit: credit, frames into the assembler, whole steps into the pipeline, answers back.
//
// An open step holds memory that others may wait for, so it must come on: its time is --step-timeout and a second for
// each MiB that came. Only the time counts in which the daemon was ready to read.
//
// A stream that is older than --connection-age reads no step behind the one that is open, and ends once all it has is
// answered: before its connection is cut, so that its client opens another one and loses nothing.
//
// All state is under one mutex; callbacks of gRPC, of the pipeline and of the memory budget come from any thread and
// none of them blocks. The stream owns itself until gRPC is done with it.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/time/time.h"
#include "plumbline/v1/audit.grpc.pb.h"
#include "server/access/caller.h"
#include "server/access/project_use.h"
#include "server/fault/fault.h"
#include "server/ingest/assembler.h"
#include "server/work/run_registry.h"
#include "server/work/step_pipeline.h"

namespace plumbline {

class AuditService;

class AuditStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                          public std::enable_shared_from_this<AuditStream> {
 public:
  static AuditStream* start(AuditService* service, grpc::CallbackServerContext* context,
                            const absl::StatusOr<Caller>& caller);
  ~AuditStream() override = default;

  std::string user() const { return caller_.name(); }

  void begin_drain();
  // Ends the stream if it is late: with its first frame, with the rest of a step, or its client with taking its end.
  void keep_deadlines(absl::Time now);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  AuditStream(AuditService* service, grpc::CallbackServerContext* context, Caller caller);

  // Runs a callback's work with the lock held; what it throws ends this stream alone.
  template <class Work>
  void guarded(Work work) {
    const std::lock_guard lock(mutex_);
    const absl::Status fault = contained("a stream", work);
    if (!fault.ok()) contained("a stream's end", [&] { end_by(fault); }).IgnoreError();
  }

  // All with the lock held.
  void open();
  absl::Status may_stream() const;
  void take_frame();                         // Hands the frame in read_ to the assembler.
  void take_batch();                         // Does the same for the frames in request_, from batch_next_ on.
  bool take(TraceAssembler::Result result);  // What became of a frame. False: nothing behind it may be taken now.
  // Gives a frame to the assembler; what that throws costs the open step.
  TraceAssembler::Result assemble(const std::function<TraceAssembler::Result()>& add);
  void add_region(const v1::Region& region);
  void steer(const v1::Pace& pace);
  void next_frame();  // Reads on, unless too much is unanswered.
  void read();
  bool parse_charged();  // Parses read_ into request_, its bytes charged before. False: it waits, or the stream ends.
  void done_with_message();
  void note_arrival();  // Notes that what read() asked for has arrived.
  void half_closed();
  void submit_step();
  void refuse_step(Violation violation);
  void count_refusal(const char* quota) const;  // By the quota of this name, the project's or the job's.
  void answered(const StepAnswer& answer);
  void grant();
  void send(const v1::AuditResponse& response);
  void write_next();
  void end(grpc::Status status);  // Once what is queued has been written.
  void end_by(const absl::Status& fault);
  // Makes what the pipeline calls once it has judged the step, which is held of the project's quota until then.
  StepPipeline::Done answer(ProjectUse::Hold hold = nullptr);
  void end_if_idle();
  bool aged() const;
  void let_go();  // Gives up the run and the open step.

  AuditService* const service_;
  grpc::CallbackServerContext* const context_;
  const Caller caller_;
  const absl::Time old_at_;            // steady_now() as of which it is aged().
  std::shared_ptr<AuditStream> self_;  // Until OnDone.
  std::mutex mutex_;
  grpc::ByteBuffer read_;
  v1::AuditRequest request_;  // Parsed from read_, unless that is data.
  grpc::ByteBuffer written_;
  std::deque<grpc::ByteBuffer> responses_;
  std::uint64_t response_bytes_ = 0;  // The size of responses_.
  bool write_busy_ = false;
  bool read_paused_ = false;  // No read is under way: too much is unanswered, or the stream is too old.
  bool ack_due_ = false;
  bool input_ended_ = false;  // The client sends no more.
  bool draining_ = false;
  bool finished_ = false;  // Finish was called.
  std::optional<grpc::Status> ending_;
  std::shared_ptr<Run> run_;
  bool holds_run_ = false;
  ProjectUse::Hold stream_hold_;  // Of the project's quota of streams.
  SharedRegions regions_;
  std::unique_ptr<TraceAssembler> assembler_;
  const std::shared_ptr<StepClient> client_ = std::make_shared<StepClient>();
  std::optional<Steering> steering_;  // Where the run has a budget.
  bool message_charged_ = false;      // The one in read_.
  int batch_next_ = 0;                // Frames of the batch in read_ that were taken.
  // Since when the client is waited for: for a frame, or to take the end. InfiniteFuture: it is not.
  absl::Time waiting_since_ = absl::InfiniteFuture();
  absl::Duration step_time_ = absl::ZeroDuration();  // The time that the open step took, without the wait at hand.
  std::uint64_t step_bytes_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t credit_ = 0;
  std::int64_t durable_step_ = -1;
  std::size_t unanswered_ = 0;  // Steps in the pipeline.
};

}  // namespace plumbline
