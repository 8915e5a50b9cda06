// The threads of a block as fibers of one thread, and streams of work that waits (cuda_runtime.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  unsigned x, y, z;
};

// They belong to the thread that runs.
inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;

namespace emulation {

inline constexpr std::size_t kSharedBytes = 227 << 10;  // That a block may ask for at its launch (sm_90).

struct Launch {
  dim3 blocks, threads;
  std::size_t shared;  // Bytes.
};
bool legal(const Launch& launch);

// Calls `kernel` in each thread of each block.
void run(const Launch& launch, const std::function<void()>& kernel);

// The lane of the calling thread in its warp.
int lane();
void wait_for_warp();
void wait_for_block();

using Word = std::array<unsigned char, 16>;
Word exchange(unsigned mask, const Word& value, int lane);
template <class T>
T exchange(unsigned mask, T value, int lane) {
  static_assert(sizeof(T) <= sizeof(Word));
  Word word{};
  __builtin_memcpy(word.data(), &value, sizeof value);
  word = exchange(mask, word, lane);
  __builtin_memcpy(&value, word.data(), sizeof value);
  return value;
}

struct Stream;
struct Event;
void put(Stream* stream, std::function<void()> work);

}  // namespace emulation
