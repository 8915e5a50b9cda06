#include "kernels/wide/error_function.h"

#include <array>
#include <cmath>

#include "kernels/wide/pair.h"

namespace plumbline::wide {
namespace {

// In pairs of doubles, from the nearest c of a table: with h = |x| - c and exp(-2 c h - h^2) = b_0 + b_1 h + ...,
//
//     erf(c + h) = erf(c) + 2 / sqrt(pi) exp(-c^2) h (b_0 + b_1 h / 2 + b_2 h^2 / 3 + ...),
//
// where b_0 = 1 and (k + 1) b_{k+1} = -2 c b_k - 2 b_{k-1}, the derivative of both sides. b_k is H_k(c) / k! but for
// its sign, so that |b_k| < 1.1 exp(c^2 / 2) 2^(k/2) / sqrt(k!) (Cramer). With |h| <= 2^-5, terms after h^19 are below
// 2^-110 of the result, and those from b_10 on below 2^-57, so that they need no second double.
// h takes 6 u^2, the sum of the series 5 u^2, products with h and with what stands before them 8 u^2 and u^2 more,
// which weigh at most as much as the result (c = 1/16, h = -1/32); erf(c) twice u^2, the last sum 3 u^2. All of it is
// 25 u^2 < 2^-101.
constexpr int kInOne = 16;
constexpr int kEnd = 9;  // erf(9) is 1 but for 2^-120.
constexpr std::size_t kTerms = 19, kInPairs = 10;

struct Centre {
  Pair value, scale;                 // erf(c), 2 / sqrt(pi) exp(-c^2)
  std::array<Pair, kInPairs> first;  // b_k / (k + 1)
  std::array<double, kTerms> all;    // The same, rounded.
};

struct Table {
  Table() {
    const Wide before = 2 / sqrtf128(atan2f128(0, -1));
    for (std::size_t i = 0; i < centres.size(); ++i) {
      Centre& centre = centres[i];
      const Wide c = static_cast<Wide>(i) / kInOne;
      centre.value = split(erff128(c));
      centre.scale = split(before * expf128(-c * c));
      Wide b = 1, before_b = 0;
      for (std::size_t k = 0; k < kTerms; ++k) {
        const Wide n = static_cast<Wide>(k + 1);
        if (k < kInPairs) centre.first[k] = split(b / n);
        centre.all[k] = static_cast<double>(b / n);
        const Wide next = (-2 * c * b - 2 * before_b) / n;
        before_b = b;
        b = next;
      }
    }
  }

  std::array<Centre, kEnd * kInOne + 1> centres;
};

}  // namespace

Wide error_function(Wide x) {
  const double size = std::fabs(static_cast<double>(x));
  if (!(size < kEnd) || size < 0x1p-120) return erff128(x);
  static const Table table;
  const auto [first, second, third] = thirds(fabsf128(x));
  const double nearest = std::nearbyint(size * kInOne);
  const Centre& c = table.centres[static_cast<std::size_t>(nearest)];
  const Pair h = sum(sum(first, -nearest / kInOne), sum(second, third));
  double tail = c.all[kTerms - 1];
  for (std::size_t k = kTerms - 1; k-- > kInPairs;) tail = std::fma(tail, h.hi, c.all[k]);
  Pair series{tail, 0};
  for (std::size_t k = kInPairs; k-- > 0;) series = sum(c.first[k], product(h, series));
  const Wide result = joined(sum(c.value, product(c.scale, product(h, series))));
  return x < 0 ? -result : result;
}

}  // namespace plumbline::wide
