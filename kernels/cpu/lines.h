// Lines of the processor's cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/chain.h"

namespace plumbline::cpu {

constexpr std::size_t kLine = 64;  // Bytes.

// Asks for `count` elements before they are read: where several arrays are read a block at a time, blocks are too short
// for the processor to see by itself what comes next.
template <class T>
void fetch(const T* from, std::int64_t count) {
  constexpr auto kOfLine = static_cast<std::int64_t>(kLine / sizeof(T));
  for (std::int64_t i = 0; i < count; i += kOfLine) __builtin_prefetch(from + i);
}
// The same of what a chain reads, from element `begin` on.
inline void fetch(const ChainInput& input, std::int64_t begin, std::int64_t count) {
  const int bytes = traits(input.format).bytes;
  if (input.values)
    fetch(input.values.data() + begin, count);
  else
    fetch(input.bytes + begin * bytes, count * bytes);
  if (input.radii) fetch(input.radii.values.data() + begin, count);
}

}  // namespace plumbline::cpu
