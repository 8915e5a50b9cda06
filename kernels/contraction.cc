#include "kernels/contraction.h"

#include <algorithm>

namespace plumbline {
namespace {

bool plain(std::int64_t rows, std::int64_t columns, const MatrixStrides& x) {
  return (x.column == 1 || columns == 1) && (x.row >= std::max<std::int64_t>(1, columns) || rows == 1);
}

bool readable(std::int64_t rows, std::int64_t columns, const MatrixStrides& x) {
  return plain(rows, columns, x) || plain(columns, rows, {x.column, x.row});
}

MatrixStrides strides_of(const Array& x) {
  const std::size_t d = x.shape().size();
  return {x.strides()[d - 2], x.strides()[d - 1]};
}

Array readable_in_place(const Array& x) {
  const std::size_t d = x.shape().size();
  return readable(x.shape()[d - 2], x.shape()[d - 1], strides_of(x)) ? x : x.materialize();
}

View leading_view(const Array& x) {
  return {Shape(x.shape().begin(), x.shape().end() - 2), Shape(x.strides().begin(), x.strides().end() - 2), 0};
}

}  // namespace

MatrixLayout layout(std::int64_t rows, std::int64_t columns, const MatrixStrides& x) {
  const bool as_it_is = plain(rows, columns, x);
  const std::int64_t leading = as_it_is ? (rows == 1 ? columns : x.row) : (columns == 1 ? rows : x.column);
  return {!as_it_is, std::max<std::int64_t>(1, leading)};
}

std::int64_t span_of(const Array& x) {
  std::int64_t span = 1;
  for (std::size_t d = 0; d < x.shape().size(); ++d) span += (x.shape()[d] - 1) * x.strides()[d];
  return span;
}

bool worth_converting(const Array& a, const Array& b, const Array& c) {
  const Shape lead = broadcast(leading_view(a).sizes, leading_view(b).sizes);
  const auto products = static_cast<double>(count(lead)) * static_cast<double>(a.shape().end()[-2]) *
                        static_cast<double>(b.shape().back()) * static_cast<double>(a.shape().back());
  return products >= 24 * static_cast<double>(a.count() + b.count() + c.count());
}

Contraction contraction(const Array& left, const Array& right, const Array& c) {
  Contraction result;
  result.a = readable_in_place(left);
  result.b = readable_in_place(right);
  const Array &a = result.a, &b = result.b;
  MatrixStrides& sa = result.a_strides = strides_of(a);
  MatrixStrides& sb = result.b_strides = strides_of(b);
  result.m = a.shape()[a.shape().size() - 2];
  result.k = a.shape().back();
  result.n = b.shape().back();
  const View va = leading_view(a), vb = leading_view(b), vc = leading_view(c);
  const Shape lead = broadcast(broadcast(va.sizes, vb.sizes), vc.sizes);
  auto &kept = result.kept, &summed = result.summed;
  for (const auto& dim : merged_dimensions<3>(lead, {&vc, &va, &vb})) {
    if (dim.size != 1) (dim.strides[0] != 0 ? kept : summed).push_back(dim);
  }
  // A batch that only lengthens a's rows is one product; a sum over one that lengthens k likewise.
  if (kept.size() == 1 && kept[0].strides[2] == 0 && kept[0].strides[0] == result.m * result.n &&
      (result.m == 1 || kept[0].strides[1] == result.m * sa.row)) {
    const MatrixStrides longer{result.m == 1 ? kept[0].strides[1] : sa.row, sa.column};
    if (readable(result.m * kept[0].size, result.k, longer)) {
      sa = longer;
      result.m *= kept[0].size;
      kept.clear();
    }
  }
  if (summed.size() == 1 &&
      (result.k == 1 || (summed[0].strides[1] == result.k * sa.column && summed[0].strides[2] == result.k * sb.row))) {
    const MatrixStrides wider{sa.row, result.k == 1 ? summed[0].strides[1] : sa.column};
    const MatrixStrides longer{result.k == 1 ? summed[0].strides[2] : sb.row, sb.column};
    if (readable(result.m, result.k * summed[0].size, wider) && readable(result.k * summed[0].size, result.n, longer)) {
      sa = wider;
      sb = longer;
      result.k *= summed[0].size;
      summed.clear();
    }
  }
  if (kept.empty()) kept.push_back({1, {}});
  if (summed.empty()) summed.push_back({1, {}});
  for (const auto& dim : kept) result.products *= dim.size;
  for (const auto& dim : summed) result.terms *= dim.size;
  return result;
}

}  // namespace plumbline
