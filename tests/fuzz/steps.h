// Frames to verdicts, as the daemon takes them, with limits under which nothing takes long.
#pragma once

#include <memory>
#include <vector>

#include "plumbline/v1/audit.pb.h"
#include "server/ingest/trace.h"
#include "server/judge/verdict.h"

namespace plumbline::fuzz {

inline constexpr std::size_t kInputMax = 1u << 16;  // Larger inputs are left to those who have time for them.
inline constexpr std::int64_t kElementsMax = 1 << 10;
inline constexpr std::uint64_t kStepBytesMax = 1u << 20;

using Traces = std::vector<std::shared_ptr<const Trace>>;

// The steps that frames make up, of one stream or, where one fails, of the next; each as the next rank's.
Traces assemble(const std::vector<v1::AuditRequest>& frames);

// Judges a step, and requires a whole verdict that can be sent.
Verdict judge(const TraceRecord& record);
// How many of the verdicts so far were of steps that could be audited.
std::size_t audited_steps();

// All ranks' traces as one step; null: they do not fit together, or are too large.
std::shared_ptr<const Trace> join(const Traces& ranks, bool replicated);

}  // namespace plumbline::fuzz
