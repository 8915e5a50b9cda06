// Observed products, right and wrong, and which of their rows row projections have to tell.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/ball/round.h"
#include "kernels/projection.h"
#include "tests/unit/kernels/cases.h"

namespace plumbline::testing {

// y = fl(alpha a b + c): the products one after the other in fp32, the result held in `result`.
struct ObservedProduct {
  static constexpr std::int64_t kBatch = 2, kRows = 24, kTerms = 70, kColumns = 40;

  ObservedProduct(Format result, bool begun, bool transposed)
      : profile(ieee()), arithmetic{Format::kFloat32, result, &profile, result} {
    std::mt19937_64 rng(9);
    const RoundTo hold(result);
    const auto drawn = [&](const Shape& shape) {
      Array x = random_array(rng, shape, -1, 1);
      for (std::int64_t i = 0; i < x.count(); ++i) x.data()[i] = hold(x.data()[i]);
      return x;
    };
    const Array a = drawn({kBatch, kRows, kTerms});
    const Array stored = drawn(transposed ? Shape{kColumns, kTerms} : Shape{kTerms, kColumns});
    in = {a, transposed ? stored.restride({{kTerms, kColumns}, {1, kTerms}, 0}) : stored};
    if (begun) in.insert(in.end(), {drawn({kColumns}), Array::scalar(0.5)});
    const Array b = in[1].materialize();
    observed = Array::uninitialized({kBatch, kRows, kColumns});
    level.resize(kBatch * kRows);
    for (std::int64_t i = 0; i < kBatch * kRows; ++i) {
      double squares = 0;
      for (std::int64_t j = 0; j < kColumns; ++j) {
        float sum = 0;
        double terms = 0;
        for (std::int64_t k = 0; k < kTerms; ++k) {
          const auto x = static_cast<float>(a.data()[i * kTerms + k]),
                     y = static_cast<float>(b.data()[k * kColumns + j]);
          sum += x * y;
          terms += std::fabs(x * y);
        }
        if (begun) sum = 0.5F * sum + static_cast<float>(in[2].data()[j]);
        observed.data()[i * kColumns + j] = hold(sum);
        const double u = result == Format::kFloat32 ? 0 : unit_roundoff(result);
        const double accumulated = std::sqrt(kTerms + 5.0) * 0x1p-24 * (terms + 1), stored_error = u * std::fabs(sum);
        squares += accumulated * accumulated + stored_error * stored_error;
      }
      level[static_cast<std::size_t>(i)] = std::sqrt(squares / kColumns);
    }
  }

  // How many rows are told after a change of what was observed.
  template <class Change>
  double told(std::uint64_t seed, const Change& change) const {
    Array changed = Array::uninitialized(observed.shape());
    std::copy_n(observed.data(), observed.count(), changed.data());
    change(changed.data());
    return outlying_rows(arithmetic, in, changed, seed);
  }

  const Profile profile;
  const Arithmetic arithmetic;
  std::vector<Array> in;
  Array observed;
  std::vector<double> level;  // For each row, the root mean square of what roundings add up to by chance.
};

inline void expect_outlying_rows_told() {
  constexpr std::int64_t kColumns = ObservedProduct::kColumns;
  for (const Format result : {Format::kFloat32, Format::kBFloat16, Format::kFloat16})
    for (const bool begun : {false, true})
      for (const bool transposed : {false, true}) {
        SCOPED_TRACE(std::string(traits(result).name) + (begun ? " begun" : "") + (transposed ? " transposed" : ""));
        const ObservedProduct product(result, begun, transposed);
        EXPECT_EQ(product.told(1, [](double*) {}), 0);
        for (const std::int64_t row : {0, 30, 47}) {
          const double level = product.level[static_cast<std::size_t>(row)];
          // All elements, in one direction or alternately; |A||B| is told to within a factor of two.
          for (const double sign : {1.0, -1.0}) {
            const auto spread = [&](double size) {
              return product.told(2, [&](double* y) {
                for (std::int64_t j = 0; j < kColumns; ++j) y[row * kColumns + j] += j % 2 == 0 ? size : sign * size;
              });
            };
            EXPECT_EQ(spread(0.25 * level), 0);
            EXPECT_EQ(spread(8 * level), 1);
          }
          const double one = 3 * std::sqrt(static_cast<double>(kColumns)) * level;
          EXPECT_EQ(product.told(3, [&](double* y) { y[row * kColumns + 17] += one; }), 1);
        }
        EXPECT_EQ(product.told(4, [](double* y) { y[3 * kColumns] = NAN, y[7 * kColumns + 1] = HUGE_VAL; }), 2);
        // A wrong factor shows in every row.
        EXPECT_EQ(product.told(5, [](double* y) { std::for_each_n(y, 48 * kColumns, [](double& v) { v *= 1.1; }); }),
                  48);
      }
}

}  // namespace plumbline::testing
