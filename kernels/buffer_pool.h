// Buffers of arrays, kept for reuse: touching fresh memory for the first time costs many times what reuse does, and a
// replay frees and asks for the same sizes over and over. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

namespace plumbline {

// A buffer of at least `count` doubles, aligned to 64 bytes, uninitialised; in a DeviceScope from its memory, otherwise
// from the host's pool. Throws std::bad_alloc.
std::shared_ptr<double[]> allocate_buffer(std::int64_t count);

// Bytes that may be kept unused (default 1 GiB); what exceeds a lowered limit is freed at once. 0 keeps none.
void set_buffer_reserve_limit(std::int64_t bytes);
std::int64_t buffer_reserve_bytes();

}  // namespace plumbline
