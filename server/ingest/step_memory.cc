#include "server/ingest/step_memory.h"

#include <algorithm>

namespace plumbline {
namespace {

using Digests = google::protobuf::RepeatedPtrField<v1::TraceHeader::Memory::Digest>;

void write(const std::map<std::string, std::string>& digests, Digests* wire) {
  for (const auto& [name, digest] : digests) {
    v1::TraceHeader::Memory::Digest* of = wire->Add();
    of->set_name(name);
    of->set_digest(digest);
  }
}

std::map<std::string, std::string> read(const Digests& wire) {
  std::map<std::string, std::string> digests;
  for (const auto& of : wire) digests[of.name()] = of.digest();
  return digests;
}

}  // namespace

v1::TraceHeader::Memory memory_of(const TraceRecord& record) {
  v1::TraceHeader::Memory memory;
  memory.set_step(record.previous_step);
  write(record.previous_digests, memory.mutable_digests());
  write(record.previous_untouched, memory.mutable_untouched());
  for (const std::string& name : record.previous_reference_updates) memory.add_reference_updates(name);
  memory.set_gradient_apart(record.previous_apart.leaf);
  memory.set_apart_by(record.previous_apart.by);
  memory.set_kept_left(static_cast<std::uint32_t>(record.previous_apart.kept));
  if (record.previous_apart.scale != 1) memory.set_gradient_scale(record.previous_apart.scale);
  return memory;
}

void remember(const v1::TraceHeader::Memory& memory, TraceRecord* record) {
  record->previous_step = memory.step();
  record->previous_digests = read(memory.digests());
  record->previous_untouched = read(memory.untouched());
  record->previous_reference_updates = {memory.reference_updates().begin(), memory.reference_updates().end()};
  record->previous_apart = {memory.gradient_apart(), memory.apart_by(),
                            memory.has_gradient_scale() ? memory.gradient_scale() : 1,
                            static_cast<KeptLeft>(std::min(memory.kept_left(), 2U))};
}

}  // namespace plumbline
