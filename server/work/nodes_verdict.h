// The verdict of all ranks of a step that stream to several daemons, made and stored by one of these.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/metrics/metrics.h"
#include "server/store/node_part.h"
#include "server/store/store.h"

namespace plumbline {

// Stores it under rank -1 (nodes/combine.h), as a verdict of the daemon's own: from there it is shipped and published
// as any other. Waits for that; the same step again is stored once. `waited`: for how long its parts were waited for.
// `metrics` may be null. Thread-safe.
absl::Status judge_nodes(const NodeStep& step, absl::Duration waited, VerdictStore* store, Metrics* metrics);

}  // namespace plumbline
