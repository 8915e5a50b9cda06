// One stream of AuditService.Audit: credit, frames into the assembler, whole steps into the pipeline, answers back.
//
// All state is under one mutex; callbacks of gRPC, of the pipeline and of the memory budget come from any thread and
// none of them blocks. The stream owns itself until gRPC is done with it.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "plumbline/v1/audit.grpc.pb.h"
#include "server/access/caller.h"
#include "server/ingest/assembler.h"
#include "server/work/run_registry.h"
#include "server/work/step_pipeline.h"

namespace plumbline {

class AuditService;

class AuditStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                          public std::enable_shared_from_this<AuditStream> {
 public:
  static AuditStream* start(AuditService* service, const absl::StatusOr<Caller>& caller);
  ~AuditStream() override = default;

  void begin_drain();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  AuditStream(AuditService* service, Caller caller);

  // All with the lock held.
  void open();
  absl::Status may_stream() const;
  void take_frame();                         // Of read_: into the assembler.
  void take_batch();                         // Of request_: the same of its frames, from batch_next_ on.
  bool take(TraceAssembler::Result result);  // What became of a frame. False: nothing behind it may be taken now.
  void add_region(const v1::Region& region);
  void steer(const v1::Pace& pace);
  void next_frame();  // Reads on, unless too much is unanswered.
  void half_closed();
  void submit_step();
  void refuse_step(Violation violation);
  void answered(const StepAnswer& answer);
  void grant();
  void send(const v1::AuditResponse& response);
  void write_next();
  void end(grpc::Status status);  // Once what is queued has been written.
  void end_if_idle();
  void let_go();  // Of the run and the open step.

  AuditService* const service_;
  const Caller caller_;
  std::shared_ptr<AuditStream> self_;  // Until OnDone.
  std::mutex mutex_;
  grpc::ByteBuffer read_;
  v1::AuditRequest request_;  // Parsed from read_, unless that is data.
  grpc::ByteBuffer written_;
  std::deque<grpc::ByteBuffer> responses_;
  std::uint64_t response_bytes_ = 0;  // Of responses_.
  bool write_busy_ = false;
  bool read_paused_ = false;  // No read is under way: too much is unanswered.
  bool ack_due_ = false;
  bool input_ended_ = false;  // The client sends no more.
  bool draining_ = false;
  bool finished_ = false;  // Finish was called.
  std::optional<grpc::Status> ending_;
  std::shared_ptr<Run> run_;
  bool holds_run_ = false;
  SharedRegions regions_;
  std::unique_ptr<TraceAssembler> assembler_;
  std::optional<Steering> steering_;  // Where the run has a budget.
  int batch_next_ = 0;                // Frames of the batch in read_ that were taken.
  std::uint64_t received_ = 0;
  std::uint64_t credit_ = 0;
  std::int64_t durable_step_ = -1;
  std::size_t unanswered_ = 0;  // Steps in the pipeline.
};

}  // namespace plumbline
