// Products of matrices, at the speed of the processor's vectors: each operand is split into a pair of doubles, hi + lo,
// which hold 106 bits of it, and inner products are formed in pairs.
//
// Within a block of kBlock terms, the product of two pairs (an exact product by FMA, and the cross terms) is within
// 2^-104 of itself, and each addition (TwoSum, then renormalised) is within 2^-104 of the magnitudes added. Blocks are
// added in wide scalars. The error is below kBlock 2^-103 < 2^-94 of the terms' magnitudes at worst, and below 2^-100
// where the errors of single additions do not all agree.
//
// Doubles have fewer exponents than wide scalars. The elements are therefore sorted into ranges of exponents, and each
// range is scaled to the middle one, where nothing overflows or underflows. Nearly always all elements are in the
// middle range. Without an FMA instruction std::fma is a call to the C library: slower, but the same result.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "kernels/wide/families.h"
#include "kernels/wide/loop.h"
#include "kernels/wide/pair.h"

namespace plumbline::wide {
namespace {

constexpr std::int64_t kColumns = 16;  // A panel's width is enough for two chains of additions in each vector unit.
constexpr std::int64_t kRows = 16;     // A panel stays in the cache for the rows of one task.
constexpr std::int64_t kBlock = 256;

// Ranges of 2^kRange; the range kMiddle holds 2^-256 to 2^256.
constexpr int kRange = 512, kRanges = 65, kMiddle = 32;

int exponent_field(Wide x) {
  std::array<std::uint64_t, 2> words;
  static_assert(sizeof words == sizeof x);
  std::memcpy(words.data(), &x, sizeof x);
  constexpr int kUpper = std::endian::native == std::endian::little ? 1 : 0;
  return static_cast<int>(words[kUpper] >> 48 & 0x7fff);
}
bool finite(Wide x) { return exponent_field(x) != 0x7fff; }
int range_of(Wide x) { return (exponent_field(x) - 16383 + kRange / 2 + kMiddle * kRange) / kRange; }

// The ranges in which the finite elements other than zero lie, and whether all elements are finite.
struct Content {
  std::vector<int> ranges;
  bool all_finite = true;
};

Content content_of(const WideArray& x) {
  std::array<std::atomic<bool>, kRanges> found{};
  std::atomic<bool> beyond{false};
  cpu::parallel_for(x.count(), 4 * kGrain, [&](std::int64_t begin, std::int64_t end) {
    int last = -1;
    for (std::int64_t i = begin; i < end; ++i) {
      const Wide value = x.data()[i];
      if (!finite(value)) {
        beyond.store(true, std::memory_order_relaxed);
      } else if (value != 0 && range_of(value) != last) {
        last = range_of(value);
        found[static_cast<std::size_t>(last)].store(true, std::memory_order_relaxed);
      }
    }
  });
  Content content;
  for (int range = 0; range < kRanges; ++range)
    if (found[static_cast<std::size_t>(range)]) content.ranges.push_back(range);
  content.all_finite = !beyond;
  return content;
}

// An element of the range, scaled to the middle; zero for the others.
Pair split(Wide x, int range) {
  if (x == 0 || !finite(x) || range_of(x) != range) return {0, 0};
  return wide::split(range == kMiddle ? x : scalbnf128(x, (kMiddle - range) * kRange));
}

// Leading dimensions of stride 0 become size 1, which broadcasts again.
WideArray without_repeats(const WideArray& x) {
  View view{x.shape(), x.view().strides, 0};
  for (std::size_t d = 0; d + 2 < view.sizes.size(); ++d)
    if (view.strides[d] == 0 && view.sizes[d] > 1) view.sizes[d] = 1;
  return x.window(view);
}

// One operand: matrices of rows by columns, one after the other.
struct Matrices {
  explicit Matrices(const WideArray& x)
      : values(without_repeats(x).materialize()),
        rows(x.shape()[x.shape().size() - 2]),
        columns(x.shape().back()),
        content(content_of(values)) {
    lead.sizes.assign(values.shape().begin(), values.shape().end() - 2);
    lead.strides = row_major_strides(lead.sizes);
    count = plumbline::count(lead.sizes);
  }
  const Wide* matrix(std::int64_t i) const { return values.data() + i * rows * columns; }

  WideArray values;
  std::int64_t rows, columns, count = 0;
  Content content;
  View lead;  // Its leading dimensions count whole matrices.
};

std::vector<Pair> split_rows(const Matrices& a, int range) {
  std::vector<Pair> pairs(static_cast<std::size_t>(a.values.count()));
  map_to(
      pairs.data(), a.values.shape(), [range](Wide x) { return split(x, range); }, operand(a.values));
  return pairs;
}

// Panels of kColumns columns, of which each row is kColumns hi and then as many lo; zeros beyond the last column.
struct Panels {
  Panels(const Matrices& b, int range) : of_a_matrix((b.columns + kColumns - 1) / kColumns), rows(b.rows) {
    data.resize(static_cast<std::size_t>(b.count * of_a_matrix * rows * 2 * kColumns));
    cpu::parallel_for(b.count * of_a_matrix, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t p = begin; p < end; ++p) {
        const std::int64_t first = p % of_a_matrix * kColumns, used = std::min(kColumns, b.columns - first);
        double* to = data.data() + p * rows * 2 * kColumns;
        for (std::int64_t k = 0; k < rows; ++k, to += 2 * kColumns) {
          const Wide* const from = b.matrix(p / of_a_matrix) + k * b.columns + first;
          for (std::int64_t j = 0; j < used; ++j) {
            const Pair pair = split(from[j], range);
            to[j] = pair.hi;
            to[j + kColumns] = pair.lo;
          }
        }
      }
    });
  }
  const double* panel(std::int64_t matrix, std::int64_t p) const {
    return data.data() + (matrix * of_a_matrix + p) * rows * 2 * kColumns;
  }

  std::int64_t of_a_matrix, rows;
  std::vector<double> data;
};

// into[j] += scale sum_k a[k] b[k][j] of n <= kBlock terms.
void add_inner_products(std::int64_t n, const Pair* a, const double* b, int exponent, Wide* into) {
  double hi[kColumns] = {}, lo[kColumns] = {};
  for (std::int64_t k = 0; k < n; ++k) {
    const double a_hi = a[k].hi, a_lo = a[k].lo;
    const double *const b_hi = b + k * 2 * kColumns, *const b_lo = b_hi + kColumns;
#pragma omp simd
    for (std::int64_t j = 0; j < kColumns; ++j) {
      const double product = a_hi * b_hi[j];
      const double rest = std::fma(a_lo, b_hi[j], std::fma(a_hi, b_lo[j], std::fma(a_hi, b_hi[j], -product)));
      const double total = hi[j] + product, added = total - hi[j];
      const double lost = (hi[j] - (total - added)) + (product - added);
      const double below = lo[j] + (lost + rest);
      hi[j] = total + below;
      lo[j] = below - (hi[j] - total);
    }
  }
  for (std::int64_t j = 0; j < kColumns; ++j) {
    const Wide sum = static_cast<Wide>(hi[j]) + lo[j];
    into[j] += exponent == 0 ? sum : scalbnf128(sum, exponent);
  }
}

// Which matrices are multiplied to make each one of the result.
std::vector<std::array<std::int64_t, 2>> partners(const Matrices& a, const Matrices& b, const Shape& shape) {
  const Shape lead(shape.begin(), shape.end() - 2);
  const auto dims = merged_dimensions<2>(lead, {&a.lead, &b.lead});
  std::vector<std::array<std::int64_t, 2>> found;
  for_each_run<2>(dims, 0, count(lead), [&](std::int64_t length, const std::array<std::int64_t, 2>& at) {
    for (std::int64_t i = 0; i < length; ++i)
      found.push_back({at[0] + i * dims.back().strides[0], at[1] + i * dims.back().strides[1]});
  });
  return found;
}

// What the terms that are not finite make of an inner product; the others only lend their signs.
double beyond_finite(std::int64_t n, const Wide* a, const Wide* b, std::int64_t step) {
  const auto outline = [](Wide x) {
    return finite(x) ? static_cast<double>((x > 0) - (x < 0)) : static_cast<double>(x);
  };
  double total = 0;
  for (std::int64_t k = 0; k < n; ++k)
    if (!finite(a[k]) || !finite(b[k * step])) total += outline(a[k]) * outline(b[k * step]);
  return total;
}

// Inner products with a NaN or an infinity among their terms.
void settle_beyond_finite(const Matrices& a, const Matrices& b, std::span<const std::array<std::int64_t, 2>> pairs,
                          WideArray* out) {
  cpu::parallel_for(static_cast<std::int64_t>(pairs.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const Wide* const left = a.matrix(pairs[static_cast<std::size_t>(p)][0]);
      const Wide* const right = b.matrix(pairs[static_cast<std::size_t>(p)][1]);
      Wide* const to = out->data() + p * a.rows * b.columns;
      std::vector<bool> marked(static_cast<std::size_t>(b.columns), false);
      for (std::int64_t i = 0; i < b.rows * b.columns; ++i)
        if (!finite(right[i])) marked[static_cast<std::size_t>(i % b.columns)] = true;
      for (std::int64_t i = 0; i < a.rows; ++i) {
        const Wide* const row = left + i * a.columns;
        const bool whole = !std::all_of(row, row + a.columns, finite);
        for (std::int64_t j = 0; j < b.columns; ++j)
          if (whole || marked[static_cast<std::size_t>(j)])
            to[i * b.columns + j] = beyond_finite(a.columns, row, right + j, b.columns);
      }
    }
  });
}

}  // namespace

WideArray product(Inputs in, const Shape& shape) {
  const Matrices a(in[0]), b(in[1]);
  const auto pairs = partners(a, b, shape);
  WideArray out = WideArray::uninitialized(shape);
  std::fill_n(out.data(), out.count(), Wide(0));
  const std::int64_t bands = (a.rows + kRows - 1) / kRows;
  for (const int left_range : a.content.ranges) {
    const std::vector<Pair> left = split_rows(a, left_range);
    for (const int right_range : b.content.ranges) {
      const Panels right(b, right_range);
      const int exponent = (left_range + right_range - 2 * kMiddle) * kRange;
      const std::int64_t tasks = bands * right.of_a_matrix;
      const auto task = [&](std::int64_t i) {
        const auto [of_a, of_b] = pairs[static_cast<std::size_t>(i / tasks)];
        const std::int64_t panel = i % right.of_a_matrix, band = i % tasks / right.of_a_matrix;
        const std::int64_t first = panel * kColumns, used = std::min(kColumns, b.columns - first);
        const std::int64_t top = band * kRows, bottom = std::min(a.rows, top + kRows);
        Wide sums[kRows][kColumns] = {};
        for (std::int64_t k = 0; k < b.rows; k += kBlock)
          for (std::int64_t row = top; row < bottom; ++row)
            add_inner_products(std::min(kBlock, b.rows - k), left.data() + (of_a * a.rows + row) * a.columns + k,
                               right.panel(of_b, panel) + k * 2 * kColumns, exponent, sums[row - top]);
        for (std::int64_t row = top; row < bottom; ++row) {
          Wide* const to = out.data() + (i / tasks * a.rows + row) * b.columns + first;
          for (std::int64_t j = 0; j < used; ++j) to[j] += sums[row - top][j];
        }
      };
      cpu::parallel_for(static_cast<std::int64_t>(pairs.size()) * tasks, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) task(i);
      });
    }
  }
  if (!a.content.all_finite || !b.content.all_finite) settle_beyond_finite(a, b, pairs, &out);
  if (in.size() < 3) return out;
  const WideArray factor = in.size() > 3 ? in[3] : WideArray::full({}, 1);
  return map(
      shape, [](Wide t, Wide c, Wide alpha) { return alpha * t + c; }, out, in[2], factor);
}

}  // namespace plumbline::wide
