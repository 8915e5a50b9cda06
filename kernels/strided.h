// How flat indices become addresses: the dimensions that several strided and broadcast operands have in common.
// Adjacent ones are merged where every operand allows it, so that the innermost is as long as can be.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/array.h"
#include "kernels/ball/scalar.h"

namespace plumbline {

template <int N>
struct Dimension {
  std::int64_t size;
  std::array<std::int64_t, N> strides;
};

// Dimensions of `shape` with the strides of N operands (each aligned at the last dimension and broadcast), merged.
// Never empty.
template <int N>
std::vector<Dimension<N>> merged_dimensions(const Shape& shape, const std::array<const View*, N>& views) {
  std::vector<Dimension<N>> result;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    Dimension<N> next{shape[d], {}};
    for (int i = 0; i < N; ++i) {
      const std::size_t lead = shape.size() - views[i]->sizes.size();
      next.strides[i] = d < lead || views[i]->sizes[d - lead] == 1 ? 0 : views[i]->strides[d - lead];
    }
    bool merges = !result.empty();
    for (int i = 0; merges && i < N; ++i) merges = result.back().strides[i] == next.strides[i] * next.size;
    if (merges) {
      result.back().size *= next.size;
      result.back().strides = next.strides;
    } else {
      result.push_back(next);
    }
  }
  if (result.empty()) result.push_back({1, {}});
  return result;
}

// Walks flat indices [begin, end) of `dims` as runs along the last dimension: run(length, offsets).
template <int N, class Run>
void for_each_run(const std::vector<Dimension<N>>& dims, std::int64_t begin, std::int64_t end, Run&& run) {
  const std::size_t last = dims.size() - 1;
  std::array<std::int64_t, N> offsets{};
  if (last == 0) {
    for (int i = 0; i < N; ++i) offsets[i] = begin * dims[0].strides[i];
    if (end > begin) run(end - begin, offsets);
    return;
  }
  constexpr std::size_t kUsual = 16;
  std::int64_t usual[kUsual];
  std::vector<std::int64_t> unusual(dims.size() > kUsual ? dims.size() : 0);
  std::int64_t* const index = dims.size() > kUsual ? unusual.data() : usual;
  std::int64_t rest = begin;
  for (std::size_t d = dims.size(); d-- > 0;) {
    index[d] = rest % dims[d].size;
    rest /= dims[d].size;
    for (int i = 0; i < N; ++i) offsets[i] += index[d] * dims[d].strides[i];
  }
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t length = std::min(dims[last].size - index[last], end - at);
    run(length, offsets);
    at += length;
    index[last] += length;
    for (int i = 0; i < N; ++i) offsets[i] += length * dims[last].strides[i];
    for (std::size_t d = last; d > 0 && index[d] == dims[d].size; --d) {
      index[d] = 0;
      ++index[d - 1];
      for (int i = 0; i < N; ++i) offsets[i] += dims[d - 1].strides[i] - dims[d].size * dims[d].strides[i];
    }
  }
}

inline View view_of(const Array& array) { return {array.shape(), array.strides(), 0}; }

// The same dimensions as plain numbers, for kernels.
template <int N>
struct Walk {
  static constexpr int kRankMax = 8;
  int rank = 0;
  bool narrow = false;  // Every flat index fits 32 bits: cheaper division.
  std::int64_t sizes[kRankMax] = {};
  std::int64_t strides[kRankMax][N] = {};
};

// Whether `dims` fit; fills `walk`.
template <int N>
bool plan(const std::vector<Dimension<N>>& dims, Walk<N>& walk) {
  if (dims.size() > Walk<N>::kRankMax) return false;
  walk.rank = static_cast<int>(dims.size());
  std::int64_t total = 1;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    walk.sizes[d] = dims[d].size;
    for (int i = 0; i < N; ++i) walk.strides[d][i] = dims[d].strides[i];
    total *= dims[d].size;
  }
  walk.narrow = total <= std::int64_t{1} << 31;
  return true;
}

// Offsets of the operands at flat index `flat`, row-major over `walk`; added to what `offsets` holds.
template <int N>
PLUMBLINE_HOST_DEVICE inline void advance(const Walk<N>& walk, std::int64_t flat, std::int64_t (&offsets)[N]) {
  for (int d = walk.rank - 1; d > 0; --d) {
    const std::int64_t size = walk.sizes[d];
    const std::int64_t quotient =
        walk.narrow ? static_cast<std::uint32_t>(flat) / static_cast<std::uint32_t>(size) : flat / size;
    const std::int64_t index = flat - quotient * size;
    for (int i = 0; i < N; ++i) offsets[i] += index * walk.strides[d][i];
    flat = quotient;
  }
  for (int i = 0; i < N; ++i) offsets[i] += flat * walk.strides[0][i];
}

// Sums that are formed together.
template <int kSums>
struct Totals {
  static constexpr int kCount = kSums;
  double of[kSums];

  PLUMBLINE_HOST_DEVICE Totals& operator+=(const Totals& other) {
    for (int k = 0; k < kSums; ++k) of[k] += other.of[k];
    return *this;
  }
};

}  // namespace plumbline
