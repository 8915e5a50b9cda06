#include "kernels/cpu/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <mutex>

#include "kernels/contraction.h"
#include "kernels/cpu/parallel.h"

namespace plumbline::cpu {
namespace {

// One strided operand of a family of products.
struct Operand {
  const double* data;
  MatrixStrides strides;
};

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Operand& a, const Operand& b, double* c,
          std::int64_t ldc, bool accumulate) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (accumulate) return;
    for (std::int64_t i = 0; i < m; ++i) std::fill(c + i * ldc, c + i * ldc + n, 0.0);
    return;
  }
  const MatrixLayout la = layout(m, k, a.strides), lb = layout(k, n, b.strides);
  const auto transpose = [](const MatrixLayout& x) { return x.transposed ? CblasTrans : CblasNoTrans; };
  for (std::int64_t p = 0; p < k; p += kSumBlock)
    cblas_dgemm(CblasRowMajor, transpose(la), transpose(lb), static_cast<blasint>(m), static_cast<blasint>(n),
                static_cast<blasint>(std::min(kSumBlock, k - p)), 1.0, a.data + p * a.strides.column,
                static_cast<blasint>(la.leading), b.data + p * b.strides.row, static_cast<blasint>(lb.leading),
                accumulate || p > 0 ? 1.0 : 0.0, c, static_cast<blasint>(ldc));
}

// A large single product: cut along its longer output side, a multiple of the kernels' register blocks.
void parallel_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Operand& a, const Operand& b, double* c,
                   std::int64_t ldc, bool accumulate) {
  constexpr double kWorthwhile = 2e5;  // Multiply-adds: about 10 microseconds on one core.
  const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const std::int64_t parts = std::min<std::int64_t>(threads(), static_cast<std::int64_t>(work / kWorthwhile));
  const std::int64_t side = std::max(m, n);
  if (parts < 2 || side < 2 * parts) return gemm(m, n, k, a, b, c, ldc, accumulate);
  const std::int64_t block = ((side + parts - 1) / parts + 7) / 8 * 8;
  const std::int64_t blocks = (side + block - 1) / block;
  parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t from = p * block;
      const std::int64_t size = std::min(side, from + block) - from;
      if (m >= n) {
        gemm(size, n, k, {a.data + from * a.strides.row, a.strides}, b, c + from * ldc, ldc, accumulate);
      } else {
        gemm(m, size, k, a, {b.data + from * b.strides.column, b.strides}, c + from, ldc, accumulate);
      }
    }
  });
}

void hold_blas_to_one_thread() {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

}  // namespace

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
  if (whole.products == 0 || whole.terms == 0) {
    if (!accumulate) std::fill(out, out + c.count(), 0.0);
    return;
  }
  const double *const from_a = whole.a.data(), *const from_b = whole.b.data();
  const auto product = [&](const std::array<std::int64_t, 3>& at, const auto& multiply) {
    bool add = accumulate;
    for_each_run<3>(whole.summed, 0, whole.terms, [&](std::int64_t length, const std::array<std::int64_t, 3>& more) {
      for (std::int64_t r = 0; r < length; ++r) {
        const auto& step = whole.summed.back().strides;
        multiply(whole.m, whole.n, whole.k, Operand{from_a + at[1] + more[1] + r * step[1], whole.a_strides},
                 Operand{from_b + at[2] + more[2] + r * step[2], whole.b_strides}, out + at[0], whole.n, add);
        add = true;
      }
    });
  };
  const auto each = [&](std::int64_t begin, std::int64_t end, const auto& multiply) {
    for_each_run<3>(whole.kept, begin, end, [&](std::int64_t length, std::array<std::int64_t, 3> at) {
      for (std::int64_t j = 0; j < length; ++j) {
        product(at, multiply);
        for (int i = 0; i < 3; ++i) at[i] += whole.kept.back().strides[i];
      }
    });
  };
  if (whole.products >= 2L * threads()) {
    const double work =
        static_cast<double>(whole.m) * static_cast<double>(whole.n) * static_cast<double>(whole.k * whole.terms);
    const auto grain = static_cast<std::int64_t>(1e5 / std::max(1.0, work)) + 1;
    parallel_for(whole.products, grain, [&](std::int64_t begin, std::int64_t end) { each(begin, end, gemm); });
  } else {
    each(0, whole.products, parallel_gemm);
  }
}

}  // namespace plumbline::cpu
