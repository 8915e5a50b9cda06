#include "server/bound/envelope/distinct.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/parallel.h"

namespace plumbline {
namespace {

// Vectors v of k elements, projected onto one of random weights w. Where v is equal in two operands the projections
// differ by the roundings of their sums, at most 2 k 2^-53 sum |w v| (Jeannerod and Rump 2013), and by what our own
// replay left of sums that are equal by mathematics, which is below 2^-40 (kernels/ball/key.h).
struct Projection {
  double value = 0, error = 0;  // <w, v>, and what two of these may differ by where vectors are equal.
  bool zeros = false;           // Some element is 0.
};

// In [1/2, 3/2), of either sign.
double weight(std::int64_t i) {
  std::uint64_t bits = (static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15ULL;  // Steps of the golden ratio.
  bits = (bits ^ bits >> 31) * 0xbf58476d1ce4e5b9ULL;
  const double size = 0.5 + static_cast<double>(bits >> 12) * 0x1p-52;
  return (bits & 1) != 0 ? -size : size;
}

constexpr std::int64_t kAtATime = 64;

// So many vectors of k elements at most: each `step` apart, their elements `element_step` apart.
void project(const double* x, std::int64_t vectors, std::int64_t step, std::int64_t k, std::int64_t element_step,
             const double* weights, Projection* to) {
  const double error = std::max(0x1p-40, 2 * static_cast<double>(k) * 0x1p-53 * (1 + 0x1p-20));
  double values[kAtATime] = {}, sizes[kAtATime] = {}, zeros[kAtATime] = {};
  if (step < element_step) {  // Side by side in memory.
    for (std::int64_t l = 0; l < k; ++l) {
      const double w = weights[l];
      const double* const from = x + l * element_step;
      for (std::int64_t i = 0; i < vectors; ++i) {
        const double product = w * from[i * step];
        values[i] += product;
        sizes[i] += std::fabs(product);
        zeros[i] += product == 0 ? 1.0 : 0.0;
      }
    }
  } else {
    for (std::int64_t i = 0; i < vectors; ++i) {
      double value = 0, size = 0, none = 0;
      const double* const from = x + i * step;
#pragma omp simd reduction(+ : value, size, none)
      for (std::int64_t l = 0; l < k; ++l) {
        const double product = weights[l] * from[l * element_step];
        value += product;
        size += std::fabs(product);
        none += product == 0 ? 1.0 : 0.0;
      }
      values[i] = value;
      sizes[i] = size;
      zeros[i] = none;
    }
  }
  for (std::int64_t i = 0; i < vectors; ++i) to[i] = {values[i], error * sizes[i], zeros[i] != 0};
}

// Adds those of x's vectors along its dimension `along`, one of the last two.
void project(const Array& x, std::size_t along, std::vector<Projection>* to) {
  const std::size_t last = x.shape().size() - 1, across = along == last ? last - 1 : last;
  const std::int64_t k = x.shape()[along], vectors = x.shape()[across];
  std::vector<double> weights(static_cast<std::size_t>(k));
  for (std::int64_t l = 0; l < k; ++l) weights[static_cast<std::size_t>(l)] = weight(l);
  const std::size_t before = to->size();
  to->resize(before + static_cast<std::size_t>(x.count() / k));
  const std::int64_t stretches = (vectors + kAtATime - 1) / kAtATime;
  const std::int64_t matrices = vectors == 0 ? 0 : x.count() / (k * vectors);
  cpu::parallel_for(matrices * stretches, 2, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t matrix = part / stretches, first = part % stretches * kAtATime;
      std::int64_t at = 0, rest = matrix;
      for (std::size_t d = last - 1; d-- > 0; rest /= x.shape()[d]) at += rest % x.shape()[d] * x.strides()[d];
      project(x.data() + at + first * x.strides()[across], std::min(kAtATime, vectors - first), x.strides()[across], k,
              x.strides()[along], weights.data(), to->data() + before + matrix * vectors + first);
    }
  });
}

// The first so many of x's elements along a dimension.
Array first_of(const Array& x, std::size_t along, std::int64_t length) {
  View view{x.shape(), x.strides(), 0};
  view.sizes[along] = length;
  return x.restride(view);
}

enum class Told { kDistinct, kNear, kLost };  // Lost: some hold zeros, or are not finite, and may equal anything.

// Of all rows of a's matrices and all columns of b's, by their first so many terms.
Told tell(const Array& a, const Array& b, std::int64_t terms) {
  const std::size_t of_a = a.shape().size() - 1, of_b = b.shape().size() - 2;
  std::vector<Projection> all;
  project(first_of(a, of_a, terms), of_a, &all);
  project(first_of(b, of_b, terms), of_b, &all);
  double largest = 0;
  std::vector<double> values;
  values.reserve(all.size());
  for (const Projection& one : all) {
    if (one.zeros || !std::isfinite(one.error)) return Told::kLost;
    largest = std::max(largest, one.error);
    values.push_back(one.value);
  }
  std::ranges::sort(values);
  const auto near = [largest](double x, double y) { return y - x <= largest; };
  return std::ranges::adjacent_find(values, near) == values.end() ? Told::kDistinct : Told::kNear;
}

}  // namespace

// Let all rows of all the first operand's matrices and all columns of the second's differ from each other, and hold no
// zeros. No other element has both the row and the column of one, as each pair of matrices meets once in the result:
// two that have either in common differ in a term there, and those that have neither differ in most terms. Mostly the
// first terms say so; what is lost among them is lost among all.
bool distinct_terms(const std::vector<Array>& inputs) {
  const Array &a = inputs[0], &b = inputs[1];
  constexpr std::int64_t kTermsMin = 32, kFirst = 64;
  if (a.shape().size() < 2 || b.shape().size() < 2 || a.shape().back() < kTermsMin) return false;
  const std::int64_t terms = a.shape().back();
  Told told = tell(a, b, std::min(terms, kFirst));
  if (told == Told::kNear && terms > kFirst) told = tell(a, b, terms);
  return told == Told::kDistinct;
}

}  // namespace plumbline
