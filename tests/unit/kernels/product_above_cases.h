// Products of magnitudes from above, against their exact values.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/primitive/primitive.h"
#include "tests/unit/kernels/cases.h"

namespace plumbline::testing {

// radius_matmul of exact centres and one operand's radii is |A| rB: what `product_above` makes of it. Rows and columns
// of many sizes, rows of zeros, transposed and repeated operands, all of it tiny or huge.
inline void expect_products_above() {
  constexpr std::int64_t kSide = 96;
  std::mt19937_64 rng(8);
  const auto drawn = [&](const Shape& shape, int range) {
    Array x = random_array(rng, shape, -1, 1);
    const std::int64_t columns = shape.back();
    for (std::int64_t i = 0; i < x.count(); ++i)
      x.data()[i] *= (i / columns) % 11 == 3 ? 0 : std::ldexp(1.0, -static_cast<int>((i / columns * 7) % (range + 1)));
    return x;
  };
  for (const int range : {0, 20, 90})
    for (const double size : {1.0, 1e-100, 1e-250, 1e100, 1e150, 1e300})
      for (const bool repeated : {false, true}) {
        Array centre = drawn({2, kSide, 2 * kSide}, range);
        for (std::int64_t i = 0; i < centre.count() && size > 1; ++i) centre.data()[i] /= size;  // Tiny beside huge.
        Array right = drawn(repeated ? Shape{kSide, 2 * kSide} : Shape{2, kSide, 2 * kSide}, range);
        for (std::int64_t i = 0; i < right.count(); ++i) right.data()[i] = std::fabs(right.data()[i]) * size;
        const Array b = right.restride(repeated ? View{{2 * kSide, kSide}, {1, 2 * kSide}, 0}
                                                : View{{2, 2 * kSide, kSide}, {2 * kSide * kSide, 1, 2 * kSide}, 0});
        const Array radius = b.materialize();
        const std::vector<Array> centres = {centre, Array::zeros(b.shape())};
        const std::vector<Bound> radii = {Bound{}, Bound{b}};
        const Array out = Array::zeros({2, kSide, kSide});
        const Array found = traits(Primitive::kMatmul).radius({}, centres, radii, out).values.materialize();
        long double largest = 0;
        std::vector<long double> exact(static_cast<std::size_t>(found.count()));
        const std::int64_t batch = repeated ? 0 : 2 * kSide * kSide;
        for (std::int64_t p = 0; p < 2; ++p)
          for (std::int64_t i = 0; i < kSide; ++i)
            for (std::int64_t j = 0; j < kSide; ++j) {
              long double& sum = exact[static_cast<std::size_t>((p * kSide + i) * kSide + j)];
              for (std::int64_t k = 0; k < 2 * kSide; ++k)
                sum += static_cast<long double>(std::fabs(centre.data()[(p * kSide + i) * 2 * kSide + k])) *
                       radius.data()[p * batch + k * kSide + j];
              largest = std::max(largest, sum);
            }
        for (std::int64_t i = 0; i < found.count(); ++i) {
          const long double wanted = exact[static_cast<std::size_t>(i)], got = found.data()[i];
          ASSERT_GE(got, wanted) << i << ", range " << range << ", size " << size;
          ASSERT_LE(got, wanted * (1 + 0x1p-6L) + largest * kSide * 0x1p-58L + 1e-318L) << i << ", range " << range;
        }
      }
}

}  // namespace plumbline::testing
