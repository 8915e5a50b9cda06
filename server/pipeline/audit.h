// One step, from trace to verdict: Trace -> Graph -> Bounds -> Verdict. The one entry for everything that schedules
// audits.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>

#include "kernels/profile.h"
#include "server/bound/findings/invariants.h"
#include "server/bound/input.h"
#include "server/ingest/golden_step.h"
#include "server/ingest/trace.h"
#include "server/judge/verdict.h"

namespace plumbline {

// What a step is judged against beside its own exact replay.
struct Reference {
  std::shared_ptr<const Trace> trace;  // Null: none. Its PARAMETER, BUFFER and STATE leaves may lack their payloads.
  std::string name;                    // "run NAME step K".
  bool first_step_of_run = false;      // State must be equal, not only matched.
};

// What is remembered from one audited step of a run to the next.
struct StepMemory {
  std::int64_t step = -1;
  DigestsAfter digests;
  std::set<std::string> reference_updates;  // Names of those that the reference's step gave.
  GradientApart apart;
};

// Probability that rounding alone is ever flagged by a statistical envelope in a run.
inline constexpr double kDefaultAlpha = 1e-3;

struct AuditRequestContext {
  const Profile* profile = nullptr;  // Never null.
  double alpha = kDefaultAlpha;      // The whole run spends it; it lies in (0, 1).
  const Reference* reference = nullptr;
  const GoldenStep* golden = nullptr;  // In place of a reference, whose leaves equal the target's.
  std::string golden_name;
  const StepMemory* previous = nullptr;  // It is the run's last audited step's; null means that there is none.
  ObservedProducts products = ObservedProducts::kRowsFirst;
  // One replay may take so much (replay_work); beyond it the step is INCONCLUSIVE.
  double work_max = std::numeric_limits<double>::infinity();
};

// Audits a step. Thread-safe; uses cpu::parallel_for. Never throws on what a trace holds: a trace that cannot be
// lowered or evaluated gives INCONCLUSIVE with the reason. `memory` (if not null) receives the digests after the step.
// Throws GivenUp within a CancelScope (kernels/cpu/cancel.h).
Verdict audit(const Trace& target, const AuditRequestContext& context, StepMemory* memory);
// The same of a record, under `profile` whatever it names.
Verdict audit(const TraceRecord& record, const Profile& profile, ObservedProducts products, StepMemory* memory,
              double work_max = std::numeric_limits<double>::infinity());

// What is left to say of a step whose audit was given up: INCONCLUSIVE, "The step could not be audited: `why`."
Verdict audit_given_up(const TraceRecord& record, const Profile& profile, const std::string& why, StepMemory* memory);

// What later steps need to be judged against this one. Throws std::exception where the step cannot be audited either.
GoldenStep golden_step(const Trace& trace, const Profile& profile);

// Operations that lowering models, for the capture plan.
std::vector<std::string> lowered_operations();
// Operations among them with decisions: name -> 1 (positive side of the first result) or 2 (results are decisions).
std::map<std::string, int> decision_operations();

}  // namespace plumbline
