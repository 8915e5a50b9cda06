// CUB's sort as far as kernels/cuda uses it (cuda_runtime.h): stable, by some bits of unsigned keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/emulation/cuda_runtime.h"

namespace cub {

struct DeviceRadixSort {
  template <class Key, class Value>
  static cudaError_t SortPairs(void* memory, std::size_t& bytes, const Key* keys, Key* sorted_keys, const Value* values,
                               Value* sorted_values, std::uint32_t count, int first_bit, int last_bit,
                               cudaStream_t stream) {
    if (memory == nullptr) {
      bytes = count;
      return cudaSuccess;
    }
    emulation::put(stream, [=, room = bytes] {
      std::fill_n(static_cast<unsigned char*>(memory), room, 0);  // It may use all of it.
      std::vector<std::uint32_t> order(count);
      std::iota(order.begin(), order.end(), 0U);
      const Key mask = static_cast<Key>((last_bit < 64 ? (std::uint64_t{1} << last_bit) : 0) - 1) >> first_bit;
      const auto key = [=](std::uint32_t i) { return keys[i] >> first_bit & mask; };
      std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
      for (std::uint32_t i = 0; i < count; ++i) {
        sorted_keys[i] = keys[order[i]];
        sorted_values[i] = values[order[i]];
      }
    });
    return cudaSuccess;
  }
};

}  // namespace cub
