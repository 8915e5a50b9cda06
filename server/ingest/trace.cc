#include "server/ingest/trace.h"

namespace plumbline {

std::string StepIdentity::run_id() const { return project + "/" + job + "/" + run + "/" + std::to_string(rank); }

std::string StepIdentity::id() const { return run_id() + "/" + std::to_string(step); }

std::uint64_t Trace::payload_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [id, payload] : payloads) bytes += payload ? payload->size() : 0;
  return bytes;
}

}  // namespace plumbline
