#include "kernels/cpu/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "kernels/cpu/loop.h"

namespace plumbline::cpu {
namespace {

// One strided operand of a family of products.
struct Operand {
  const double* data;
  std::int64_t row, column;  // Strides.
};

bool readable(std::int64_t rows, std::int64_t columns, std::int64_t row, std::int64_t column) {
  const bool plain = (column == 1 || columns == 1) && (row >= std::max<std::int64_t>(1, columns) || rows == 1);
  const bool transposed = (row == 1 || rows == 1) && (column >= std::max<std::int64_t>(1, rows) || columns == 1);
  return plain || transposed;
}

// What cblas wants to know of an operand that is readable in place.
struct Layout {
  CBLAS_TRANSPOSE transpose;
  blasint leading;
};

Layout layout(std::int64_t rows, std::int64_t columns, const Operand& x) {
  const bool plain = (x.column == 1 || columns == 1) && (x.row >= std::max<std::int64_t>(1, columns) || rows == 1);
  const std::int64_t leading = plain ? (rows == 1 ? columns : x.row) : (columns == 1 ? rows : x.column);
  return {plain ? CblasNoTrans : CblasTrans, static_cast<blasint>(std::max<std::int64_t>(1, leading))};
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Operand& a, const Operand& b, double* c,
          std::int64_t ldc, bool accumulate) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (accumulate) return;
    for (std::int64_t i = 0; i < m; ++i) std::fill(c + i * ldc, c + i * ldc + n, 0.0);
    return;
  }
  const Layout la = layout(m, k, a);
  const Layout lb = layout(k, n, b);
  for (std::int64_t p = 0; p < k; p += kSumBlock)
    cblas_dgemm(CblasRowMajor, la.transpose, lb.transpose, static_cast<blasint>(m), static_cast<blasint>(n),
                static_cast<blasint>(std::min(kSumBlock, k - p)), 1.0, a.data + p * a.column, la.leading,
                b.data + p * b.row, lb.leading, accumulate || p > 0 ? 1.0 : 0.0, c, static_cast<blasint>(ldc));
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
        gemm(size, n, k, {a.data + from * a.row, a.row, a.column}, b, c + from * ldc, ldc, accumulate);
      } else {
        gemm(m, size, k, a, {b.data + from * b.column, b.row, b.column}, c + from, ldc, accumulate);
      }
    }
  });
}

Array readable_in_place(const Array& x) {
  const std::size_t d = x.shape().size();
  if (readable(x.shape()[d - 2], x.shape()[d - 1], x.strides()[d - 2], x.strides()[d - 1])) return x;
  return x.materialize();
}

void hold_blas_to_one_thread() {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

View leading_view(const Array& x) {
  return {Shape(x.shape().begin(), x.shape().end() - 2), Shape(x.strides().begin(), x.strides().end() - 2), 0};
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
  const Array a = readable_in_place(left);
  const Array b = readable_in_place(right);
  const std::size_t da = a.shape().size(), db = b.shape().size();
  const std::int64_t m = a.shape()[da - 2], k = a.shape()[da - 1], n = b.shape()[db - 1];
  if (c.count() == 0) return;

  const View va = leading_view(a), vb = leading_view(b), vc = leading_view(c);
  const Shape lead = broadcast(broadcast(va.sizes, vb.sizes), vc.sizes);
  if (plumbline::count(lead) == 0) {
    if (!accumulate) std::fill(c.data(), c.data() + c.count(), 0.0);
    return;
  }
  // Operands: c, a, b. Dimensions of the batch over which c does not advance are summed.
  auto dims = merged_dimensions<3>(lead, {&vc, &va, &vb});
  Operand oa{a.data(), a.strides()[da - 2], a.strides()[da - 1]};
  Operand ob{b.data(), b.strides()[db - 2], b.strides()[db - 1]};
  const std::int64_t ldc = n;
  std::int64_t rows = m, inner = k;
  std::vector<Dimension<3>> kept, summed;
  for (const auto& dim : dims) {
    if (dim.size > 1) (dim.strides[0] != 0 ? kept : summed).push_back(dim);
  }
  // A batch that only lengthens a's rows is one product; a sum over one that lengthens k likewise.
  if (kept.size() == 1 && kept[0].strides[2] == 0 && kept[0].strides[0] == rows * ldc &&
      (rows == 1 || kept[0].strides[1] == rows * oa.row) &&
      readable(rows * kept[0].size, k, rows == 1 ? kept[0].strides[1] : oa.row, oa.column)) {
    if (rows == 1) oa.row = kept[0].strides[1];
    rows *= kept[0].size;
    kept.clear();
  }
  if (summed.size() == 1 &&
      (inner == 1 || (summed[0].strides[1] == inner * oa.column && summed[0].strides[2] == inner * ob.row))) {
    const std::int64_t ka = inner == 1 ? summed[0].strides[1] : oa.column;
    const std::int64_t kb = inner == 1 ? summed[0].strides[2] : ob.row;
    if (readable(rows, inner * summed[0].size, oa.row, ka) && readable(inner * summed[0].size, n, kb, ob.column)) {
      oa.column = ka;
      ob.row = kb;
      inner *= summed[0].size;
      summed.clear();
    }
  }
  if (kept.empty()) kept.push_back({1, {}});
  if (summed.empty()) summed.push_back({1, {}});
  std::int64_t products = 1, terms = 1;
  for (const auto& dim : kept) products *= dim.size;
  for (const auto& dim : summed) terms *= dim.size;

  const auto product = [&](const std::array<std::int64_t, 3>& at, const auto& multiply) {
    bool add = accumulate;
    for_each_run<3>(summed, 0, terms, [&](std::int64_t length, const std::array<std::int64_t, 3>& more) {
      for (std::int64_t r = 0; r < length; ++r) {
        const auto& step = summed.back().strides;
        multiply(rows, n, inner, Operand{oa.data + at[1] + more[1] + r * step[1], oa.row, oa.column},
                 Operand{ob.data + at[2] + more[2] + r * step[2], ob.row, ob.column}, c.data() + at[0], ldc, add);
        add = true;
      }
    });
  };
  const auto each = [&](std::int64_t begin, std::int64_t end, const auto& multiply) {
    for_each_run<3>(kept, begin, end, [&](std::int64_t length, std::array<std::int64_t, 3> at) {
      for (std::int64_t j = 0; j < length; ++j) {
        product(at, multiply);
        for (int i = 0; i < 3; ++i) at[i] += kept.back().strides[i];
      }
    });
  };
  if (products >= 2L * threads()) {
    const double work = static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(inner * terms);
    const auto grain = static_cast<std::int64_t>(1e5 / std::max(1.0, work)) + 1;
    parallel_for(products, grain, [&](std::int64_t begin, std::int64_t end) { each(begin, end, gemm); });
  } else {
    each(0, products, parallel_gemm);
  }
}

}  // namespace plumbline::cpu
