// What a run remembers of its steps, as bytes: it outlives the daemon.
#pragma once

#include <string>

#include "plumbline/v1/archive.pb.h"
#include "server/ingest/trace.h"

namespace plumbline {

// The record's `previous_` fields.
v1::TraceHeader::Memory memory_of(const TraceRecord& record);
void remember(const v1::TraceHeader::Memory& memory, TraceRecord* record);

}  // namespace plumbline
