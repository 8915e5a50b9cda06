// Buffers of arrays, kept for reuse: touching fresh memory for the first time costs many times what reuse does, and a
// replay frees and asks for the same sizes over and over. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace plumbline {

class MemoryResource;  // kernels/device.h

// Gives a buffer back to where it came from.
struct BufferReturn {
  MemoryResource* memory = nullptr;  // Null: the host's pool.
  std::size_t bytes = 0;
  void operator()(double* buffer) const noexcept;
};
using Buffer = std::unique_ptr<double[], BufferReturn>;

// A buffer of at least `count` doubles, aligned to 64 bytes, uninitialised; from `memory`, or where that is null from
// the host's pool. Throws std::bad_alloc.
Buffer allocate_buffer(std::int64_t count, MemoryResource* memory);

// Frees what was kept and not needed since the last call: what then is left, used or not, is the most that was used in
// between. Until then as much is kept as was ever used.
void release_unneeded_buffers();
// Whether large buffers are pages of the system's, cut and put together again: not under the address sanitizer, which
// watches its allocator's buffers alone.
bool buffers_are_pages();
// Kept, and not in use.
std::int64_t buffer_reserve_bytes();

}  // namespace plumbline
