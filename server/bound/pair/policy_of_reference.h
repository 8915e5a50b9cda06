// Whether the target rounds more than the reference's formats and operations allow.
#pragma once

#include "server/bound/pair/gap.h"

namespace plumbline {

// Where the target, by one of the probes, deviates from its own exact value by more than the reference's execution may
// from its own, the two differ by policy: bounds->policy_casts then names what owns the target's largest error.
// Deviations of a few roundings of the tap itself are explained by no policy and are not asked of. All taps of the
// probes have their counterparts; their executions were answered in bounds->findings.
void judge_by_reference_policy(const BoundsInput& input, const Gap& gap, const std::vector<Probe>& probes,
                               Bounds* bounds);

}  // namespace plumbline
