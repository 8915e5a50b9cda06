#include "server/bound/enclose/legal_product.h"

#include <algorithm>
#include <cmath>

#include "kernels/primitive/error_model.h"
#include "server/bound/replay/tiles.h"

namespace plumbline {
namespace {

bool within(double seen, double exact, double radius) {
  return seen == exact || (std::isnan(seen) && std::isnan(exact)) || !std::isfinite(exact) ||
         std::fabs(seen - exact) <= radius;
}

// [elements, rows, columns] of x [..., m, n]: row i of its matrix for each element (i, j) of a product of this shape
// where `rows` is 1, otherwise column j.
Array of_elements(const Array& x, const Shape& product, const std::vector<std::int64_t>& elements, bool of_row) {
  Shape wide(product.begin(), product.end() - 2);
  wide.insert(wide.end(), x.shape().end() - 2, x.shape().end());
  const Array from = x.expand(wide);
  const std::size_t r = product.size() - 2;
  const std::int64_t k = of_row ? wide[r + 1] : wide[r], m = product[r], n = product[r + 1];
  const std::int64_t step = from.strides()[of_row ? r + 1 : r], between = from.strides()[of_row ? r : r + 1];
  const auto count = static_cast<std::int64_t>(elements.size());
  Array result = Array::uninitialized(of_row ? Shape{count, 1, k} : Shape{count, k, 1});
  for (std::int64_t e = 0; e < count; ++e) {
    const std::int64_t element = elements[static_cast<std::size_t>(e)];
    std::int64_t at = (of_row ? element / n % m : element % n) * between, rest = element / n / m;
    for (std::size_t d = r; d-- > 0; rest /= product[d]) at += rest % product[d] * from.strides()[d];
    for (std::int64_t l = 0; l < k; ++l) result.data()[e * k + l] = from.data()[at + l * step];
  }
  return result;
}

Array picked(const Array& x, const std::vector<std::int64_t>& elements) {
  Array result = Array::uninitialized({static_cast<std::int64_t>(elements.size()), 1, 1});
  for (std::size_t e = 0; e < elements.size(); ++e) result.data()[e] = x.data()[elements[e]];
  return result;
}

}  // namespace

bool legal_product(const Node& node, const Arithmetic& arithmetic, const std::vector<Array>& in, const Array& exact,
                   const LeafValue& observed, double slack) {
  const primitive::ProductError product =
      primitive::product_error(arithmetic, primitive::product_terms(node.attributes, in));
  const double held = primitive::storage(arithmetic).u;
  if (held == 0) return false;  // Nothing is larger than what sums lose, which |A||B| tells.
  const double least = slack * ((1 + product.factor) * (1 + held) - 1) * (1 - 0x1p-40);

  const Array t = exact.materialize();
  const std::int64_t n = t.count();
  std::vector<std::vector<std::int64_t>> beyond(count_parts(n));
  const std::int64_t length = (n + std::ssize(beyond) - 1) / std::ssize(beyond);
  for_each_index(std::ssize(beyond), [&](std::int64_t part) {
    const std::int64_t begin = part * length, size = std::min(length, n - begin);
    if (size <= 0) return;
    const Array seen = observed.part(begin, size);
    const double *const x = seen.data(), *const m = t.data() + begin;
    for (std::int64_t i = 0; i < size; ++i)
      if (!within(x[i], m[i], least * std::fabs(m[i]))) beyond[static_cast<std::size_t>(part)].push_back(begin + i);
  });
  std::vector<std::int64_t> open;
  for (const std::vector<std::int64_t>& part : beyond) open.insert(open.end(), part.begin(), part.end());
  if (open.empty()) return true;
  constexpr std::int64_t kFew = 64;  // Beyond a part of so many, a product of magnitudes costs less.
  if (std::ssize(open) > n / kFew) return false;

  std::vector<Array> operands = {of_elements(in[0], node.shape, open, true),
                                 of_elements(in[1], node.shape, open, false)};
  if (in.size() > 2) operands.push_back(picked(in[2].expand(node.shape).materialize(), open));
  if (in.size() > 3) operands.push_back(in[3]);
  const Array values = picked(t, open);
  const Bound bound = traits(Primitive::kMatmul).local_error(node.attributes, arithmetic, operands, values);
  for (std::size_t e = 0; e < open.size(); ++e) {
    const double seen = observed.part(open[e], 1).item();
    if (!within(seen, values.data()[e], slack * bound.values.data()[e])) return false;
  }
  return true;
}

}  // namespace plumbline
