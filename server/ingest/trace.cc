#include "server/ingest/trace.h"

namespace plumbline {

std::string StepIdentity::run_id() const { return project + "/" + job + "/" + run + "/" + std::to_string(rank); }

std::string StepIdentity::id() const { return run_id() + "/" + std::to_string(step); }

std::string_view unranked(std::string_view name) {
  constexpr std::string_view kRank = "rank";
  if (!name.starts_with(kRank)) return name;
  std::size_t end = kRank.size();
  while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
  return end > kRank.size() && end < name.size() && name[end] == '/' ? name.substr(end + 1) : name;
}

std::uint64_t Trace::payload_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [id, payload] : payloads) bytes += payload ? payload->size() : 0;
  return bytes;
}

}  // namespace plumbline
