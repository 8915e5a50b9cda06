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
  double value = 0, size = 0;  // <w, v> and sum |w v|
  double zeros = 0;            // So many elements are 0.
};
double error_of(std::int64_t k) { return std::max(0x1p-40, 2 * static_cast<double>(k) * 0x1p-53 * (1 + 0x1p-20)); }

// In [1/2, 3/2), of either sign.
double weight(std::int64_t i) {
  std::uint64_t bits = (static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15ULL;  // Steps of the golden ratio.
  bits = (bits ^ bits >> 31) * 0xbf58476d1ce4e5b9ULL;
  const double size = 0.5 + static_cast<double>(bits >> 12) * 0x1p-52;
  return (bits & 1) != 0 ? -size : size;
}

constexpr std::int64_t kAtATime = 64;

// Adds the elements of so many vectors at most: each `step` apart, their k elements `element_step` apart.
void project(const double* x, std::int64_t vectors, std::int64_t step, std::int64_t k, std::int64_t element_step,
             const double* weights, Projection* to) {
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
  for (std::int64_t i = 0; i < vectors; ++i) {
    to[i].value += values[i];
    to[i].size += sizes[i];
    to[i].zeros += zeros[i];
  }
}

// Some of the terms: `length` from each of these on.
struct Terms {
  std::vector<std::int64_t> from;
  std::int64_t length = 0;

  std::int64_t count() const { return std::ssize(from) * length; }
};
Terms all_of(std::int64_t terms) { return {{0}, terms}; }
// A few that lie far apart, so that a part of a vector which is much smaller than the rest does not stand for it.
Terms few_of(std::int64_t terms) {
  constexpr std::int64_t kStretches = 4, kLength = 16;
  if (terms <= kStretches * kLength) return all_of(terms);
  Terms few{{}, kLength};
  for (std::int64_t i = 0; i < kStretches; ++i) few.from.push_back((terms - kLength) * i / (kStretches - 1));
  return few;
}

// Adds those of x's vectors along its dimension `along`, one of the last two.
void project(const Array& x, std::size_t along, const Terms& terms, std::vector<Projection>* to) {
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
      for (const std::int64_t l : terms.from)
        project(x.data() + at + first * x.strides()[across] + l * x.strides()[along],
                std::min(kAtATime, vectors - first), x.strides()[across], terms.length, x.strides()[along],
                weights.data() + l, to->data() + before + matrix * vectors + first);
    }
  });
}

enum class Told { kDistinct, kNear, kLost };  // Lost: some hold zeros, or are not finite, and may equal anything.

// Of all rows of a's matrices and all columns of b's, by some of their terms.
Told tell(const Array& a, const Array& b, const Terms& terms) {
  std::vector<Projection> all;
  project(a, a.shape().size() - 1, terms, &all);
  project(b, b.shape().size() - 2, terms, &all);
  double largest = 0;
  std::vector<double> values;
  values.reserve(all.size());
  for (const Projection& one : all) {
    if (one.zeros > 0 || !std::isfinite(one.size)) return Told::kLost;
    largest = std::max(largest, one.size);
    values.push_back(one.value);
  }
  std::ranges::sort(values);
  const double error = error_of(terms.count()) * largest;
  const auto near = [error](double x, double y) { return y - x <= error; };
  return std::ranges::adjacent_find(values, near) == values.end() ? Told::kDistinct : Told::kNear;
}

}  // namespace

// Let all rows of all the first operand's matrices and all columns of the second's differ from each other in terms that
// are nowhere 0. No other element has both the row and the column of one, as each pair of matrices meets once in the
// result: two that have either in common differ in a term there, and those that have neither differ in most terms. A
// few terms mostly say so; what is lost among them is lost among all.
bool distinct_terms(const std::vector<Array>& inputs) {
  const Array &a = inputs[0], &b = inputs[1];
  constexpr std::int64_t kTermsMin = 32;
  if (a.shape().size() < 2 || b.shape().size() < 2 || a.shape().back() < kTermsMin) return false;
  const Terms all = all_of(a.shape().back()), few = few_of(a.shape().back());
  Told told = tell(a, b, few);
  if (told == Told::kNear && few.count() < all.count()) told = tell(a, b, all);
  return told == Told::kDistinct;
}

}  // namespace plumbline
