// One step's trace at rest.
//
// Format, version 1: the 8 bytes "PLTRACE1"; the digest of the step as it was received, 32 hexadecimal digits; then
// AuditRequest messages, each after its length as a varint: `open` with the run_id() as handle, then the frames of the
// step; last, 8 bytes, big-endian: XXH3-64 of everything before. Payloads of parameters, buffers and state are left
// out, since a comparison takes the other run's; those that a tap reads are kept, so that taps are whole.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/ingest/trace.h"

namespace plumbline {

// Writes to PATH.part, then renames: PATH is whole or not there. Returns the bytes of the file.
absl::StatusOr<std::uint64_t> write_trace_file(const Trace& trace, const std::string& path);

// NOT_FOUND; DATA_LOSS: damaged, or of another step than `step`.
absl::StatusOr<std::shared_ptr<const Trace>> read_trace_file(const std::string& path, const StepIdentity& step);

}  // namespace plumbline
