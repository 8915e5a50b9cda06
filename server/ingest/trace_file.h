// One step's trace at rest, with what its audit was asked beside it.
//
// Format, version 2: the 8 bytes "PLTRACE2"; then messages, each after its length as a varint: a TraceHeader
// (proto/plumbline/v1/archive.proto), the AuditRequest frames of the step, and those of its reference's step if the
// header names one; last, 8 bytes, big-endian: XXH3-64 of everything before.
//
// What plumbline.dump writes is read too: the frames of one step and nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/ingest/buffer_pool.h"
#include "server/ingest/trace.h"

namespace plumbline {

enum class TraceContent {
  kWhole,
  // Without payloads of parameters, buffers and state, since a comparison takes the other run's. Kept are those that a
  // tap reads, so that taps are whole, and those that a pair may do without: counts and settings of an optimizer, which
  // may be numbers of Python there, carried gradients, which may have been cleared there, and small buffers, which may
  // have been folded there.
  kPaired
};

// Writes to PATH.part, then renames: PATH is whole or not there. Returns the bytes of the file. `trace_id` is what
// trace_id_of_file finds.
absl::StatusOr<std::uint64_t> write_trace_file(const TraceRecord& record, TraceContent content, const std::string& path,
                                               const std::string& trace_id = "");

struct TraceReading {
  std::uint64_t step_bytes_max = UINT64_MAX;
  std::int64_t elements_max = INT64_MAX;  // Of a window.
  std::shared_ptr<BufferPool> buffers;    // For payloads; null: fresh memory for every one.
};

// NOT_FOUND; INVALID_ARGUMENT: no trace file; FAILED_PRECONDITION: of another version; DATA_LOSS: damaged;
// RESOURCE_EXHAUSTED: a step or a window larger than asked. Messages do not name the path.
absl::StatusOr<TraceRecord> read_trace_file(const std::string& path, const TraceReading& reading = {});

// The trace id of the step in a file of write_trace_file; empty: it has none, or cannot be read. Reads the header
// alone, and checks no checksum.
std::string trace_id_of_file(const std::string& path);

}  // namespace plumbline
