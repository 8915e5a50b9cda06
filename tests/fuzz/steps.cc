#include "tests/fuzz/steps.h"

#include <chrono>

#include "kernels/cpu/cancel.h"
#include "kernels/cpu/parallel.h"
#include "server/ingest/assembler.h"
#include "server/ingest/join.h"
#include "server/ingest/shards.h"
#include "server/pipeline/audit.h"
#include "server/pipeline/estimate.h"
#include "server/store/encode.h"
#include "tests/fuzz/target.h"

namespace plumbline::fuzz {
namespace {

constexpr std::size_t kTracesMax = 3;
constexpr double kWorkMax = 1e6;  // Multiplications of a replay.
constexpr std::uint64_t kAuditBytesMax = 8u << 20;
constexpr std::chrono::seconds kAuditTime{2};  // Then it must have found a place to stop.

TraceAssembler::Options options_of(std::size_t rank) {
  TraceAssembler::Options options;
  options.run = {"project", "job", "run", static_cast<std::int32_t>(rank), 0};
  options.step_bytes_max = kStepBytesMax;
  options.elements_max = kElementsMax;
  return options;
}

Verdict audited(const TraceRecord& record, const Profile& profile) {
  using Clock = std::chrono::steady_clock;
  const CancelScope within([end = Clock::now() + kAuditTime] { return Clock::now() < end; });
  StepMemory memory;
  try {
    return audit(record, profile, ObservedProducts::kEveryElement, &memory, kWorkMax);
  } catch (const GivenUp&) {
    return audit_given_up(record, profile, "it took too long", &memory);
  }
}

std::size_t audited_count = 0;

}  // namespace

std::size_t audited_steps() { return audited_count; }

Traces assemble(const std::vector<v1::AuditRequest>& frames) {
  using Progress = TraceAssembler::Progress;
  Traces traces;
  auto assembler = std::make_unique<TraceAssembler>(options_of(0));
  for (const v1::AuditRequest& frame : frames) {
    const TraceAssembler::Result result = assembler->add(frame);
    const bool failed = result.progress == Progress::kStepFailed || result.progress == Progress::kStreamFailed;
    require(failed == !result.violation.ok(), "a frame is refused with a reason, and taken without");
    if (failed) require(!result.violation.description.empty(), "a refusal says what was expected");
    if (result.progress == Progress::kStepDone) traces.push_back(assembler->take_step().trace);
    if (traces.size() == kTracesMax) break;
    if (result.progress == Progress::kStreamFailed || result.progress == Progress::kStepDone) {
      assembler = std::make_unique<TraceAssembler>(options_of(traces.size()));
    }
  }
  static_cast<void>(assembler->end_of_stream());
  return traces;
}

Verdict judge(const TraceRecord& record) {
  static const bool one_thread = (cpu::set_threads(1), true);
  static_cast<void>(one_thread);
  static const Profile profile = [] {
    Profile ieee;
    ieee.name = "ieee";
    return ieee;
  }();
  std::uint64_t bytes = estimated_audit_bytes(*record.trace);
  if (record.reference != nullptr) bytes += estimated_audit_bytes(*record.reference);
  if (bytes > kAuditBytesMax) return {};  // The scheduler refuses it.
  const Verdict verdict = audited(record, profile);
  require(verdict.outcome == Outcome::kTypeI || verdict.outcome == Outcome::kTypeII ||
              verdict.outcome == Outcome::kInconclusive,
          "a verdict has an outcome");
  require(!verdict.sentence.empty(), "a verdict says why");
  audited_count += verdict.sentence.rfind("The step could not be audited", 0) != 0;
  const v1::Verdict wire = to_proto(verdict);
  require(v1::Verdict().ParseFromString(wire.SerializeAsString()), "a verdict can be read by whom it is sent to");
  return verdict;
}

std::shared_ptr<const Trace> join(const Traces& ranks, bool replicated) {
  if (bytes_of_wholes(ranks) > kStepBytesMax) return nullptr;
  const Joined joined = join_ranks(ranks, replicated);
  require((joined.trace == nullptr) == !joined.fault.empty(), "ranks are joined, or it is said why not");
  return joined.trace;
}

}  // namespace plumbline::fuzz
