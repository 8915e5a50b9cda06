#include "server/ingest/assembler.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/ingest/arguments.h"
#include "server/ingest/limits.h"
#include "server/ingest/trace_id.h"

namespace plumbline {

using absl::StrCat;

namespace {

int element_bytes(Format format) { return traits(format).bytes; }

Violation in_context(Violation violation, const std::string& context) {
  if (violation) violation.description += context;
  return violation;
}

Violation read_guard(const v1::Tap& wire, Guard* guard) {
  const char* given = wire.has_minimum() ? "tap.minimum" : "tap.maximum";
  if (wire.terms_size() == 0 && (wire.has_minimum() || wire.has_maximum()))
    return invalid(given, "a tap of this step", StrCat("a guard on the unknown tap \"", wire.name(), "\""));
  if (wire.has_minimum() && !std::isfinite(wire.minimum()))
    return invalid("tap.minimum", "a finite number", wire.minimum());
  if (wire.has_maximum() && !std::isfinite(wire.maximum()))
    return invalid("tap.maximum", "a finite number", wire.maximum());
  if (wire.has_minimum()) guard->minimum = wire.minimum();
  if (wire.has_maximum()) guard->maximum = wire.maximum();
  if (guard->minimum > guard->maximum)
    return invalid("tap.minimum", StrCat("at most the maximum, ", guard->maximum), guard->minimum);
  return {};
}

// It stands in logs as it is.
Violation check_trace_id(const std::string& id) {
  if (id.empty() || is_trace_id(id)) return {};
  return invalid("step_begin.trace_id", StrCat(kTraceIdExpected, ", or none"),
                 StrCat("\"", id.substr(0, kTraceIdDigits + 1), "\" of ", id.size(), " bytes"));
}

Violation stream_error(std::string field, const std::string& expected, const std::string& found) {
  Violation violation = invalid(std::move(field), expected, found);
  violation.code = absl::StatusCode::kFailedPrecondition;
  return violation;
}

}  // namespace

TraceAssembler::TraceAssembler(Options options)
    : options_(std::move(options)),
      payloads_(options_.buffers),
      memory_(options_.budget, options_.share),
      hash_(XXH3_createState()) {}

TraceAssembler::Result TraceAssembler::add(const v1::AuditRequest& frame) {
  using Case = v1::AuditRequest;
  if (frame.frame_case() == Case::kStepBegin) return begin(frame.step_begin());
  if (frame.frame_case() == Case::kOpen) {
    return {Progress::kStreamFailed, stream_error("open", "one open frame, the first of the stream", "another")};
  }
  if (!open_) {
    if (frame.frame_case() == Case::FRAME_NOT_SET) return {};  // A newer client sends frames that we do not know.
    return {Progress::kStreamFailed,
            stream_error("frame", "step_begin, since no step is open", StrCat("frame ", frame.frame_case()))};
  }
  if (frame.frame_case() == Case::kStepEnd) return end(frame.step_end());
  if (failed_) {
    ++frames_;
    return {};
  }

  if (frame.frame_case() == Case::kData) {
    const auto& data = frame.data();
    if (data.region() != 0 || data.region_offset() != 0 || data.length() != 0) return add_from_region(data);
    google::protobuf::io::ArrayInputStream bytes(data.data().data(), static_cast<int>(data.data().size()));
    StreamSource source(&bytes);
    return add({data.payload(), data.offset(), data.total(), data.data().size(), /*in_region=*/false}, &source);
  }

  // The parsed message is charged, which is about what the trace's plain data takes.
  const std::uint64_t bytes = frame.SpaceUsedLong();
  if (auto charged = charge(bytes); charged.progress != Progress::kTaken) return charged;
  ++frames_;

  Violation wrong;
  switch (frame.frame_case()) {
    case Case::kLeaf:
      hash(frame.leaf(), 'l');
      wrong = in_context(add_leaf(frame.leaf()), absl::StrFormat(" (leaf %d, \"%s\")", trace_->leaves.size(),
                                                                 frame.leaf().name().substr(0, 80)));
      break;
    case Case::kOp:
      hash(frame.op(), 'o');
      wrong = add_op(frame.op());
      if (wrong) {
        wrong = in_context(std::move(wrong), absl::StrFormat(" (operation %d, \"%s\")", trace_->ops.size(),
                                                             frame.op().name().substr(0, 80)));
      }
      break;
    case Case::kTap:
      hash(frame.tap(), 't');
      wrong = in_context(add_tap(frame.tap()), absl::StrFormat(" (tap \"%s\")", frame.tap().name().substr(0, 80)));
      break;
    default:  // A frame of a newer client: counted, otherwise ignored.
      break;
  }
  return wrong ? fail(std::move(wrong)) : Result{};
}

TraceAssembler::Result TraceAssembler::add(const Chunk& chunk, ByteSource* source) {
  if (!open_) return {Progress::kStreamFailed, stream_error("frame", "step_begin, since no step is open", "data")};
  if (failed_) {
    ++frames_;
    return {};
  }
  const std::uint64_t held = bytes_ - payload_bytes_ + payloads_.announced();
  const std::uint64_t left = options_.step_bytes_max - std::min(options_.step_bytes_max, held);
  if (auto wrong = payloads_.check(chunk, left)) return fail(std::move(wrong));
  // What has come, not what was announced: who announces and sends nothing takes nothing from others.
  const bool first = !payloads_.total(chunk.payload);
  const std::uint64_t bytes = chunk.size + (first ? limits::kPayloadEntryBytes : 0);
  if (auto charged = charge(bytes); charged.progress != Progress::kTaken) return charged;
  payload_bytes_ += chunk.size;
  ++frames_;
  const std::uint64_t taken = payloads_.add(chunk, source);
  if (taken < chunk.size) {
    return fail(invalid(chunk.in_region ? "data.length" : "data.data", StrCat(chunk.size, " bytes"),
                        StrCat("only ", taken, chunk.in_region ? StrCat(": ", options_.regions->failure()) : "")));
  }
  return {};
}

TraceAssembler::Result TraceAssembler::add_from_region(const v1::TensorData& data) {
  if (options_.regions == nullptr) {
    return fail(invalid("data.region", "none: this stream has no regions", data.region()));
  }
  if (auto wrong = options_.regions->check(data)) return fail(std::move(wrong));
  RegionReader source = options_.regions->reader(data);
  return add({data.payload(), data.offset(), data.total(), data.length(), /*in_region=*/true}, &source);
}

TraceAssembler::Result TraceAssembler::begin(const v1::StepBegin& begin) {
  if (open_) {
    return {Progress::kStreamFailed,
            stream_error("step_begin", StrCat("step_end of step ", step_), StrCat("step ", begin.step()))};
  }
  open_ = true;
  failed_ = false;
  frames_ = 1;
  bytes_ = payload_bytes_ = 0;
  step_ = begin.step();
  missed_ = begin.missed();
  missed_reasons_.assign(begin.missed_reasons().begin(), begin.missed_reasons().end());
  trace_ = std::make_unique<Trace>();
  trace_->identity = options_.run;
  trace_->identity.step = begin.step();
  trace_->outputs = begin.outputs();
  XXH3_128bits_reset(hash_.get());
  v1::StepBegin identity;  // Without `missed`, which may grow until a step is resent, and without the trace id.
  identity.set_step(begin.step());
  identity.set_outputs(begin.outputs());
  if (begin.scope().partial()) *identity.mutable_scope() = begin.scope();
  hash(identity, 'b');
  Violation unnamed = check_trace_id(begin.trace_id());
  trace_id_ = unnamed ? "" : begin.trace_id();
  if (begin.missed() < 0 || begin.missed_reasons_size() > limits::kMissedReasonsMax) {
    missed_ = 0;
    missed_reasons_.clear();
    if (begin.missed() < 0) return fail(invalid("step_begin.missed", "0 or more", begin.missed()));
    return fail(invalid("step_begin.missed_reasons", StrCat("at most ", limits::kMissedReasonsMax),
                        begin.missed_reasons_size()));
  }
  trace_->missed = missed_;
  trace_->missed_reasons = missed_reasons_;
  if (begin.step() < 0 || begin.step() > limits::kStepMax) {
    return fail(invalid("step_begin.step", StrCat("0 to ", limits::kStepMax), begin.step()));
  }
  if (unnamed) return fail(std::move(unnamed));
  for (int i = 0; i < begin.missed_reasons_size(); ++i) {
    if (auto wrong = check_text(begin.missed_reasons(i), StrCat("step_begin.missed_reasons[", i, "]"), false)) {
      return fail(std::move(wrong));
    }
  }
  if (auto wrong = add_scope(begin.scope())) return fail(std::move(wrong));
  return {};
}

Violation TraceAssembler::add_scope(const v1::Scope& wire) {
  TraceScope& scope = trace_->scope;
  const auto paths = [](const auto& from, const std::string& field, std::vector<std::string>* to) -> Violation {
    if (from.size() > limits::kModulesMax) return invalid(field, StrCat("at most ", limits::kModulesMax), from.size());
    for (int i = 0; i < from.size(); ++i) {
      if (auto wrong = check_text(from[i], StrCat(field, "[", i, "]"), false)) return wrong;
    }
    to->assign(from.begin(), from.end());
    return {};
  };
  scope.partial = wire.partial();
  scope.modules_total = wire.modules_total();
  scope.parameters_total = wire.parameters_total();
  if (auto wrong = paths(wire.modules(), "step_begin.scope.modules", &scope.modules)) return wrong;
  if (auto wrong = paths(wire.left_out(), "step_begin.scope.left_out", &scope.left_out)) return wrong;
  if (scope.modules_total < scope.modules.size()) {
    return invalid("step_begin.scope.modules_total", StrCat(scope.modules.size(), " or more"), scope.modules_total);
  }
  return {};
}

TraceAssembler::Result TraceAssembler::end(const v1::StepEnd& end) {
  open_ = false;
  ++frames_;
  if (failed_) return {};
  Violation wrong;
  if (end.frames() != frames_) {
    wrong = invalid("step_end.frames", StrCat("the ", frames_, " frames received"), end.frames());
  } else {
    wrong = take_payloads();
  }
  if (wrong) return fail(std::move(wrong));
  trace_->digest = digest();
  done_.trace = std::shared_ptr<const Trace>(std::move(trace_));
  settle();
  done_.memory = std::move(memory_);
  done_.trace_id = trace_id_;
  memory_ = MemoryBudget::Reservation(options_.budget, options_.share);
  drop();
  return {Progress::kStepDone, {}};
}

Violation TraceAssembler::end_of_stream() const {
  if (!open_) return {};
  if (!failed_) {
    if (const auto payload = payloads_.first_incomplete()) {
      return invalid("data.payload",
                     StrCat("the other ", *payloads_.total(*payload) - payloads_.received(*payload),
                            " bytes of payload ", *payload, " of step ", step_),
                     "the stream's end in the middle of a tensor");
    }
  }
  return invalid("step_end", StrCat("the end of step ", step_), "the stream's end in the middle of the step");
}

Violation TraceAssembler::add_leaf(const v1::Leaf& wire) {
  if (static_cast<std::int64_t>(trace_->leaves.size()) >= limits::kLeavesMax) {
    return exhausted("leaf", StrCat("a step may have at most ", limits::kLeavesMax, " leaves"));
  }
  TraceLeaf leaf;
  leaf.value = wire.value();
  leaf.count = wire.count();
  leaf.name = wire.name();
  leaf.payload = wire.payload();
  if (auto wrong = read_format(wire.dtype(), "leaf.dtype", &leaf.format)) return wrong;
  if (wire.role() <= v1::Leaf::ROLE_UNSPECIFIED || wire.role() > v1::Leaf::UNWRITTEN) {
    return invalid("leaf.role", "DATA, PARAMETER, BUFFER, STATE, RANDOM, OBSERVED or UNWRITTEN",
                   static_cast<int>(wire.role()));
  }
  leaf.role = static_cast<LeafRole>(wire.role());
  if (auto wrong = check_text(wire.name(), "leaf.name", named(leaf.role))) return wrong;
  if (wire.count() < 0 || wire.count() > limits::kElementsMax) {
    return invalid("leaf.count", StrCat("0 to ", limits::kElementsMax), wire.count());
  }
  const bool may_lack = options_.leaves_may_lack_payloads && persistent(leaf.role);
  if (leaf.count > 0 && leaf.format != Format::kUnknown && (leaf.payload != 0 || !may_lack)) {
    if (leaf.payload == 0) return invalid("leaf.payload", "an id above 0", 0);
    if (auto wrong = expect(leaf.payload, leaf.count, element_bytes(leaf.format), Expected::Field::kLeaf,
                            trace_->leaves.size(), 0)) {
      return wrong;
    }
  } else {
    leaf.payload = 0;  // Its type is not modelled, or it is empty, so that there is nothing to read.
  }
  if (auto wrong = define(leaf.value, {leaf.format, leaf.count, /*leaf=*/true}, "leaf.value")) return wrong;
  if (wire.has_part()) {
    if (!persistent(leaf.role)) return invalid("leaf.part", "none but of PARAMETER, BUFFER and STATE", wire.role());
    TensorRef box;
    std::int64_t elements = 0;
    if (auto wrong = read_tensor(wire.part().tensor(), "leaf.part.tensor", values_, /*may_be_absent=*/false,
                                 options_.elements_max, &box, &elements)) {
      return wrong;
    }
    if (box.value != leaf.value) return invalid("leaf.part.tensor.value", StrCat("the leaf, ", leaf.value), box.value);
    TracePart& part = leaf.part.emplace();
    part.view = box.view;
    if (auto wrong = read_part(wire.part(), "leaf.part", box.view.sizes, options_.elements_max, &part)) return wrong;
  }
  trace_->leaves.push_back(std::move(leaf));
  return {};
}

Violation TraceAssembler::add_op(const v1::Op& wire) {
  if (static_cast<std::int64_t>(trace_->ops.size()) >= limits::kOpsMax) {
    return exhausted("op", StrCat("a step may have at most ", limits::kOpsMax, " operations"));
  }
  TraceOp op;
  op.name = wire.name();
  op.source = wire.source();
  op.module = wire.module();
  op.decision = wire.decision();
  op.region = wire.region();
  op.defined = wire.defined();
  op.summation =
      v1::Op_Summation_IsValid(wire.summation()) ? static_cast<Summation>(wire.summation()) : Summation::kUnknown;
  op.phase = v1::Phase_IsValid(wire.phase()) ? static_cast<Phase>(wire.phase()) : Phase::kUnknown;
  if (auto wrong = check_text(wire.name(), "op.name", true)) return wrong;
  if (auto wrong = check_text(wire.source(), "op.source", false)) return wrong;
  if (auto wrong = check_text(wire.module(), "op.module", false)) return wrong;
  if (auto wrong = check_text(wire.region(), "op.region", false)) return wrong;
  if (auto wrong = check_text(wire.defined(), "op.defined", false)) return wrong;
  if (wire.arguments_size() > limits::kArgumentsMax) {
    return invalid("op.arguments", StrCat("at most ", limits::kArgumentsMax), wire.arguments_size());
  }
  if (wire.results_size() > limits::kResultsMax) {
    return invalid("op.results", StrCat("at most ", limits::kResultsMax), wire.results_size());
  }
  op.arguments.resize(wire.arguments_size());
  for (int i = 0; i < wire.arguments_size(); ++i) {
    if (auto wrong = read_argument(wire.arguments(i), StrCat("op.arguments[", i, "]"), values_, options_.elements_max,
                                   &op.arguments[i])) {
      return wrong;
    }
  }
  op.results.reserve(wire.results_size());
  for (int i = 0; i < wire.results_size(); ++i) {
    if (auto wrong = add_result(wire.results(i), i, &op)) return wrong;
  }
  if (op.decision != 0) {
    if (op.results.empty() || op.results[0].tensor.value == 0) {
      return invalid("op.decision", "a first result that it decides", "none");
    }
    if (auto wrong = expect(op.decision, count(op.results[0].tensor.view.sizes), 1, Expected::Field::kDecision,
                            trace_->ops.size(), 0)) {
      return wrong;
    }
  }
  trace_->ops.push_back(std::move(op));
  return {};
}

Violation TraceAssembler::add_result(const v1::Result& wire, int index, TraceOp* op) {
  const auto field = [index](const char* name) { return StrCat("op.results[", index, "]", name); };
  TraceResult result;
  result.argument = wire.argument();
  if (auto wrong = check_text(wire.argument(), field(".argument"), false)) return wrong;
  if (wire.tensor().value() == 0) {
    if (wire.base() != 0 || wire.observed() != 0) return invalid(field(".tensor.value"), "a tensor", "value 0");
    op->results.push_back(std::move(result));
    return {};
  }
  std::int64_t elements = 0;
  if (auto wrong = read_window(wire.tensor(), field(".tensor"), options_.elements_max, &result.tensor, &elements)) {
    return wrong;
  }
  if (wire.count() < 0 || wire.count() > limits::kElementsMax) {
    return invalid(field(".count"), StrCat("0 to ", limits::kElementsMax), wire.count());
  }
  if (wire.count() > options_.elements_max) {
    return exhausted(field(".count"), StrCat(wire.count(), " elements are more than the ", options_.elements_max,
                                             " that can be audited under --memory-limit"));
  }
  result.count = wire.count();
  result.base = wire.base();
  result.observed = wire.observed();
  const StorageValue storage{result.tensor.format, result.count, /*leaf=*/false};
  if (auto wrong = check_within(result.tensor, elements, storage, field(".tensor"))) return wrong;
  if (result.base != 0) {
    const auto base = values_.find(result.base);
    if (base == values_.end()) {
      return invalid(field(".base"), "a value of an earlier leaf or operation",
                     StrCat("value ", result.base, ", which is unknown so far"));
    }
    if (base->second.count != storage.count || base->second.format != storage.format) {
      return invalid(field(".count"),
                     StrCat(base->second.count, " elements of format ", static_cast<int>(base->second.format),
                            " as of its base ", result.base),
                     StrCat(storage.count, " of format ", static_cast<int>(storage.format)));
    }
  }
  if (auto wrong = define(result.tensor.value, storage, field(".tensor.value"))) return wrong;
  if (result.observed != 0) {
    if (result.tensor.format == Format::kUnknown) {
      result.observed = 0;  // Its type is not modelled, so that there is nothing to read.
    } else if (auto wrong = expect(result.observed, elements, element_bytes(result.tensor.format),
                                   Expected::Field::kObserved, trace_->ops.size(), index)) {
      return wrong;
    }
  }
  op->results.push_back(std::move(result));
  return {};
}

Violation TraceAssembler::add_tap(const v1::Tap& wire) {
  if (static_cast<std::int64_t>(trace_->taps.size()) >= limits::kTapsMax) {
    return exhausted("tap", StrCat("a step may have at most ", limits::kTapsMax, " taps"));
  }
  TraceTap tap;
  tap.name = wire.name();
  tap.reference = wire.reference();
  tap.scale = wire.scale();
  if (auto wrong = check_text(wire.name(), "tap.name", true)) return wrong;
  if (wire.terms_size() == 0 && wire.reference() != 0) {
    return invalid("tap.reference", "a tap of this step",
                   StrCat("a reference for the unknown tap \"", wire.name(), "\""));
  }
  if (auto wrong = read_guard(wire, &tap.guard)) return wrong;
  if (wire.kind() <= v1::Tap::KIND_UNSPECIFIED || wire.kind() > v1::Tap::CARRIED) {
    return invalid("tap.kind", "LOSS, GRADIENT, UPDATE, STATE, VALUE or CARRIED", static_cast<int>(wire.kind()));
  }
  tap.kind = static_cast<TapKind>(wire.kind());
  if (tap.kind == TapKind::kCarried && !carried_gradient(LeafRole::kState, tap.name))
    return invalid("tap.name", "\"state:NAME.grad\" of what is carried", wire.name());
  if (!(wire.scale() >= 0) || std::isinf(wire.scale()))
    return invalid("tap.scale", "a finite number, 0 or more", wire.scale());
  if (wire.terms_size() == 0 || wire.terms_size() > limits::kTermsMax) {
    return invalid("tap.terms", StrCat("1 to ", limits::kTermsMax), wire.terms_size());
  }
  if (!tap_names_.insert(wire.name()).second) return invalid("tap.name", "a name unique in the step", wire.name());

  std::int64_t elements = 0;
  for (int i = 0; i < wire.terms_size(); ++i) {
    const std::string field = StrCat("tap.terms[", i, "]");
    TraceTap::Term term;
    term.weight = wire.terms(i).weight();
    term.observed = wire.terms(i).observed();
    if (auto wrong = read_tensor(wire.terms(i).tensor(), field + ".tensor", values_, /*may_be_absent=*/false,
                                 options_.elements_max, &term.tensor, &elements)) {
      return wrong;
    }
    if (!std::isfinite(term.weight)) return invalid(field + ".weight", "a finite number", term.weight);
    if (term.tensor.format == Format::kUnknown) return invalid(field + ".tensor.dtype", "a format that is modelled", 0);
    if (i > 0 && term.tensor.view.sizes != tap.terms[0].tensor.view.sizes) {
      return invalid(field + ".tensor.sizes",
                     StrCat("[", absl::StrJoin(tap.terms[0].tensor.view.sizes, ", "), "] as in the first term"),
                     StrCat("[", absl::StrJoin(term.tensor.view.sizes, ", "), "]"));
    }
    if (term.observed == 0 && elements > 0 && !values_.at(term.tensor.value).leaf && wire.kind() != v1::Tap::CARRIED) {
      return invalid(field + ".observed", "a payload, since the tensor is not a leaf", 0);
    }
    if (term.observed != 0) {
      if (auto wrong = expect(term.observed, elements, element_bytes(term.tensor.format), Expected::Field::kTerm,
                              trace_->taps.size(), i)) {
        return wrong;
      }
    }
    tap.terms.push_back(std::move(term));
  }
  if (tap.reference != 0) {
    if (auto wrong = read_format(wire.reference_dtype(), "tap.reference_dtype", &tap.reference_format)) return wrong;
    if (tap.reference_format == Format::kUnknown) return invalid("tap.reference_dtype", "a format that is modelled", 0);
    if (auto wrong = expect(tap.reference, elements, element_bytes(tap.reference_format), Expected::Field::kReference,
                            trace_->taps.size(), 0)) {
      return wrong;
    }
  }
  if (wire.has_part()) {
    TracePart& part = tap.part.emplace();
    part.view.sizes = tap.terms[0].tensor.view.sizes;
    if (auto wrong = read_part(wire.part(), "tap.part", part.view.sizes, options_.elements_max, &part)) return wrong;
  }
  trace_->taps.push_back(std::move(tap));
  return {};
}

Violation TraceAssembler::define(ValueId value, const StorageValue& storage, const std::string& field) {
  if (value == 0) return invalid(field, "an id above 0", 0);
  if (!values_.emplace(value, storage).second) {
    return invalid(field, "a fresh id", StrCat("value ", value, ", which the step already has"));
  }
  return {};
}

Violation TraceAssembler::expect(PayloadId payload, std::int64_t elements, int element_bytes, Expected::Field field,
                                 std::size_t frame, std::size_t item) {
  Expected expected;
  expected.payload = payload;
  expected.bytes = static_cast<std::uint64_t>(elements) * static_cast<std::uint64_t>(element_bytes);
  expected.frame = static_cast<std::uint32_t>(frame);
  expected.item = static_cast<std::uint32_t>(item);
  expected.field = field;
  expected_.push_back(expected);
  return {};
}

std::string TraceAssembler::describe(const Expected& expected) const {
  switch (expected.field) {
    case Expected::Field::kLeaf:
      return "leaf.payload";
    case Expected::Field::kObserved:
      return StrCat("op.results[", expected.item, "].observed");
    case Expected::Field::kDecision:
      return "op.decision";
    case Expected::Field::kTerm:
      return StrCat("tap.terms[", expected.item, "].observed");
    case Expected::Field::kReference:
      return "tap.reference";
  }
  return "payload";
}

Violation TraceAssembler::take_payloads() {
  if (const auto payload = payloads_.first_incomplete()) {
    return invalid("data.payload",
                   StrCat(*payloads_.total(*payload), " bytes of payload ", *payload, " before step_end"),
                   StrCat(payloads_.received(*payload), " bytes: the step ends in the middle of a tensor"));
  }
  for (const Expected& expected : expected_) {
    const auto total = payloads_.total(expected.payload);
    const bool leaf = expected.field == Expected::Field::kLeaf;
    if (!total && leaf && options_.leaves_may_lack_payloads && persistent(trace_->leaves[expected.frame].role)) {
      trace_->leaves[expected.frame].payload = 0;
      continue;
    }
    if (!total || *total != expected.bytes) {
      const bool tap = expected.field == Expected::Field::kTerm || expected.field == Expected::Field::kReference;
      const std::string context =
          leaf
              ? absl::StrFormat(" (leaf %d, \"%s\")", expected.frame, trace_->leaves[expected.frame].name.substr(0, 80))
          : tap ? absl::StrFormat(" (tap \"%s\")", trace_->taps[expected.frame].name.substr(0, 80))
                : absl::StrFormat(" (operation %d, \"%s\")", expected.frame,
                                  trace_->ops[expected.frame].name.substr(0, 80));
      return invalid(describe(expected), StrCat(expected.bytes, " bytes for its shape"),
                     StrCat(total ? StrCat(*total, " bytes in payload ", expected.payload)
                                  : StrCat("no data for payload ", expected.payload),
                            context));
    }
    trace_->payloads.emplace(expected.payload, payloads_.bytes(expected.payload));
  }
  return {};
}

TraceAssembler::Result TraceAssembler::fail(Violation violation) {
  failed_ = true;
  drop();
  return {Progress::kStepFailed, std::move(violation)};
}

void TraceAssembler::drop() {
  trace_.reset();
  values_.clear();
  tap_names_.clear();
  payloads_ = Payloads(options_.buffers);
  expected_.clear();
  expected_.shrink_to_fit();
  memory_.release();
  arrived_ = 0;
}

void TraceAssembler::hash(const google::protobuf::MessageLite& message, char kind) {
  scratch_.clear();
  message.AppendToString(&scratch_);
  const std::uint64_t size = scratch_.size();
  XXH3_128bits_update(hash_.get(), &kind, 1);
  XXH3_128bits_update(hash_.get(), &size, sizeof size);
  XXH3_128bits_update(hash_.get(), scratch_.data(), scratch_.size());
}

std::string TraceAssembler::digest() const {
  // Payloads by id and content: how they were cut into chunks, and in which order these came, does not matter.
  for (const PayloadId id : payloads_.ids()) {
    XXH128_canonical_t content;
    XXH128_canonicalFromHash(&content, payloads_.hash(id));
    XXH3_128bits_update(hash_.get(), &id, sizeof id);
    XXH3_128bits_update(hash_.get(), content.digest, sizeof content.digest);
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(hash_.get());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

}  // namespace plumbline
