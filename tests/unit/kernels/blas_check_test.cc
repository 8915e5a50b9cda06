#include "kernels/cpu/blas_check.h"

#include <gtest/gtest.h>

#include <string>

namespace plumbline::cpu {
namespace {

// Right but for what `Fault` makes of the last element of a result.
template <class Real, void (*kFault)(int m, int n, int k, Real* last)>
void multiply(bool ta, bool tb, int m, int n, int k, const Real* a, const Real* b, bool accumulate, Real* c) {
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      Real sum = accumulate ? c[i * n + j] : 0;
      for (int p = 0; p < k; ++p) sum += (ta ? a[p * m + i] : a[i * k + p]) * (tb ? b[j * k + p] : b[p * n + j]);
      c[i * n + j] = sum;
    }
  kFault(m, n, k, c + m * n - 1);
}

template <class Real>
void none(int /*m*/, int /*n*/, int /*k*/, Real* /*last*/) {}
void odd_columns(int /*m*/, int n, int /*k*/, float* last) {
  if (n % 8 == 7) *last += 1;
}
void long_sums(int /*m*/, int /*n*/, int k, double* last) {
  if (k > 256) *last -= 1;
}

TEST(BlasCheck, FindsProductsThatAreWrongAtTheEndsOfBlocks) {
  EXPECT_EQ(wrong_products(multiply<double, none<double>>, multiply<float, none<float>>), "");
  const std::string narrow = wrong_products(multiply<double, none<double>>, multiply<float, odd_columns>);
  EXPECT_TRUE(narrow.starts_with("fp32, 1 x 40 by 40 x 7: expected ")) << narrow;
  EXPECT_NE(narrow.find(" at row 0, column 6, found "), std::string::npos) << narrow;
  const std::string wide = wrong_products(multiply<double, long_sums>, multiply<float, none<float>>);
  EXPECT_TRUE(wide.starts_with("fp64, 70 x 260 by 260 x 41: expected ")) << wide;
}

TEST(BlasCheck, KernelsOfAnotherAgeAreLeftWhereTheProcessorCanDoMore) {
  for (const char* chosen : {"Prescott", "Nehalem", "Generic"}) {
    EXPECT_EQ(better_kernels(chosen, false, Vectors::kAvx512), "SkylakeX");
    EXPECT_EQ(better_kernels(chosen, false, Vectors::kAvx2), "Haswell");
    EXPECT_EQ(better_kernels(chosen, false, Vectors::kNarrow), "");
  }
  for (const char* chosen : {"Haswell", "Zen", "SkylakeX", "Sapphirerapids"})
    EXPECT_EQ(better_kernels(chosen, false, Vectors::kAvx512), "");
}

TEST(BlasCheck, KernelsThatMultiplyWronglyAreLeft) {
  for (const char* chosen : {"Prescott", "SkylakeX", "Sapphirerapids"}) {
    EXPECT_EQ(better_kernels(chosen, true, Vectors::kAvx512), "Haswell");
    EXPECT_EQ(better_kernels(chosen, true, Vectors::kNarrow), "");
  }
  EXPECT_EQ(better_kernels("Haswell", true, Vectors::kAvx512), "");
}

TEST(BlasCheck, TheInstalledLibraryMultipliesRightly) {
  EXPECT_EQ(wrong_products(), "") << blas_kernels();
  EXPECT_NE(blas_kernels(), "");
}

}  // namespace
}  // namespace plumbline::cpu
