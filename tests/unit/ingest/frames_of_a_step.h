// The frames of one small whole step: y = x + w, tapped, with a parameter and a decision.
#pragma once

#include <string>
#include <vector>

#include "plumbline/v1/audit.pb.h"
#include "server/ingest/assembler.h"

namespace plumbline {

inline void set_tensor(v1::Tensor* tensor, std::uint64_t value, std::int64_t size) {
  tensor->set_value(value);
  tensor->set_dtype(v1::DTYPE_FLOAT32);
  tensor->add_sizes(size);
  tensor->add_strides(1);
}

inline v1::AuditRequest chunk(std::uint64_t payload, std::uint64_t offset, std::uint64_t total, std::string bytes) {
  v1::AuditRequest frame;
  frame.mutable_data()->set_payload(payload);
  frame.mutable_data()->set_offset(offset);
  frame.mutable_data()->set_total(total);
  frame.mutable_data()->set_data(std::move(bytes));
  return frame;
}

inline v1::AuditRequest leaf_frame(std::uint64_t value, std::uint64_t payload, v1::Leaf::Role role, std::string name) {
  v1::AuditRequest frame;
  frame.mutable_leaf()->set_value(value);
  frame.mutable_leaf()->set_dtype(v1::DTYPE_FLOAT32);
  frame.mutable_leaf()->set_count(2);
  frame.mutable_leaf()->set_role(role);
  frame.mutable_leaf()->set_name(std::move(name));
  frame.mutable_leaf()->set_payload(payload);
  return frame;
}

// Frames 0: begin, 1: leaf x, 2: leaf w, 3: operation, 4: tap y, 5: tap w, 6 to 9: payloads 1 to 4, 10: end.
inline std::vector<v1::AuditRequest> frames_of_a_step(std::int64_t step) {
  std::vector<v1::AuditRequest> frames(1);
  frames[0].mutable_step_begin()->set_step(step);
  frames.push_back(leaf_frame(1, 1, v1::Leaf::DATA, ""));
  frames.push_back(leaf_frame(2, 2, v1::Leaf::PARAMETER, "param:w"));
  v1::AuditRequest op;
  op.mutable_op()->set_name("aten::add.Tensor");
  op.mutable_op()->set_phase(v1::PHASE_FORWARD);
  op.mutable_op()->set_decision(4);
  for (const std::uint64_t value : {1, 2}) {
    auto* argument = op.mutable_op()->add_arguments();
    argument->set_name(value == 1 ? "self" : "other");
    set_tensor(argument->mutable_tensor(), value, 2);
  }
  auto* result = op.mutable_op()->add_results();
  set_tensor(result->mutable_tensor(), 3, 2);
  result->set_count(2);
  frames.push_back(op);
  v1::AuditRequest tap;
  tap.mutable_tap()->set_name("y");
  tap.mutable_tap()->set_kind(v1::Tap::VALUE);
  auto* term = tap.mutable_tap()->add_terms();
  set_tensor(term->mutable_tensor(), 3, 2);
  term->set_weight(1);
  term->set_observed(3);
  frames.push_back(tap);
  v1::AuditRequest read;
  read.mutable_tap()->set_name("x");
  read.mutable_tap()->set_kind(v1::Tap::VALUE);
  auto* leaf_term = read.mutable_tap()->add_terms();
  set_tensor(leaf_term->mutable_tensor(), 1, 2);
  leaf_term->set_weight(-1);
  frames.push_back(read);
  frames.push_back(chunk(1, 0, 8, "12345678"));
  frames.push_back(chunk(2, 0, 8, "abcdefgh"));
  frames.push_back(chunk(3, 0, 8, "ABCDEFGH"));
  frames.push_back(chunk(4, 0, 2, std::string("\1\0", 2)));
  v1::AuditRequest end;
  end.mutable_step_end()->set_frames(frames.size() + 1);
  frames.push_back(end);
  return frames;
}

inline TraceAssembler::Options options_of_a_run() {
  TraceAssembler::Options options;
  options.run.project = "p";
  options.run.job = "j";
  options.run.run = "r";
  return options;
}

// Offers all frames; the first result that is not kTaken, or the last.
inline TraceAssembler::Result offer(TraceAssembler& assembler, const std::vector<v1::AuditRequest>& frames) {
  TraceAssembler::Result result;
  for (const auto& frame : frames) {
    result = assembler.add(frame);
    if (result.progress != TraceAssembler::Progress::kTaken) return result;
  }
  return result;
}

inline std::shared_ptr<const Trace> trace_of(const std::vector<v1::AuditRequest>& frames) {
  TraceAssembler assembler(options_of_a_run());
  if (offer(assembler, frames).progress != TraceAssembler::Progress::kStepDone) return nullptr;
  return assembler.take_step().trace;
}

}  // namespace plumbline
