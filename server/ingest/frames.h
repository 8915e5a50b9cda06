// A trace back to frames: the inverse of TraceAssembler, for traces at rest and for tests.
#pragma once

#include <functional>

#include "plumbline/v1/audit.pb.h"
#include "server/ingest/trace.h"

namespace plumbline {

void write_tensor(const TensorRef& tensor, v1::Tensor* wire);
void write_op(const TraceOp& op, v1::Op* wire);

// Gives the frames of a step in an order that the assembler takes, StepBegin first and StepEnd last. Payloads for which
// `keep` says no are left out. Stops when `sink` returns false, and returns false then.
bool emit_frames(const Trace& trace, const std::function<bool(PayloadId)>& keep,
                 const std::function<bool(const v1::AuditRequest&)>& sink);

}  // namespace plumbline
