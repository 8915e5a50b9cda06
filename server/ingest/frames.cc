#include "server/ingest/frames.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "server/ingest/limits.h"

namespace plumbline {

void write_tensor(const TensorRef& tensor, v1::Tensor* wire) {
  wire->set_value(tensor.value);
  wire->set_dtype(static_cast<v1::DType>(tensor.format));
  wire->mutable_sizes()->Assign(tensor.view.sizes.begin(), tensor.view.sizes.end());
  wire->mutable_strides()->Assign(tensor.view.strides.begin(), tensor.view.strides.end());
  wire->set_offset(tensor.view.offset);
}

namespace {

void write_argument(const TraceArgument& argument, v1::Argument* wire) {
  wire->set_name(argument.name);
  std::visit(
      [wire](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, None>) {
          wire->set_none(true);
        } else if constexpr (std::is_same_v<T, TensorRef>) {
          write_tensor(value, wire->mutable_tensor());
        } else if constexpr (std::is_same_v<T, std::vector<TensorRef>>) {
          wire->mutable_tensors();
          for (const TensorRef& tensor : value) write_tensor(tensor, wire->mutable_tensors()->add_tensors());
        } else if constexpr (std::is_same_v<T, double>) {
          wire->set_real(value);
        } else if constexpr (std::is_same_v<T, bool>) {
          wire->set_boolean(value);
        } else if constexpr (std::is_same_v<T, std::int64_t>) {
          wire->set_integer(value);
        } else if constexpr (std::is_same_v<T, std::string>) {
          wire->set_text(value);
        } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
          wire->mutable_integers()->mutable_values()->Assign(value.begin(), value.end());
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          wire->mutable_reals()->mutable_values()->Assign(value.begin(), value.end());
        } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
          wire->mutable_booleans();
          for (const bool one : value) wire->mutable_booleans()->add_values(one);
        } else if constexpr (std::is_same_v<T, Format>) {
          wire->set_dtype(static_cast<v1::DType>(value));
        } else {
          static_assert(std::is_same_v<T, ScalarEdge>);
          write_tensor(value.source, wire->mutable_scalar());
        }
      },
      argument.value);
}

}  // namespace

void write_op(const TraceOp& op, v1::Op* wire) {
  wire->set_name(op.name);
  wire->set_phase(static_cast<v1::Phase>(op.phase));
  wire->set_source(op.source);
  wire->set_module(op.module);
  wire->set_decision(op.decision);
  wire->set_region(op.region);
  wire->set_defined(op.defined);
  wire->set_summation(static_cast<v1::Op::Summation>(op.summation));
  for (const TraceArgument& argument : op.arguments) write_argument(argument, wire->add_arguments());
  for (const TraceResult& result : op.results) {
    auto* written = wire->add_results();
    if (result.tensor.value != 0) write_tensor(result.tensor, written->mutable_tensor());
    written->set_count(result.count);
    written->set_base(result.base);
    written->set_argument(result.argument);
    written->set_observed(result.observed);
  }
}

namespace {

void write_tap(const TraceTap& tap, v1::Tap* wire) {
  wire->set_name(tap.name);
  wire->set_kind(static_cast<v1::Tap::Kind>(tap.kind));
  wire->set_reference(tap.reference);
  wire->set_reference_dtype(static_cast<v1::DType>(tap.reference_format));
  wire->set_scale(tap.scale);
  if (std::isfinite(tap.guard.minimum)) wire->set_minimum(tap.guard.minimum);
  if (std::isfinite(tap.guard.maximum)) wire->set_maximum(tap.guard.maximum);
  for (const TraceTap::Term& term : tap.terms) {
    auto* written = wire->add_terms();
    write_tensor(term.tensor, written->mutable_tensor());
    written->set_weight(term.weight);
    written->set_observed(term.observed);
  }
}

bool emit_payload(PayloadId id, const std::vector<std::uint8_t>& bytes,
                  const std::function<bool(const v1::AuditRequest&)>& send) {
  v1::AuditRequest frame;
  std::uint64_t offset = 0;
  do {
    const std::uint64_t size = std::min<std::uint64_t>(limits::kChunkBytesMax, bytes.size() - offset);
    v1::TensorData* chunk = frame.mutable_data();
    chunk->set_payload(id);
    chunk->set_offset(offset);
    chunk->set_total(bytes.size());
    chunk->set_data(bytes.data() + offset, size);
    if (!send(frame)) return false;
    offset += size;
  } while (offset < bytes.size());
  return true;
}

}  // namespace

bool emit_frames(const Trace& trace, const std::function<bool(PayloadId)>& keep,
                 const std::function<bool(const v1::AuditRequest&)>& sink) {
  std::uint64_t frames = 0;
  const auto send = [&](const v1::AuditRequest& frame) {
    ++frames;
    return sink(frame);
  };
  {
    v1::AuditRequest frame;
    auto* begin = frame.mutable_step_begin();
    begin->set_step(trace.identity.step);
    begin->set_outputs(trace.outputs);
    begin->set_missed(trace.missed);
    for (const std::string& reason : trace.missed_reasons) begin->add_missed_reasons(reason);
    if (trace.scope.modules_total > 0 || trace.scope.partial) {
      auto* scope = begin->mutable_scope();
      scope->set_partial(trace.scope.partial);
      scope->mutable_modules()->Assign(trace.scope.modules.begin(), trace.scope.modules.end());
      scope->mutable_left_out()->Assign(trace.scope.left_out.begin(), trace.scope.left_out.end());
      scope->set_modules_total(trace.scope.modules_total);
      scope->set_parameters_total(trace.scope.parameters_total);
    }
    if (!send(frame)) return false;
  }
  for (const TraceLeaf& leaf : trace.leaves) {
    v1::AuditRequest frame;
    auto* wire = frame.mutable_leaf();
    wire->set_value(leaf.value);
    wire->set_dtype(static_cast<v1::DType>(leaf.format));
    wire->set_count(leaf.count);
    wire->set_role(static_cast<v1::Leaf::Role>(leaf.role));
    wire->set_name(leaf.name);
    wire->set_payload(leaf.payload);
    if (!send(frame)) return false;
  }
  for (const TraceOp& op : trace.ops) {
    v1::AuditRequest frame;
    write_op(op, frame.mutable_op());
    if (!send(frame)) return false;
  }
  for (const TraceTap& tap : trace.taps) {
    v1::AuditRequest frame;
    write_tap(tap, frame.mutable_tap());
    if (!send(frame)) return false;
  }
  for (const auto& [id, bytes] : trace.payloads) {
    if (bytes != nullptr && keep(id) && !emit_payload(id, *bytes, send)) return false;
  }
  v1::AuditRequest frame;
  frame.mutable_step_end()->set_frames(++frames);
  return sink(frame);
}

}  // namespace plumbline
