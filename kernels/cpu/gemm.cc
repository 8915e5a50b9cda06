#include "kernels/cpu/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include "kernels/contraction.h"
#include "kernels/cpu/parallel.h"

namespace plumbline::cpu {
namespace {

// One strided operand of a family of products.
template <class Real>
struct Operand {
  const Real* data;
  MatrixStrides strides;
};

// Single-precision numbers are held in an array of half the count, so that their memory comes from the pool.
Array floats(std::int64_t count) { return Array::uninitialized({(count + 1) / 2}); }
float* data(const Array& floats) { return reinterpret_cast<float*>(floats.address()); }

CBLAS_TRANSPOSE transpose(const MatrixLayout& x) { return x.transposed ? CblasTrans : CblasNoTrans; }

// a column times a row
void outer_product(std::int64_t m, std::int64_t n, const Operand<double>& a, const Operand<double>& b, double* c,
                   std::int64_t ldc, bool accumulate) {
  const double* const row = b.data;
  const std::int64_t step = b.strides.column;
  for (std::int64_t i = 0; i < m; ++i) {
    const double factor = a.data[i * a.strides.row];
    double* const to = c + i * ldc;
    if (accumulate) {
#pragma GCC ivdep
      for (std::int64_t j = 0; j < n; ++j) to[j] += factor * row[j * step];
    } else {
#pragma GCC ivdep
      for (std::int64_t j = 0; j < n; ++j) to[j] = factor * row[j * step];
    }
  }
}

// `rows` of a matrix times x: c has an element each. Sums of kSumBlock terms are added to c, as products of matrices
// do; those of the library would copy the matrix. False: the matrix is not read along rows or columns here.
bool times_vector(std::int64_t rows, std::int64_t k, const Operand<double>& matrix, const double* x,
                  std::int64_t x_step, double* c, std::int64_t c_step, bool accumulate) {
  constexpr std::int64_t kRows = 64;  // Their sums stay in registers.
  const auto [to_row, to_term] = matrix.strides;
  if (to_term == 1 && x_step == 1) {
    for (std::int64_t i = 0; i < rows; ++i) {
      double total = accumulate ? c[i * c_step] : 0;
      for (std::int64_t p = 0; p < k; p += kSumBlock) {
        const double *const from = matrix.data + i * to_row + p, *const factors = x + p;
        const std::int64_t terms = std::min(kSumBlock, k - p);
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t t = 0; t < terms; ++t) sum += from[t] * factors[t];
        total += sum;
      }
      c[i * c_step] = total;
    }
    return true;
  }
  if (to_row != 1) return false;
  for (std::int64_t i = 0; i < rows; i += kRows) {
    const std::int64_t length = std::min(kRows, rows - i);
    double totals[kRows] = {};
    for (std::int64_t p = 0; p < k; p += kSumBlock) {
      double sums[kRows] = {};
      for (std::int64_t t = p; t < std::min(k, p + kSumBlock); ++t) {
        const double* const from = matrix.data + i + t * to_term;
        const double factor = x[t * x_step];
#pragma GCC ivdep
        for (std::int64_t r = 0; r < length; ++r) sums[r] += from[r] * factor;
      }
#pragma GCC ivdep
      for (std::int64_t r = 0; r < length; ++r) totals[r] += sums[r];
    }
    for (std::int64_t r = 0; r < length; ++r) {
      double& to = c[(i + r) * c_step];
      to = (accumulate ? to : 0) + totals[r];
    }
  }
  return true;
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Operand<double>& a, const Operand<double>& b, double* c,
          std::int64_t ldc, bool accumulate) {
  if (k == 1) return outer_product(m, n, a, b, c, ldc, accumulate);
  if (m == 1 &&
      times_vector(n, k, {b.data, {b.strides.column, b.strides.row}}, a.data, a.strides.column, c, 1, accumulate))
    return;
  if (n == 1 && times_vector(m, k, a, b.data, b.strides.row, c, ldc, accumulate)) return;
  const MatrixLayout la = layout(m, k, a.strides), lb = layout(k, n, b.strides);
  for (std::int64_t p = 0; p < k; p += kSumBlock)
    cblas_dgemm(CblasRowMajor, transpose(la), transpose(lb), static_cast<blasint>(m), static_cast<blasint>(n),
                static_cast<blasint>(std::min(kSumBlock, k - p)), 1.0, a.data + p * a.strides.column,
                static_cast<blasint>(la.leading), b.data + p * b.strides.row, static_cast<blasint>(lb.leading),
                accumulate || p > 0 ? 1.0 : 0.0, c, static_cast<blasint>(ldc));
}

// Rows of the result by so many, whose sums stay near.
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Operand<float>& a, const Operand<float>& b, double* c,
          std::int64_t ldc, bool accumulate) {
  constexpr std::int64_t kRows = 256;
  const MatrixLayout la = layout(m, k, a.strides), lb = layout(k, n, b.strides);
  const Array held = floats(std::min(m, kRows) * n);
  float* const sums = data(held);
  for (std::int64_t from = 0; from < m; from += kRows) {
    const std::int64_t rows = std::min(kRows, m - from);
    cblas_sgemm(CblasRowMajor, transpose(la), transpose(lb), static_cast<blasint>(rows), static_cast<blasint>(n),
                static_cast<blasint>(k), 1.0F, a.data + from * a.strides.row, static_cast<blasint>(la.leading), b.data,
                static_cast<blasint>(lb.leading), 0.0F, sums, static_cast<blasint>(n));
    for (std::int64_t i = 0; i < rows; ++i) {
      double* const row = c + (from + i) * ldc;
      const float* const sum = sums + i * n;
      for (std::int64_t j = 0; j < n; ++j) row[j] = (accumulate ? row[j] : 0) + static_cast<double>(sum[j]);
    }
  }
}

// A large single product: cut along its rows, which lie together, or where they are few along its columns, by a
// multiple of the kernels' register blocks.
template <class Real>
void parallel_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Operand<Real>& a, const Operand<Real>& b,
                   double* c, std::int64_t ldc, bool accumulate) {
  constexpr double kWorthwhile = 2e5;   // Multiply-adds: about 10 microseconds on one core.
  constexpr std::int64_t kEnough = 64;  // Rows of a part: what all parts read of b is little beside their work.
  const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const std::int64_t parts = std::min<std::int64_t>(threads(), static_cast<std::int64_t>(work / kWorthwhile));
  const bool by_rows = m >= n || m >= kEnough * parts;
  const std::int64_t side = by_rows ? m : n;
  if (parts < 2 || side < 2 * parts) return gemm(m, n, k, a, b, c, ldc, accumulate);
  const std::int64_t block = ((side + parts - 1) / parts + 7) / 8 * 8;
  const std::int64_t blocks = (side + block - 1) / block;
  parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t from = p * block;
      const std::int64_t size = std::min(side, from + block) - from;
      if (by_rows) {
        gemm(size, n, k, {a.data + from * a.strides.row, a.strides}, b, c + from * ldc, ldc, accumulate);
      } else {
        gemm(m, size, k, a, {b.data + from * b.strides.column, b.strides}, c + from, ldc, accumulate);
      }
    }
  });
}

// All of a family of products.
template <class Real>
void multiply(const Contraction& whole, const Real* from_a, const Real* from_b, double* out, bool accumulate) {
  const auto product = [&](const std::array<std::int64_t, 3>& at, const auto& gemm_of) {
    bool add = accumulate;
    for_each_run<3>(whole.summed, 0, whole.terms, [&](std::int64_t length, const std::array<std::int64_t, 3>& more) {
      for (std::int64_t r = 0; r < length; ++r) {
        const auto& step = whole.summed.back().strides;
        gemm_of(whole.m, whole.n, whole.k, Operand<Real>{from_a + at[1] + more[1] + r * step[1], whole.a_strides},
                Operand<Real>{from_b + at[2] + more[2] + r * step[2], whole.b_strides}, out + at[0], whole.n, add);
        add = true;
      }
    });
  };
  const auto each = [&](std::int64_t begin, std::int64_t end, const auto& gemm_of) {
    for_each_run<3>(whole.kept, begin, end, [&](std::int64_t length, std::array<std::int64_t, 3> at) {
      for (std::int64_t j = 0; j < length; ++j) {
        product(at, gemm_of);
        for (int i = 0; i < 3; ++i) at[i] += whole.kept.back().strides[i];
      }
    });
  };
  if (whole.products >= 2L * threads()) {
    const double work =
        static_cast<double>(whole.m) * static_cast<double>(whole.n) * static_cast<double>(whole.k * whole.terms);
    const auto grain = static_cast<std::int64_t>(1e5 / std::max(1.0, work)) + 1;
    parallel_for(whole.products, grain, [&](std::int64_t begin, std::int64_t end) {
      each(begin, end, [](const auto&... operands) { gemm(operands...); });
    });
  } else {
    each(0, whole.products, parallel_gemm<Real>);
  }
}

constexpr std::int64_t kChunk = 1 << 14;
thread_local bool single_precision = false;

// All that the strided array spans, in single precision. Empty: it spans much more than it has, or its largest element
// lies so far from 1 that products of the others might be lost.
Array rounded(const Array& x) {
  constexpr double kFar = 0x1p40;
  const std::int64_t span = span_of(x);
  if (span > 2 * x.count()) return {};
  const Array result = floats(span);
  float* const values = data(result);
  const std::int64_t chunks = (span + kChunk - 1) / kChunk;
  std::vector<double> largest(static_cast<std::size_t>(chunks));
  const double* const from = x.data();
  parallel_for(chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      double most = 0;
      const double* const source = from + chunk * kChunk;  // Pointers of its own: reached by reference, they would
      float* const target = values + chunk * kChunk;       // be read anew for each element, and gathered.
      const std::int64_t length = std::min(kChunk, span - chunk * kChunk);
#pragma omp simd reduction(max : most)
      for (std::int64_t i = 0; i < length; ++i) {
        target[i] = static_cast<float>(source[i]);
        most = std::max(most, std::fabs(source[i]));
      }
      largest[static_cast<std::size_t>(chunk)] = most;
    }
  });
  const double most = *std::max_element(largest.begin(), largest.end());
  return most == 0 || (most > 1 / kFar && most < kFar) ? result : Array();
}

// All that the strided array spans, as `narrow` rounds it; empty as above.
Array rounded_up(const Array& x, const Narrow& narrow) {
  const std::int64_t span = span_of(x);
  if (span > 2 * x.count()) return {};
  Array result = floats(span);
  parallel_for(span, kChunk, [&narrow, from = x.data(), to = data(result)](std::int64_t begin, std::int64_t end) {
    const Narrow each = narrow;
    for (std::int64_t i = begin; i < end; ++i) to[i] = each(from[i]);
  });
  return result;
}

void hold_blas_to_one_thread() {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

}  // namespace

SinglePrecision::SinglePrecision(bool enough) : before_(single_precision) { single_precision = enough; }
SinglePrecision::~SinglePrecision() { single_precision = before_; }

Array transpose_last_two(const Array& x) {
  View view{x.shape(), x.strides(), 0};
  const std::size_t d = view.sizes.size();
  std::swap(view.sizes[d - 1], view.sizes[d - 2]);
  std::swap(view.strides[d - 1], view.strides[d - 2]);
  return x.restride(view);
}

void matmul(const Array& left, const Array& right, Array& c, bool accumulate) {
  hold_blas_to_one_thread();
  if (c.count() == 0) return;
  double* const out = c.data();
  const Contraction whole = contraction(left, right, c);
  if (whole.products == 0 || whole.terms == 0 || whole.k == 0) {
    if (!accumulate) std::fill(out, out + c.count(), 0.0);
    return;
  }
  if (single_precision && worth_converting(left, right, c)) {
    const Array a = rounded(whole.a), b = a ? rounded(whole.b) : a;
    if (b) return multiply<float>(whole, data(a), data(b), out, accumulate);
  }
  multiply(whole, whole.a.data(), whole.b.data(), out, accumulate);
}

double matmul_narrow(const Array& left, const Narrow& of_left, const Array& right, const Narrow& of_right, Array& c) {
  hold_blas_to_one_thread();
  const Contraction whole = contraction(left, right, c);
  if (whole.products == 0 || whole.terms != 1 || whole.k == 0) return 0;
  const Array a = rounded_up(whole.a, of_left), b = a ? rounded_up(whole.b, of_right) : a;
  if (!b) return 0;
  multiply<float>(whole, data(a), data(b), c.data(), false);
  return kNarrowError;
}

}  // namespace plumbline::cpu
