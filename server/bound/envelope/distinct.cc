#include "server/bound/envelope/distinct.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/parallel.h"

namespace plumbline {
namespace {

// Vectors v of k elements, projected onto one of random weights w: those whose projections lie further apart than
// roundings bring them are not equal. A sum of k products, in whatever order, errs by at most k u sum |w v| (Jeannerod
// and Rump 2013), u = 2^-53; both of two by as much.
struct Projection {
  double value = 0, error = 0;  // <w, v>, and what two of these may differ by where vectors are equal.
};

// In [1/2, 3/2), of either sign.
double weight(std::int64_t i) {
  std::uint64_t bits = (static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15ULL;  // Steps of the golden ratio.
  bits = (bits ^ bits >> 31) * 0xbf58476d1ce4e5b9ULL;
  const double size = 0.5 + static_cast<double>(bits >> 12) * 0x1p-52;
  return (bits & 1) != 0 ? -size : size;
}

// The vectors [vectors, k] of a matrix, each `step` apart, their elements `element_step` apart.
void project(const double* x, std::int64_t vectors, std::int64_t step, std::int64_t k, std::int64_t element_step,
             const double* weights, Projection* to) {
  constexpr std::int64_t kLanes = 64;  // Vectors at a time where they lie side by side.
  const double error = 2 * static_cast<double>(k) * 0x1p-53 * (1 + 0x1p-20);
  double values[kLanes], sizes[kLanes];
  const bool side_by_side = step < element_step;
  for (std::int64_t first = 0; first < vectors;) {
    const std::int64_t length = side_by_side ? std::min(kLanes, vectors - first) : 1;
    std::fill_n(values, length, 0.0);
    std::fill_n(sizes, length, 0.0);
    if (side_by_side) {
      for (std::int64_t l = 0; l < k; ++l) {
        const double w = weights[l];
        const double* const from = x + first * step + l * element_step;
        for (std::int64_t i = 0; i < length; ++i) {
          const double product = w * from[i * step];
          values[i] += product;
          sizes[i] += std::fabs(product);
        }
      }
    } else {
      double value = 0, size = 0;
      const double* const from = x + first * step;
#pragma omp simd reduction(+ : value, size)
      for (std::int64_t l = 0; l < k; ++l) {
        const double product = weights[l] * from[l * element_step];
        value += product;
        size += std::fabs(product);
      }
      values[0] = value;
      sizes[0] = size;
    }
    for (std::int64_t i = 0; i < length; ++i) to[first + i] = {values[i], error * sizes[i]};
    first += length;
  }
}

// Of x's vectors along its dimension `along`, one of the last two, matrix by matrix.
std::vector<Projection> project(const Array& x, std::size_t along) {
  const std::size_t last = x.shape().size() - 1, across = along == last ? last - 1 : last;
  const std::int64_t k = x.shape()[along], vectors = x.shape()[across];
  std::vector<double> weights(static_cast<std::size_t>(k));
  for (std::int64_t l = 0; l < k; ++l) weights[static_cast<std::size_t>(l)] = weight(l);
  std::int64_t matrices = 1;
  for (std::size_t d = 0; d + 1 < last; ++d) matrices *= x.shape()[d];
  std::vector<Projection> found(static_cast<std::size_t>(matrices * vectors));
  constexpr std::int64_t kAtATime = 64;
  const std::int64_t stretches = (vectors + kAtATime - 1) / kAtATime;
  cpu::parallel_for(matrices * stretches, 2, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t matrix = part / stretches, first = part % stretches * kAtATime;
      std::int64_t at = 0, rest = matrix;
      for (std::size_t d = last - 1; d-- > 0; rest /= x.shape()[d]) at += rest % x.shape()[d] * x.strides()[d];
      project(x.data() + at + first * x.strides()[across], std::min(kAtATime, vectors - first), x.strides()[across], k,
              x.strides()[along], weights.data(), &found[static_cast<std::size_t>(matrix * vectors + first)]);
    }
  });
  return found;
}

// Whether no two of each `group` after the other may be equal, but for zeros. What is not finite may be equal to all.
bool differ(std::vector<Projection> all, std::int64_t group) {
  const auto size = static_cast<std::size_t>(group);
  for (std::size_t first = 0; first < all.size(); first += size) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first), end = begin + group;
    double largest = 0;
    for (auto at = begin; at != end; ++at) {
      if (!std::isfinite(at->error)) return false;
      largest = std::max(largest, at->error);
    }
    std::sort(begin, end, [](const Projection& a, const Projection& b) { return a.value < b.value; });
    const Projection* before = nullptr;
    for (auto at = begin; at != end; ++at) {
      if (at->error == 0) continue;
      if (before != nullptr && at->value - before->value <= largest) return false;
      before = &*at;
    }
  }
  return true;
}

std::int64_t matrices(const Shape& shape) {
  std::int64_t product = 1;
  for (std::size_t d = 0; d + 2 < shape.size(); ++d) product *= shape[d];
  return product;
}

}  // namespace

// Elements of one matrix of the result have distinct operands where all rows of the first operand differ from each
// other, and all columns of the second. Over a batch, let all rows of all the first operand's matrices differ: two
// elements of equal operands then have their rows from one matrix. If each matrix of the result has one of its own,
// they are of one matrix, and columns need differ there alone; otherwise, everywhere. The same with rows and columns
// exchanged.
bool distinct_operands(const std::vector<Array>& inputs, const Shape& result) {
  const Array &a = inputs[0], &b = inputs[1];
  if (a.shape().size() < 2 || b.shape().size() < 2 || count(result) == 0) return false;
  const std::vector<Projection> rows = project(a, a.shape().size() - 1), columns = project(b, b.shape().size() - 2);
  const std::int64_t m = a.shape()[a.shape().size() - 2], n = b.shape().back();
  const auto all = [](const std::vector<Projection>& of) { return std::ssize(of); };
  const bool own_a = matrices(a.shape()) == matrices(result), own_b = matrices(b.shape()) == matrices(result);
  return (differ(rows, all(rows)) && differ(columns, own_a ? n : all(columns))) ||
         (differ(columns, all(columns)) && differ(rows, own_b ? m : all(rows)));
}

}  // namespace plumbline
