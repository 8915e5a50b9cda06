#include "server/work/run_memory.h"

#include <utility>

#include "server/ingest/step_memory.h"

namespace plumbline {

std::string to_bytes(const StepMemory& memory) {
  TraceRecord record;
  record.previous_step = memory.step;
  record.previous_digests = memory.digests.left;
  record.previous_untouched = memory.digests.untouched;
  record.previous_reference_updates = memory.reference_updates;
  record.previous_apart = memory.apart;
  return memory_of(record).SerializeAsString();
}

absl::StatusOr<StepMemory> memory_from(const std::string& bytes) {
  if (bytes.empty()) return StepMemory{};
  v1::TraceHeader::Memory wire;
  if (!wire.ParseFromString(bytes)) return absl::DataLossError("what the run remembers of its steps cannot be parsed");
  TraceRecord record;
  remember(wire, &record);
  return StepMemory{record.previous_step,
                    {std::move(record.previous_digests), std::move(record.previous_untouched)},
                    std::move(record.previous_reference_updates),
                    std::move(record.previous_apart)};
}

}  // namespace plumbline
