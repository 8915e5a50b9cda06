// Buffers of arrays, kept for reuse: touching fresh memory for the first time costs many times what reuse does, and a
// replay frees and asks for the same sizes over and over. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

namespace plumbline {

// A buffer of at least `count` doubles, aligned to 64 bytes, uninitialised; in a DeviceScope from its memory, otherwise
// from the host's pool. Throws std::bad_alloc.
std::shared_ptr<double[]> allocate_buffer(std::int64_t count);

// Frees what was kept and not needed since the last call: what then is left, used or not, is the most that was used in
// between. Until then as much is kept as was ever used.
void release_unneeded_buffers();
// Kept, and not in use.
std::int64_t buffer_reserve_bytes();

}  // namespace plumbline
