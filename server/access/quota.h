// What a project may take, and each of its jobs (proto/plumbline/v1/policy.proto).
#pragma once

#include <cstdint>
#include <vector>

namespace plumbline {

struct Quota {
  static constexpr std::uint64_t kNone = UINT64_MAX;  // No limit.

  std::uint64_t streams = kNone;           // At a time.
  std::uint64_t bytes_in_flight = kNone;   // Of steps that came and are not answered.
  std::uint64_t steps_queued = kNone;      // Whole steps that are not answered.
  std::uint64_t verdicts = kNone;          // Stored.
  std::uint64_t kept_trace_bytes = kNone;  // Of Type II steps.
  // The same of each job.
  std::uint64_t job_streams = kNone, job_bytes_in_flight = kNone, job_steps_queued = kNone, job_verdicts = kNone,
                job_kept_trace_bytes = kNone;

  bool of_jobs() const {
    return job_streams != kNone || job_bytes_in_flight != kNone || job_steps_queued != kNone || job_verdicts != kNone ||
           job_kept_trace_bytes != kNone;
  }

  // The names of those limits beyond which something is refused, where they are given.
  std::vector<const char*> limited() const {
    std::vector<const char*> names;
    if (streams != kNone) names.push_back("streams");
    if (bytes_in_flight != kNone) names.push_back("bytes_in_flight");
    if (steps_queued != kNone) names.push_back("steps_queued");
    if (verdicts != kNone) names.push_back("verdicts");
    if (job_streams != kNone) names.push_back("job_streams");
    if (job_bytes_in_flight != kNone) names.push_back("job_bytes_in_flight");
    if (job_steps_queued != kNone) names.push_back("job_steps_queued");
    if (job_verdicts != kNone) names.push_back("job_verdicts");
    return names;
  }
};

}  // namespace plumbline
