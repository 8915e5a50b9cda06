#include "server/serve/audit_stream.h"

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/ingest/limits.h"
#include "server/log/log.h"
#include "server/serve/audit_service.h"
#include "server/serve/status.h"
#include "server/work/steady.h"

namespace plumbline {

using absl::StrCat;

namespace {

bool parse(grpc::ByteBuffer* buffer, v1::AuditRequest* request) {
  grpc::ProtoBufferReader reader(buffer);
  return reader.status().ok() && request->ParseFromZeroCopyStream(&reader);
}

grpc::ByteBuffer serialize(const v1::AuditResponse& response) {
  grpc::Slice slice(response.ByteSizeLong());
  response.SerializeWithCachedSizesToArray(const_cast<std::uint8_t*>(slice.begin()));
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

AuditStream::AuditStream(AuditService* service, grpc::CallbackServerContext* context, Caller caller)
    : service_(service),
      context_(context),
      caller_(std::move(caller)),
      old_at_(steady_now() + service->options().connection_age),
      regions_({caller_.peer.user, caller_.peer.process}, service->parts().open_device_memory,
               service->device_handles()) {}

AuditStream* AuditStream::start(AuditService* service, grpc::CallbackServerContext* context,
                                const absl::StatusOr<Caller>& caller) {
  const std::shared_ptr<AuditStream> stream(new AuditStream(service, context, caller.ok() ? *caller : Caller{}));
  stream->self_ = stream;
  const absl::Status room = service->add_stream(stream);
  const std::lock_guard lock(stream->mutex_);
  if (!caller.ok()) {
    stream->end_by(caller.status());
  } else if (service->draining()) {
    stream->end_by(absl::UnavailableError("the daemon is draining"));
  } else if (!room.ok()) {
    stream->end_by(room);
  } else {
    stream->grant();
    stream->read();
  }
  return stream.get();
}

void AuditStream::begin_drain() {
  const std::lock_guard lock(mutex_);
  if (draining_) return;
  draining_ = true;
  v1::AuditResponse response;
  response.mutable_control()->set_draining(true);
  send(response);
  end_if_idle();
}

void AuditStream::read() {
  waiting_since_ = steady_now();
  StartRead(&read_);
}

void AuditStream::note_arrival() {
  step_time_ += steady_now() - waiting_since_;
  waiting_since_ = absl::InfiniteFuture();
  step_bytes_ += read_.Length();
}

void AuditStream::keep_deadlines(absl::Time now) {
  guarded([&] {
    const absl::Duration waited = now - waiting_since_;  // Below 0 while the client is not waited for.
    const auto& options = service_->options();
    if (ending_) {
      // The context lives as long as OnDone() was not called.
      if (!finished_ && self_ != nullptr && waited > options.open_timeout) context_->TryCancel();
    } else if (run_ == nullptr) {
      if (waited > options.open_timeout)
        end_by(
            absl::DeadlineExceededError(StrCat("open: expected within ", absl::FormatDuration(options.open_timeout))));
    } else if (assembler_->in_step() && waited > absl::ZeroDuration()) {
      const auto bytes = static_cast<double>(step_bytes_);
      const absl::Duration most = options.step_timeout + absl::Seconds(bytes / limits::kStepBytesPerSecondMin);
      if (step_time_ + waited <= most) return;
      end_by(absl::DeadlineExceededError(StrCat("step_end: expected within ", absl::FormatDuration(most), " for the ",
                                                step_bytes_, " bytes of step ", assembler_->step(),
                                                " that came (--step-timeout)")));
    } else if (aged()) {
      end_if_idle();
    }
  });
}

void AuditStream::OnReadDone(bool ok) {
  guarded([&] {
    if (ending_) return;
    note_arrival();
    if (!ok) return half_closed();
    // Never beyond the credit: without any left there is no read.
    if (auto* metrics = service_->parts().metrics; metrics != nullptr) {
      metrics->add_ingest_bytes(Transport::kGrpc, read_.Length());
    }
    if (run_ == nullptr) return open();
    take_frame();
  });
}

void AuditStream::open() {
  const bool parsed = read_.Length() <= limits::kParsedKeptBytesMax && parse(&read_, &request_);
  received_ += read_.Length();
  read_.Clear();
  if (!parsed || request_.frame_case() != v1::AuditRequest::kOpen) {
    Violation wrong = invalid("frame", "open, the first frame of a stream", StrCat("frame ", request_.frame_case()));
    wrong.code = absl::StatusCode::kFailedPrecondition;
    return end(to_grpc_status(wrong));
  }
  const auto& parts = service_->parts();
  run_ = parts.runs->find(request_.open().handle());
  // Another's handle is as good as none: who has it did not have it from OpenJob.
  if (run_ != nullptr && !parts.access->handles(caller_, run_->identity.project, run_->owner)) run_ = nullptr;
  if (run_ == nullptr) {
    Violation wrong = invalid("open.handle", "a handle that OpenJob gave", "an unknown one");
    wrong.code = absl::StatusCode::kNotFound;
    return end(to_grpc_status(wrong));
  }
  const char* quota = "";
  auto room = parts.projects->add_stream(run_->identity.project, run_->identity.job, &quota);
  if (!room.ok()) {
    count_refusal(quota);
    return end_by(room.status());
  }
  stream_hold_ = *std::move(room);
  holds_run_ = parts.runs->acquire(*run_);
  if (!holds_run_) {
    Violation wrong = invalid("open.handle", "a run without a stream",
                              StrCat("run \"", run_->identity.run_id(), "\", which another stream holds"));
    wrong.code = absl::StatusCode::kAlreadyExists;
    return end(to_grpc_status(wrong));
  }
  if (run_->budget.given()) steering_.emplace(run_->budget);
  TraceAssembler::Options options;
  options.run = run_->identity;
  options.step_bytes_max = service_->options().step_bytes_max;
  options.elements_max = service_->options().elements_max;
  options.budget = parts.memory;
  options.share = service_->share_of(run_->identity.project, run_->identity.job);
  options.buffers = parts.buffers;
  options.regions = &regions_;
  assembler_ = std::make_unique<TraceAssembler>(std::move(options));
  parts.disk->post([self = weak_from_this(), store = parts.store, identity = run_->judged(-1)] {
    const auto stream = self.lock();
    if (stream == nullptr) return;
    const auto last = store->last_durable_step(identity);
    stream->guarded([&] {
      if (!last.ok()) return stream->end(to_grpc_status(last.status()));
      stream->durable_step_ = std::max(stream->durable_step_, *last);
      stream->ack_due_ = true;
      stream->write_next();
    });
  });
  next_frame();
}

// A token may have been revoked, and a role taken back, while the stream was open.
absl::Status AuditStream::may_stream() const {
  const Access& access = *service_->parts().access;
  if (auto valid = access.still(caller_); !valid.ok()) return valid;
  return access.check(caller_, Role::kStream, run_->identity.project);
}

void AuditStream::take_frame() {
  if (!assembler_->in_step()) {
    step_time_ = absl::ZeroDuration();
    step_bytes_ = 0;
  }
  TraceAssembler::Result result;
  Chunk chunk;
  bool data = false;
  {
    grpc::ProtoBufferReader reader(&read_);
    data = reader.status().ok() && read_chunk(&reader, read_.Length(), &chunk);
    StreamSource source(&reader);
    if (data) result = assemble([&] { return assembler_->add(chunk, &source); });
  }
  if (!data) {
    if (!parse_charged()) return;
    if (request_.has_region()) {
      add_region(request_.region());
    } else if (request_.has_drop_region()) {
      if (auto wrong = regions_.drop(request_.drop_region())) return end(to_grpc_status(wrong));
      ack_due_ = true;  // Tells the client that the memory is its own again.
    } else if (request_.has_pace()) {
      steer(request_.pace());
    } else if (request_.has_batch()) {
      return take_batch();
    } else {
      result = assemble([&] { return assembler_->add(request_); });
    }
    if (request_.has_step_end()) ack_due_ = true;  // Tells the client that the step is here.
  }
  // Here and now: its slices are the transport's. A frame that has to wait is read again.
  if (result.progress != TraceAssembler::Progress::kWait) done_with_message();
  if (take(std::move(result))) next_frame();
}

bool AuditStream::parse_charged() {
  if (!message_charged_ && read_.Length() > limits::kParsedKeptBytesMax) {
    auto arrived = assembler_->arrive(read_.Length());
    if (arrived.progress == TraceAssembler::Progress::kStepFailed && !assembler_->in_step()) {
      end_by(to_status(arrived.violation));  // There is no step that could fail for it.
      return false;
    }
    if (!take(std::move(arrived))) return false;
    message_charged_ = true;
  }
  if (parse(&read_, &request_)) return true;
  end(to_grpc_status(invalid("frame", "an AuditRequest", StrCat(read_.Length(), " bytes that do not parse as one"))));
  return false;
}

void AuditStream::done_with_message() {
  received_ += read_.Length();
  // A parsed message may be many times as large as its bytes, and would keep all of that for the next one.
  if (read_.Length() > limits::kParsedKeptBytesMax) v1::AuditRequest().Swap(&request_);
  read_.Clear();
  message_charged_ = false;
  if (assembler_ != nullptr) assembler_->settle();
}

TraceAssembler::Result AuditStream::assemble(const std::function<TraceAssembler::Result()>& add) {
  TraceAssembler::Result result;
  const absl::Status fault = contained("a frame", [&] { result = add(); });
  if (fault.ok()) return result;
  Violation violation{fault.code(), "step", std::string(fault.message())};
  if (assembler_->in_step()) return assembler_->abandon(std::move(violation));
  return {TraceAssembler::Progress::kStreamFailed, std::move(violation)};
}

void AuditStream::take_batch() {
  const auto& frames = request_.batch().frames();
  if (read_.Length() > limits::kBatchBytesMax) {
    return end(to_grpc_status(
        invalid("batch", StrCat("at most ", limits::kBatchBytesMax, " bytes of message"), StrCat(read_.Length()))));
  }
  for (; batch_next_ < frames.size(); ++batch_next_) {
    const v1::AuditRequest& frame = frames[batch_next_];
    if (frame.has_open() || frame.has_region() || frame.has_drop_region() || frame.has_pace() || frame.has_batch()) {
      return end(to_grpc_status(invalid("batch.frames", "frames of a step", StrCat("frame ", frame.frame_case()))));
    }
    if (frame.has_step_end() && batch_next_ + 1 < frames.size()) {  // Steps are few, and counted between messages.
      return end(to_grpc_status(invalid("batch.frames", "step_end as the last", StrCat("frame ", batch_next_))));
    }
    if (frame.has_step_end()) ack_due_ = true;
    if (!take(assemble([&] { return assembler_->add(frame); })))
      return;  // One that has to wait is read again with all of the batch.
    if (ending_) return;
  }
  batch_next_ = 0;
  done_with_message();
  next_frame();
}

bool AuditStream::take(TraceAssembler::Result result) {
  if (const auto read = regions_.take_bytes_read(); service_->parts().metrics != nullptr) {
    step_bytes_ += read.memory + read.device;
    if (read.memory > 0) service_->parts().metrics->add_ingest_bytes(Transport::kSharedMemory, read.memory);
    if (read.device > 0) service_->parts().metrics->add_ingest_bytes(Transport::kCudaIpc, read.device);
  }
  switch (result.progress) {
    case TraceAssembler::Progress::kTaken:
      break;
    case TraceAssembler::Progress::kWait:
      v1::AuditRequest().Swap(&request_);  // What waits is the message as it came; it is parsed again.
      assembler_->when_released([self = weak_from_this(), disk = service_->parts().disk] {
        disk->post([self] {
          const auto stream = self.lock();
          if (stream == nullptr) return;
          stream->guarded([&] {
            if (!stream->ending_ && stream->assembler_ != nullptr) stream->take_frame();
          });
        });
      });
      return false;
    case TraceAssembler::Progress::kStepDone:
      submit_step();
      break;
    case TraceAssembler::Progress::kStepFailed:
      if (!result.violation.quota_of.empty()) count_refusal(result.violation.quota.c_str());
      refuse_step(std::move(result.violation));
      break;
    case TraceAssembler::Progress::kStreamFailed:
      end(to_grpc_status(result.violation));
      return false;
  }
  return true;
}

void AuditStream::add_region(const v1::Region& region) {
  Violation wrong;
  if (caller_.peer.process > 0) {
    wrong = regions_.add(region);
  } else {
    wrong = invalid("region", "a stream over a unix socket", "another transport");
    wrong.code = absl::StatusCode::kFailedPrecondition;
  }
  v1::AuditResponse response;
  response.mutable_region()->set_region(region.region());
  auto* status = response.mutable_region()->mutable_status();
  if (wrong) *status = to_rpc_status(absl::Status(wrong.code, wrong.message()), wrong.field);
  send(response);
}

void AuditStream::steer(const v1::Pace& pace) {
  if (!steering_) return;
  // A measurement that cannot be one is left out.
  const bool sound = pace.step_seconds() > 0 && std::isfinite(pace.step_seconds()) && pace.cost_seconds() >= 0 &&
                     std::isfinite(pace.cost_seconds()) && pace.slice() > 0 && pace.slice() <= 1 && pace.steps() >= 0 &&
                     pace.since() >= 0;
  if (!sound) return;
  const Steer next = steering_->decide({pace.steps(), pace.since(), pace.step_seconds(), pace.cost_seconds(),
                                        pace.bytes(), pace.slice(), pace.rotating()},
                                       unanswered_);
  v1::AuditResponse response;
  response.mutable_control()->set_every(next.every);
  response.mutable_control()->set_slice(next.slice);
  send(response);
}

void AuditStream::next_frame() {
  if (ending_) return;
  if (draining_) {
    end_if_idle();
    if (ending_) return;
  }
  if (aged() && !assembler_->in_step()) {
    read_paused_ = true;
    end_if_idle();
    return write_next();
  }
  read_paused_ = unanswered_ >= limits::kStepsQueuedMax || response_bytes_ > limits::kResponseBytesQueuedMax;
  if (!read_paused_ && credit_ - received_ <= service_->window_bytes() / 2) grant();
  write_next();
  if (!read_paused_) read();
}

void AuditStream::half_closed() {
  input_ended_ = true;
  if (assembler_ != nullptr) {
    if (auto wrong = assembler_->end_of_stream()) {
      let_go();
      return end(to_grpc_status(wrong));
    }
  }
  end_if_idle();
}

void AuditStream::submit_step() {
  if (auto denied = may_stream(); !denied.ok()) return end(to_grpc_status(denied));
  const char* quota = "";
  auto room = service_->parts().projects->add_step(run_->identity.project, run_->identity.job, &quota);
  if (!room.ok()) {
    assembler_->take_step();  // And with it its memory.
    count_refusal(quota);
    return refuse_step(
        {room.status().code(), "", std::string(room.status().message()), true, quota_subject(room.status())});
  }
  ++unanswered_;
  service_->parts().pipeline->submit(run_, assembler_->take_step(), answer(*std::move(room)), client_);
}

void AuditStream::count_refusal(const char* quota) const {
  if (auto* metrics = service_->parts().metrics; metrics != nullptr) {
    metrics->add_quota_refusals(run_->identity.project, quota);
  }
}

StepPipeline::Done AuditStream::answer(ProjectUse::Hold hold) {
  // One for all copies of what is returned.
  return
      [self = weak_from_this(), held = std::make_shared<ProjectUse::Hold>(std::move(hold))](const StepAnswer& answer) {
        held->reset();  // Before the answer: who waited for it sends the next step at once.
        if (const auto stream = self.lock()) stream->guarded([&] { stream->answered(answer); });
      };
}

void AuditStream::refuse_step(Violation violation) {
  ++unanswered_;
  if (violation.of_the_moment) {  // Nothing to keep: the client sends the step again.
    StepIdentity again = run_->identity;
    again.step = assembler_->step();
    return answered({again, to_status(violation), violation.field, {}, false});
  }
  if (auto* metrics = service_->parts().metrics; metrics != nullptr) {
    metrics->add_dropped_steps(violation.code == absl::StatusCode::kResourceExhausted ? "memory_limit" : "invalid");
  }
  StepIdentity identity = run_->identity;
  identity.step = assembler_->step();
  StepPipeline::Done done = answer();
  if (!violation.quota_of.empty()) {
    done = [done = std::move(done), subject = violation.quota_of](StepAnswer refused) {
      refused.error = of_quota(std::move(refused.error), subject);
      done(refused);
    };
  }
  service_->parts().pipeline->refuse(identity, std::move(violation),
                                     {{assembler_->missed(), assembler_->missed_reasons()}, assembler_->trace_id()},
                                     std::move(done));
}

void AuditStream::answered(const StepAnswer& answer) {
  --unanswered_;
  if (steering_ && answer.memory_share > 0) steering_->audited(answer.verdict.audit_seconds(), answer.memory_share);
  // Before the answer: who waited for that captures the next step as this one asks.
  if (answer.outputs != WantedOutputs::kNone) {
    v1::AuditResponse control;
    control.mutable_control()->set_outputs_next(answer.outputs == WantedOutputs::kNext);
    control.mutable_control()->set_outputs(answer.outputs == WantedOutputs::kAlways);
    send(control);
  }
  v1::AuditResponse response;
  if (answer.error.ok()) {
    *response.mutable_verdict() = answer.verdict;
  } else {
    response.mutable_error()->set_step(answer.step.step);
    *response.mutable_error()->mutable_status() = to_rpc_status(answer.error, answer.field, answer.retry_after());
  }
  if (answer.durable && answer.error.ok()) {
    durable_step_ = std::max(durable_step_, answer.step.step);
    service_->parts().projects->add_verdict(run_->identity.project, run_->identity.job);
  }
  send(response);
  ack_due_ = true;  // After the answer itself.
  write_next();
  if (read_paused_) {
    next_frame();
  } else {
    end_if_idle();
  }
}

void AuditStream::grant() {
  credit_ = std::max(credit_, received_ + service_->window_bytes());
  ack_due_ = true;
  write_next();
}

void AuditStream::send(const v1::AuditResponse& response) {
  if (ending_) return;
  responses_.push_back(serialize(response));
  response_bytes_ += responses_.back().Length();
  write_next();
}

void AuditStream::write_next() {
  if (write_busy_ || finished_) return;
  if (!responses_.empty()) {
    written_ = std::move(responses_.front());
    responses_.pop_front();
    response_bytes_ -= written_.Length();
  } else if (ack_due_ && !ending_) {
    v1::AuditResponse response;
    auto* ack = response.mutable_ack();
    ack->set_received(received_);
    ack->set_credit(credit_);
    ack->set_durable_step(durable_step_);
    written_ = serialize(response);
    ack_due_ = false;
  } else {
    if (ending_) {
      finished_ = true;
      Finish(*ending_);
    }
    return;
  }
  write_busy_ = true;
  StartWrite(&written_);
}

void AuditStream::OnWriteDone(bool ok) {
  guarded([&] {
    write_busy_ = false;
    if (!ok) {  // The client is gone.
      responses_.clear();
      response_bytes_ = 0;
      ack_due_ = false;
      if (!ending_) ending_ = grpc::Status::CANCELLED;
    }
    write_next();
    if (ok && read_paused_) next_frame();
  });
}

void AuditStream::end(grpc::Status status) {
  if (ending_) return;
  ending_ = std::move(status);
  waiting_since_ = steady_now();
  let_go();
  write_next();
}

void AuditStream::end_by(const absl::Status& fault) { end(to_grpc_status(fault)); }

void AuditStream::end_if_idle() {
  if (ending_ || unanswered_ > 0 || (assembler_ != nullptr && assembler_->in_step())) return;
  if (input_ended_ || (aged() && !draining_)) return end(grpc::Status::OK);
  if (draining_) return end(to_grpc_status(absl::UnavailableError("the daemon is draining")));
}

bool AuditStream::aged() const { return steady_now() >= old_at_; }

void AuditStream::let_go() {
  if (assembler_ != nullptr && assembler_->in_step() && service_->parts().metrics != nullptr) {
    service_->parts().metrics->add_dropped_steps("stream_ended");
  }
  assembler_.reset();
  regions_.clear();
  stream_hold_.reset();
  if (holds_run_) {
    service_->parts().runs->release(*run_);
    log_event(
        LogLevel::kInfo, "run_closed",
        {{"run", run_->identity.run_id()},
         {"status", ending_ ? absl::StatusCodeToString(static_cast<absl::StatusCode>(ending_->error_code())) : ""},
         {"last_step", StrCat(durable_step_)},
         {"bytes", StrCat(received_)}});
  }
  holds_run_ = false;
}

void AuditStream::OnCancel() {
  guarded([&] {
    responses_.clear();
    response_bytes_ = 0;
    ack_due_ = false;
    end(grpc::Status::CANCELLED);
  });
}

void AuditStream::OnDone() {
  std::shared_ptr<AuditStream> self;
  {
    const std::lock_guard lock(mutex_);
    let_go();
    client_->leave();
    self = std::move(self_);
  }
  service_->remove_stream(self);
}

}  // namespace plumbline
