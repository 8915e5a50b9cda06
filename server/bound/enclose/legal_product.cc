#include "server/bound/enclose/legal_product.h"

#include <algorithm>
#include <cmath>

#include "kernels/primitive/error_model.h"
#include "server/bound/replay/tiles.h"

namespace plumbline {
namespace {

// Without a branch: compilers make vectors only so.
bool within(double seen, double exact, double radius) {
  return (seen == exact) | (exact - exact != 0) | (std::fabs(seen - exact) <= radius);  // Infinite and NaN say nothing.
}

// Where an element of the shape of x, counted row-major, lies in its memory.
std::int64_t place(const Array& x, std::int64_t element) {
  std::int64_t at = 0;
  for (std::size_t d = x.shape().size(); d-- > 0; element /= x.shape()[d])
    at += element % x.shape()[d] * x.strides()[d];
  return at;
}

// The rows of x [..., m, k], or the columns of x [..., k, n], that make up elements of a product of this shape: [e, 1,
// k] or [e, k, 1].
Array vectors_of(const Array& x, const Shape& product, const std::vector<std::int64_t>& elements, bool rows) {
  const std::size_t r = product.size() - 2;
  Shape wide(product.begin(), product.end() - 2);
  wide.insert(wide.end(), x.shape().end() - 2, x.shape().end());
  const Array from = x.expand(wide);
  const std::int64_t k = wide[rows ? r + 1 : r], step = from.strides()[rows ? r + 1 : r];
  View starts{product, from.strides(), 0};  // Of each element, where its vector begins.
  starts.strides[rows ? r + 1 : r] = 0;
  const Array begins = from.restride(starts);
  const auto count = static_cast<std::int64_t>(elements.size());
  Array result = Array::uninitialized(rows ? Shape{count, 1, k} : Shape{count, k, 1});
  double* to = result.data();
  for (const std::int64_t element : elements) {
    const double* const vector = begins.data() + place(begins, element);
    for (std::int64_t l = 0; l < k; ++l) *to++ = vector[l * step];
  }
  return result;
}

Array picked(const Array& x, const std::vector<std::int64_t>& elements) {
  Array result = Array::uninitialized({static_cast<std::int64_t>(elements.size()), 1, 1});
  double* to = result.data();
  for (const std::int64_t element : elements) *to++ = x.data()[place(x, element)];
  return result;
}

}  // namespace

bool legal_product(const Node& node, const Arithmetic& arithmetic, const std::vector<Array>& in, const Array& exact,
                   double off, const LeafValue& observed, double slack) {
  const primitive::ProductError product =
      primitive::product_error(arithmetic, primitive::product_terms(node.attributes, in));
  const double held = primitive::storage(arithmetic).u;
  // Of a wide result nothing is larger than what sums lose, which |A||B| tells.
  if (held == 0 || !is_float(arithmetic.compute) || in[0].shape().back() == 0) return false;
  const double of_magnitudes = slack * (1 + held) * product.factor - off * (1 + slack * held);
  if (!(of_magnitudes >= 0)) return false;
  const double least = (slack * held + of_magnitudes / (1 + off)) * (1 - 0x1p-40);

  const Array t = exact.materialize();
  const std::int64_t n = t.count();
  std::vector<std::vector<std::int64_t>> beyond(count_parts(n));
  const std::int64_t length = (n + std::ssize(beyond) - 1) / std::ssize(beyond);
  for_each_index(std::ssize(beyond), [&](std::int64_t part) {
    const std::int64_t begin = part * length, size = std::min(length, n - begin);
    if (size <= 0) return;
    const Array seen = observed.part(begin, size);
    const double *const x = seen.data(), *const m = t.data() + begin;
    const bool only_finite = off != 0;
    const auto lies_beyond = [=](std::int64_t i) {
      return ((m[i] - m[i] != 0) & only_finite) | !within(x[i], m[i], least * std::fabs(m[i]));
    };
    constexpr std::int64_t kBlock = 64;
    for (std::int64_t first = 0; first < size; first += kBlock) {
      const std::int64_t last = std::min(size, first + kBlock);
      bool any = false;
      for (std::int64_t i = first; i < last; ++i) any |= lies_beyond(i);
      for (std::int64_t i = first; any && i < last; ++i)
        if (lies_beyond(i)) beyond[static_cast<std::size_t>(part)].push_back(begin + i);
    }
  });
  std::vector<std::int64_t> open;
  for (const std::vector<std::int64_t>& part : beyond) open.insert(open.end(), part.begin(), part.end());
  if (open.empty()) return true;
  constexpr std::int64_t kFew = 64;  // Beyond a part of so many, a product of magnitudes costs less.
  if (std::ssize(open) > n / kFew) return false;

  std::vector<Array> operands = {vectors_of(in[0], node.shape, open, true), vectors_of(in[1], node.shape, open, false)};
  if (in.size() > 2) operands.push_back(picked(in[2].expand(node.shape), open));
  if (in.size() > 3) operands.push_back(in[3]);
  const Shape each = {std::ssize(open), 1, 1};
  const Array values = off == 0 ? picked(t, open) : traits(Primitive::kMatmul).evaluate({}, each, operands);
  const Bound bound = traits(Primitive::kMatmul).local_error(node.attributes, arithmetic, operands, values);
  for (std::size_t e = 0; e < open.size(); ++e) {
    const double seen = observed.part(open[e], 1).item();
    if (!within(seen, values.data()[e], slack * bound.values.data()[e])) return false;
  }
  return true;
}

}  // namespace plumbline
