#include "kernels/cpu/copy.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/parallel.h"
#include "kernels/strided.h"

namespace plumbline::cpu {
namespace {

constexpr std::int64_t kRowsMax = 64;  // That a thread takes at a time.

// Rows of a block: `length` elements each, steps between elements and between rows.
struct Block {
  std::int64_t rows, length;
  std::int64_t to_step, from_step, to_row, from_row;
};

// Of one element, or of several at once.
struct Assign {
  template <class T>
  void operator()(T& to, const T& from) const {
    to = from;
  }
};
struct Add {
  template <class T>
  void operator()(T& to, const T& from) const {
    to += from;
  }
};

// Rows of so few elements that they are a few registers.
template <std::int64_t kLength, class Store>
void store_short_rows(const Block& block, double* to, const double* from, const Store& store) {
  for (std::int64_t r = 0; r < block.rows; ++r, to += block.to_row, from += block.from_row) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < kLength; ++i) store(to[i], from[i]);
  }
}

template <class Store>
void store_rows(const Block& block, double* to, const double* from, const Store& store) {
  switch (block.length) {
    case 2:
      return store_short_rows<2>(block, to, from, store);
    case 4:
      return store_short_rows<4>(block, to, from, store);
    case 8:
      return store_short_rows<8>(block, to, from, store);
    case 16:
      return store_short_rows<16>(block, to, from, store);
    default:
      break;
  }
  for (std::int64_t r = 0; r < block.rows; ++r, to += block.to_row, from += block.from_row) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < block.length; ++i) store(to[i], from[i]);
  }
}

using Four = double __attribute__((vector_size(4 * sizeof(double))));

// Four rows by four columns, which lie in the target's rows and in the source's columns.
template <class Store>
void store_square(double* to, std::int64_t to_row, const double* from, std::int64_t from_column, const Store& store) {
  Four columns[4];
  for (int c = 0; c < 4; ++c) std::memcpy(&columns[c], from + c * from_column, sizeof(Four));
  const Four even[2] = {__builtin_shufflevector(columns[0], columns[1], 0, 4, 2, 6),
                        __builtin_shufflevector(columns[2], columns[3], 0, 4, 2, 6)};
  const Four odd[2] = {__builtin_shufflevector(columns[0], columns[1], 1, 5, 3, 7),
                       __builtin_shufflevector(columns[2], columns[3], 1, 5, 3, 7)};
  const Four rows[4] = {
      __builtin_shufflevector(even[0], even[1], 0, 1, 4, 5), __builtin_shufflevector(odd[0], odd[1], 0, 1, 4, 5),
      __builtin_shufflevector(even[0], even[1], 2, 3, 6, 7), __builtin_shufflevector(odd[0], odd[1], 2, 3, 6, 7)};
  for (int r = 0; r < 4; ++r) {
    Four row;
    std::memcpy(&row, to + r * to_row, sizeof(Four));
    store(row, rows[r]);
    std::memcpy(to + r * to_row, &row, sizeof(Four));
  }
}

// Where the source's neighbours are in a row's columns: squares of a cache line's width, so that no line of either
// side is met twice.
template <class Store>
void store_transposed(const Block& block, double* to, const double* from, const Store& store) {
  constexpr std::int64_t kSide = 8;
  const bool squares = block.to_step == 1 && block.from_row == 1;
  for (std::int64_t c = 0; c < block.length; c += kSide) {
    const std::int64_t columns = std::min(kSide, block.length - c);
    std::int64_t r = 0;
    for (; squares && columns == kSide && r + 4 <= block.rows; r += 4)
      for (std::int64_t at = c; at < c + kSide; at += 4)
        store_square(to + r * block.to_row + at, block.to_row, from + r + at * block.from_step, block.from_step, store);
    for (; r < block.rows; ++r) {
      double* const target = to + r * block.to_row + c * block.to_step;
      const double* const source = from + r * block.from_row + c * block.from_step;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < columns; ++i) store(target[i * block.to_step], source[i * block.from_step]);
    }
  }
}

template <class Store>
void store_block(const Block& block, double* to, const double* from, const Store& store) {
  if (block.to_step == 1 && block.from_step == 1) return store_rows(block, to, from, store);
  if (block.from_row < block.from_step) return store_transposed(block, to, from, store);
  for (std::int64_t r = 0; r < block.rows; ++r, to += block.to_row, from += block.from_row) {
    if (block.to_step == 1 && block.from_step == 0) {
      const double value = *from;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < block.length; ++i) store(to[i], value);
    } else if (block.to_step == 1) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < block.length; ++i) store(to[i], from[i * block.from_step]);
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < block.length; ++i) store(to[i * block.to_step], from[i * block.from_step]);
    }
  }
}

template <class Store>
void store_all(double* to, const View& view, const Array& source, const Store& store) {
  const View from_view = view_of(source);
  const double* const from = source.data();
  std::vector<Dimension<2>> dims = merged_dimensions<2>(view.sizes, {&view, &from_view});
  const std::int64_t elements = count(view.sizes);
  if (elements == 0) return;
  const Dimension<2> along = dims.back();
  dims.pop_back();
  // Rows follow the dimension in which the source's elements are nearest, if that is not the one along the rows.
  auto across = dims.empty() ? dims.end() : std::prev(dims.end());
  for (auto dim = dims.begin(); dim != dims.end(); ++dim)
    if (dim->strides[1] != 0 && dim->strides[1] < std::min(along.strides[1], across->strides[1])) across = dim;
  // Otherwise the next one, unless that makes blocks too small to be worth their addresses.
  constexpr std::int64_t kSmall = 64;
  if (across != dims.end() && along.size * across->size < kSmall && across->strides[1] >= along.strides[1])
    across = std::ranges::max_element(dims, {}, &Dimension<2>::size);
  Dimension<2> rows{1, {}};
  if (across != dims.end()) {
    rows = *across;
    dims.erase(across);
  }
  // Long rows are cut, and so are many.
  const std::int64_t length = std::min(along.size, kGrain), pieces = (along.size + length - 1) / length;
  const std::int64_t height = std::min(rows.size, kRowsMax), stacks = (rows.size + height - 1) / height;
  const std::int64_t each = pieces * stacks;
  if (dims.empty()) dims.push_back({1, {}});
  std::int64_t blocks = each;
  for (const auto& dim : dims) blocks *= dim.size;
  parallel_for(
      blocks, std::max<std::int64_t>(1, kGrain / (length * height)), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t b = begin; b < end;) {
          const std::int64_t outer = b / each, last = std::min(end, (outer + 1) * each);
          std::array<std::int64_t, 2> at{};
          std::int64_t rest = outer;
          for (std::size_t d = dims.size(); d-- > 0; rest /= dims[d].size)
            for (int i = 0; i < 2; ++i) at[i] += rest % dims[d].size * dims[d].strides[i];
          for (; b < last; ++b) {
            const std::int64_t row = (b - outer * each) / pieces * height, piece = (b - outer * each) % pieces * length;
            const Block block{std::min(height, rows.size - row),
                              std::min(length, along.size - piece),
                              along.strides[0],
                              along.strides[1],
                              rows.strides[0],
                              rows.strides[1]};
            store_block(block, to + at[0] + row * rows.strides[0] + piece * along.strides[0],
                        from + at[1] + row * rows.strides[1] + piece * along.strides[1], store);
          }
        }
      });
}

}  // namespace

void copy(double* to, const View& view, const Array& from) { store_all(to, view, from, Assign{}); }
void add(double* to, const View& view, const Array& from) { store_all(to, view, from, Add{}); }

}  // namespace plumbline::cpu
