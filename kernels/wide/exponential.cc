#include "kernels/wide/exponential.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/wide/pair.h"

namespace plumbline::wide {
namespace {

// In pairs of doubles, hi + lo, by a table (Tang 1989): with L = ln 2 / 64, k the whole part of x / L, r = x - k L,
//
//     exp(x) - 1 = (2^(k/64) - 1) + 2^(k/64) (exp(r) - 1),
//
// where both terms have the sign of x, so that nothing cancels. With u = 2^-53, r takes two sums: 6 u^2. Its Taylor sum
// is r + r^2 (...), whose second term is below r / 180: 3.1 u^2 more.
//   exp(x):     the table's value (u^2), the last sum (3 u^2), and 1 % of r's and the product's: 4.2 u^2 < 2^-103.
//   exp(x) - 1: up to half of it comes of r, by 13.1 u^2: 10.1 u^2 < 2^-102. Beyond ln 2 the 1 is taken from exp(x),
//               which no more than doubles the error.
constexpr int kParts = 64;
// Beyond, what is left of the result's bits may have no place in a double.
constexpr double kLargest = 600;
// Below, products of what is left of x have none; half of its square is far below the last bit of exp(x) - 1.
constexpr double kSmallest = 0x1p-120;

struct Table {
  Table() {
    const Wide step = logf128(2) / kParts;
    int k = -kParts;
    for (std::size_t at = 0; at < power.size(); ++at, ++k) {
      power[at] = split(expf128(k * step));
      less_one[at] = split(expm1f128(k * step));
    }
    Wide rest = step;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i] = static_cast<double>(rest);
      // A multiple of the first is exact: its lowest 17 bits are 0, and k has 16.
      if (i == 0) parts[i] = std::bit_cast<double>(std::bit_cast<std::uint64_t>(parts[i]) >> 17 << 17);
      rest -= parts[i];
    }
    double factorial = 1;
    for (std::size_t n = 1; n < inverse.size(); ++n) {
      factorial *= static_cast<double>(n);
      inverse[n] = split(1 / static_cast<Wide>(factorial));
    }
  }

  std::array<Pair, 2 * kParts + 1> power{}, less_one{};  // 2^(k/64), 2^(k/64) - 1, from k = -64 on.
  std::array<double, 3> parts{};                         // Their sum is L.
  std::array<Pair, 13> inverse{};                        // 1 / n!
};

const Table& table() {
  static const Table table;
  return table;
}

// exp(r) - 1 for |r| up to L, by its Taylor series to r^12; terms from r^8 on need no second double.
Pair taylor(Pair r, const Table& t) {
  double tail = t.inverse[12].hi;
  for (std::size_t n = 11; n >= 8; --n) tail = std::fma(tail, r.hi, t.inverse[n].hi);
  Pair rest{tail, 0};
  for (std::size_t n = 7; n >= 2; --n) rest = sum(t.inverse[n], product(r, rest));
  return sum(r, product(product(r, r), rest));
}

struct Reduced {
  int k;
  Pair rest;  // exp(r) - 1
};

Reduced reduced(Wide x, const Table& t) {
  const auto [first, second, third] = thirds(x);
  const double k = std::trunc(first / t.parts[0]);
  const Pair near = sum(sum(first, -k * t.parts[0]), product(-k, t.parts[1]));
  return {static_cast<int>(k), taylor(sum(near, sum(second, third - k * t.parts[2])), t)};
}

}  // namespace

Wide exponential(Wide x) {
  const double size = std::fabs(static_cast<double>(x));
  if (!(size <= kLargest)) return expf128(x);
  if (size < kSmallest) return 1 + x;
  const Table& t = table();
  const Reduced of_x = reduced(x, t);
  const int whole = of_x.k >> 6, at = (of_x.k & (kParts - 1)) + kParts;
  static_assert(1 << 6 == kParts);
  const Pair power = t.power[static_cast<std::size_t>(at)];
  const Pair result = sum(power, product(power, of_x.rest));
  const double scale = power_of_two(whole);
  return joined({result.hi * scale, result.lo * scale});
}

Wide exponential_less_one(Wide x) {
  const double size = std::fabs(static_cast<double>(x));
  if (!(size <= kLargest)) return expm1f128(x);
  if (size < kSmallest) return x;
  if (size >= 0.6875) return exponential(x) - 1;
  const Table& t = table();
  const Reduced of_x = reduced(x, t);
  const int at = of_x.k + kParts;
  const Pair power = t.power[static_cast<std::size_t>(at)], less_one = t.less_one[static_cast<std::size_t>(at)];
  return joined(sum(less_one, product(power, of_x.rest)));
}

// From exp(2 |x|), where its error is no larger than in exp(2 |x|) - 1.
Wide tangent(Wide x) {
  const Wide twice = 2 * fabsf128(x);
  if (!(twice <= kLargest)) return tanhf128(x);
  const Wide grown = exponential_less_one(twice);
  const Wide result = grown / (grown + 2);
  return std::signbit(static_cast<double>(x)) ? -result : result;
}

// From exp(-|x|), which cannot overflow.
Wide sigmoid(Wide x) {
  const Wide e = exponential(-fabsf128(x));
  return (x >= 0 ? Wide(1) : e) / (1 + e);
}

}  // namespace plumbline::wide
