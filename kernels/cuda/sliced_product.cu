#include <algorithm>
#include <cmath>

#include "kernels/ball/sliced.h"
#include "kernels/cuda/loop.cuh"
#include "kernels/cuda/sliced_product.cuh"
#include "kernels/cuda/table.cuh"

namespace plumbline::cuda {
namespace {

using sliced::kSlices;
using sliced::Line;

constexpr std::int64_t kScratch = std::int64_t{64} << 20;  // Bytes of slices and sums, but for those of b's columns.
constexpr std::int64_t kColumnsMax = 4096;                 // At a time.
constexpr std::int64_t kSideMin = 32;  // Of c: each element that is sliced is used so often at least.

// A line's bytes: its slices one after the other, then its leading bits. Those of a go from the first slice to the
// last, those of b from the last to the first: a diagonal's slices of one side then lie side by side, in the order of
// their partners on the other, and a diagonal is one product whose terms are those of all its pairs.
//
// cuBLAS multiplies CUDA_R_8I with CUBLAS_COMPUTE_32I where alpha and beta are 0 or 1, matrices lie at multiples of 4
// bytes and leading dimensions are multiples of 4 (cuBLAS documentation, cublasGemmEx), and uses the tensor cores for
// the first matrix transposed and the second not, with m and k multiples of 4, best with 16 in place of 4 (there,
// cublasLtMatmul, "IMMA kernels"). Hence lines of terms side by side, filled up with zeros to multiples of 16, and
// columns of c likewise.
constexpr std::int64_t kParts = kSlices + 1, kMultiple = 16;

std::int64_t filled(std::int64_t n) { return (n + kMultiple - 1) / kMultiple * kMultiple; }

constexpr int kTile = 32, kWarps = internal::kThreads / kTile, kLinesOfWarp = kTile / kWarps;

struct Slicing {
  Factor of;
  std::int64_t products, lines, terms;
  std::int64_t all_lines, all_terms;  // With what is filled up.
  bool reversed;
  Line* told;
  std::int8_t* bytes;
};

// A block takes 32 lines of a product at a time, 32 terms of each at a time, which it reads in the order in which they
// lie: twice, since what a line's numbers become depends on all of them.
__global__ void __launch_bounds__(internal::kThreads) slice(Slicing s) {
  __shared__ double tile[kTile][kTile + 1];
  const int lane = static_cast<int>(threadIdx.x) % kTile, warp = static_cast<int>(threadIdx.x) / kTile;
  const std::int64_t groups = (s.all_lines + kTile - 1) / kTile;
  const bool along_terms = s.of.term == 1;
  for (std::int64_t block = blockIdx.x; block < s.products * groups; block += gridDim.x) {
    const std::int64_t product = block / groups, first = block % groups * kTile;
    const double* const data = s.of.data + product * s.of.product;
    const auto read = [&](std::int64_t term) {
      for (int other = warp; other < kTile; other += kWarps) {
        const int line = along_terms ? other : lane, at = along_terms ? lane : other;
        tile[line][at] = first + line < s.lines && term + at < s.terms
                             ? data[(first + line) * s.of.line + (term + at) * s.of.term]
                             : 0.0;
      }
      __syncthreads();
    };
    unsigned long long largest[kLinesOfWarp] = {};
    double sum[kLinesOfWarp] = {};
    for (std::int64_t term = 0; term < s.terms; term += kTile) {
      read(term);
      for (int i = 0; i < kLinesOfWarp; ++i) {
        const double x = tile[warp + i * kWarps][lane];
        const unsigned long long bits = sliced::magnitude_bits(x);
        largest[i] = bits > largest[i] ? bits : largest[i];
        sum[i] += std::fabs(x);
      }
      __syncthreads();
    }
    Line lines[kLinesOfWarp];
    for (int i = 0; i < kLinesOfWarp; ++i) {
      for (int bits = kTile / 2; bits > 0; bits /= 2) {
        const unsigned long long other = __shfl_xor_sync(0xffffffffU, largest[i], bits);
        largest[i] = other > largest[i] ? other : largest[i];
        sum[i] += __shfl_xor_sync(0xffffffffU, sum[i], bits);
      }
      lines[i] = sliced::line_of(largest[i], sum[i], s.terms);
      const std::int64_t line = first + warp + i * kWarps;
      if (lane == 0 && line < s.all_lines) s.told[product * s.all_lines + line] = lines[i];
    }
    for (std::int64_t term = 0; term < s.all_terms; term += kTile) {
      read(term);
      for (int i = 0; i < kLinesOfWarp; ++i) {
        const std::int64_t line = first + warp + i * kWarps;
        if (line >= s.all_lines || term + lane >= s.all_terms) continue;
        const double x = tile[warp + i * kWarps][lane];
        const std::uint64_t digits = sliced::digits_of(x, lines[i]);
        std::int8_t* const to = s.bytes + (product * s.all_lines + line) * kParts * s.all_terms + term + lane;
        for (int place = 0; place < kSlices; ++place)
          to[place * s.all_terms] = sliced::digit(digits, s.reversed ? kSlices - place : place + 1);
        to[kSlices * s.all_terms] = sliced::leading_of(x, lines[i]);
      }
      __syncthreads();
    }
  }
}

// Some lines of some products in slices. `reversed`: of b, as above.
class Slices {
 public:
  Slices(const Factor& of, std::int64_t terms, bool reversed) : of_(of), terms_(terms), reversed_(reversed) {}

  // Not made again where they are the last that were asked for.
  void make(Queue& queue, std::int64_t line, std::int64_t lines, std::int64_t product, std::int64_t products) {
    if (of_.product == 0) product = 0, products = 1;
    if (told_ && line == line_ && product == product_) return;
    line_ = line;
    product_ = product;
    lines_ = reversed_ ? filled(lines) : lines;
    told_ = memory_of<Line>(static_cast<std::size_t>(products * lines_));
    bytes_ = memory_of<std::int8_t>(static_cast<std::size_t>(products * product_bytes()));
    const std::int64_t groups = (lines_ + kTile - 1) / kTile;
    queue.launch("slices", slice, internal::grid_for(products * groups, 1),
                 Slicing{factor(), products, lines, terms_, lines_, filled(terms_), reversed_, rows_of<Line>(told_),
                         rows_of<std::int8_t>(bytes_)});
  }

  std::int64_t lines() const { return lines_; }
  std::int64_t line_bytes() const { return kParts * filled(terms_); }
  std::int64_t product_bytes() const { return lines_ * line_bytes(); }
  std::int64_t stride() const { return of_.product == 0 ? 0 : product_bytes(); }
  std::int64_t told_stride() const { return of_.product == 0 ? 0 : lines_; }
  const Line* told() const { return rows_of<Line>(told_); }
  const std::int8_t* bytes(int place) const { return rows_of<std::int8_t>(bytes_) + place * filled(terms_); }
  // What was sliced.
  Factor factor() const {
    return {of_.data + line_ * of_.line + product_ * of_.product, of_.line, of_.term, of_.product};
  }

 private:
  const Factor of_;
  const std::int64_t terms_;
  const bool reversed_;
  std::int64_t line_ = 0, lines_ = 0, product_ = 0;
  Array told_, bytes_;
};

struct Combining {
  Factor a, b;
  const Line *rows, *columns;
  std::int64_t rows_stride, columns_stride;
  std::int64_t products, m, n, terms;
  std::int64_t filled_columns;
  const std::int32_t* sums;  // [kParts, products, m, filled_columns]
  double* c;
  std::int64_t line, stride;
};

// An element that its integers do not tell is summed here, by FMAs in order.
__global__ void __launch_bounds__(internal::kThreads) combine(Combining of) {
  const std::int64_t each = of.m * of.n, all = of.products * each;
  for (std::int64_t at = blockIdx.x * static_cast<std::int64_t>(internal::kThreads) + threadIdx.x; at < all;
       at += static_cast<std::int64_t>(gridDim.x) * internal::kThreads) {
    const std::int64_t product = at / each, i = at % each / of.n, j = at % of.n;
    const std::int32_t* const sums = of.sums + (product * of.m + i) * of.filled_columns + j;
    const std::int64_t part = of.products * of.m * of.filled_columns;
    std::int32_t diagonals[kSlices];
    for (int d = 0; d < kSlices; ++d) diagonals[d] = sums[d * part];
    const Line row = of.rows[product * of.rows_stride + i], column = of.columns[product * of.columns_stride + j];
    const double value = sliced::combined(diagonals);
    double result;
    if (sliced::suffices(row, column, value, sums[kSlices * part])) {
      result = sliced::scaled(row, column, value);
    } else {
      const double* a = of.a.data + product * of.a.product + i * of.a.line;
      const double* b = of.b.data + product * of.b.product + j * of.b.line;
      result = 0;
      for (std::int64_t k = 0; k < of.terms; ++k) result = std::fma(a[k * of.a.term], b[k * of.b.term], result);
    }
    of.c[product * of.stride + i * of.line + j] = result;
  }
}

}  // namespace

bool worth_slicing(const SlicedProduct& of, std::int64_t work_min) {
  return of.k >= sliced::kTermsMin && of.k <= sliced::kTermsMax && std::min(of.m, of.n) >= kSideMin &&
         static_cast<double>(of.m) * static_cast<double>(of.n) * static_cast<double>(of.k) *
                 static_cast<double>(of.products) >=
             static_cast<double>(work_min);
}

void multiply_sliced(Queue& queue, const SlicedProduct& of) {
  const std::int64_t terms = filled(of.k), line_bytes = kParts * terms + static_cast<std::int64_t>(sizeof(Line));
  const std::int64_t columns = std::min(of.n, kColumnsMax), filled_columns = filled(columns);
  const std::int64_t row_bytes = kParts * filled_columns * static_cast<std::int64_t>(sizeof(std::int32_t)) + line_bytes;
  const std::int64_t rows = std::clamp<std::int64_t>(kScratch / row_bytes, 1, of.m);
  const bool whole = rows == of.m && columns == of.n;
  const std::int64_t products =
      whole ? std::clamp<std::int64_t>(kScratch / (rows * row_bytes + filled_columns * line_bytes), 1, of.products) : 1;
  const Array sums = memory_of<std::int32_t>(static_cast<std::size_t>(kParts * products * rows * filled_columns));
  Slices a(of.a, of.k, false), b(of.b, of.k, true);
  constexpr std::int32_t kOne = 1, kZero = 0;
  for (std::int64_t column = 0; column < of.n; column += columns)
    for (std::int64_t product = 0; product < of.products; product += products)
      for (std::int64_t row = 0; row < of.m; row += rows) {
        const std::int64_t m = std::min(rows, of.m - row), n = std::min(columns, of.n - column);
        const std::int64_t count = std::min(products, of.products - product);
        a.make(queue, row, m, product, count);
        b.make(queue, column, n, product, count);
        const std::int64_t part = count * m * b.lines();
        const auto multiply = [&](int place_a, int place_b, std::int64_t k, std::int32_t* to) {
          queue.check(cublasGemmStridedBatchedEx_64(
                          queue.blas(), CUBLAS_OP_T, CUBLAS_OP_N, b.lines(), m, k, &kOne, b.bytes(place_b), CUDA_R_8I,
                          b.line_bytes(), b.stride(), a.bytes(place_a), CUDA_R_8I, a.line_bytes(), a.stride(), &kZero,
                          to, CUDA_R_32I, b.lines(), m * b.lines(), count, CUBLAS_COMPUTE_32I, CUBLAS_GEMM_DEFAULT),
                      "cublasGemmStridedBatchedEx of 8-bit integers");
          queue.launched();
        };
        std::int32_t* const to = rows_of<std::int32_t>(sums);
        for (int pairs = 1; pairs <= kSlices; ++pairs)
          multiply(0, kSlices - pairs, pairs * terms, to + (pairs - 1) * part);
        multiply(kSlices, kSlices, terms, to + kSlices * part);
        queue.launch(
            "sum of slices", combine, internal::grid_for(count * m * n),
            Combining{a.factor(), b.factor(), a.told(), b.told(), a.told_stride(), b.told_stride(), count, m, n, of.k,
                      b.lines(), to, of.c + product * of.stride + row * of.n + column, of.n, of.stride});
      }
}

}  // namespace plumbline::cuda
