#include "kernels/cpu/blas_check.h"

#include <cblas.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace plumbline::cpu {
namespace {

CBLAS_TRANSPOSE transposed(bool yes) { return yes ? CblasTrans : CblasNoTrans; }

void dgemm(bool ta, bool tb, int m, int n, int k, const double* a, const double* b, bool accumulate, double* c) {
  cblas_dgemm(CblasRowMajor, transposed(ta), transposed(tb), m, n, k, 1.0, a, ta ? m : k, b, tb ? k : n,
              accumulate ? 1.0 : 0.0, c, n);
}

void sgemm(bool ta, bool tb, int m, int n, int k, const float* a, const float* b, bool accumulate, float* c) {
  cblas_sgemm(CblasRowMajor, transposed(ta), transposed(tb), m, n, k, 1.0F, a, ta ? m : k, b, tb ? k : n,
              accumulate ? 1.0F : 0.0F, c, n);
}

struct Sizes {
  int m, n, k;
};
// Ends of kernels' blocks of 1 to 24 rows and columns and of unrolled sums; one beyond what small products are.
constexpr auto kSizes = std::to_array<Sizes>({{1, 1, 1},
                                              {1, 7, 40},
                                              {2, 3, 5},
                                              {3, 16, 8},
                                              {4, 4, 33},
                                              {5, 9, 17},
                                              {8, 1, 64},
                                              {9, 33, 4},
                                              {12, 24, 31},
                                              {16, 8, 15},
                                              {17, 5, 128},
                                              {25, 31, 7},
                                              {32, 12, 3},
                                              {49, 48, 65},
                                              {64, 63, 32},
                                              {70, 41, 260}});

// Integers up to 7, which are not the same in any two places that lie near each other.
template <class Real>
std::vector<Real> integers(int count, std::uint32_t state) {
  std::vector<Real> values(static_cast<std::size_t>(count));
  for (Real& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<Real>(static_cast<int>(state >> 28) - 8);
  }
  return values;
}

std::string shape(bool transposed, int rows, int columns) {
  return std::to_string(rows) + " x " + std::to_string(columns) + (transposed ? " (transposed)" : "");
}

template <class Real>
std::string wrong(Multiply<Real> multiply, const char* precision) {
  for (const auto& [m, n, k] : kSizes) {
    for (int form = 0; form < 8; ++form) {
      const bool ta = (form & 1) != 0, tb = (form & 2) != 0, accumulate = (form & 4) != 0;
      const std::vector<Real> a = integers<Real>(m * k, 1), b = integers<Real>(k * n, 2),
                              before = integers<Real>(m * n, 3);
      std::vector<Real> c = before;
      multiply(ta, tb, m, n, k, a.data(), b.data(), accumulate, c.data());
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
          const auto at = static_cast<std::size_t>(i * n + j);
          Real sum = accumulate ? before[at] : 0;
          for (int p = 0; p < k; ++p)
            sum += a[static_cast<std::size_t>(ta ? p * m + i : i * k + p)] *
                   b[static_cast<std::size_t>(tb ? j * k + p : p * n + j)];
          if (c[at] == sum) continue;
          return std::string(precision) + ", " + shape(ta, m, k) + " by " + shape(tb, k, n) +
                 (accumulate ? ", added to what was there" : "") + ": expected " + std::to_string(sum) + " at row " +
                 std::to_string(i) + ", column " + std::to_string(j) + ", found " + std::to_string(c[at]);
        }
      }
    }
  }
  return {};
}

}  // namespace

std::string wrong_products(Multiply<double> in_double, Multiply<float> in_single) {
  std::string found = wrong(in_double, "fp64");
  return found.empty() ? wrong(in_single, "fp32") : found;
}

std::string wrong_products() {
  openblas_set_num_threads(1);  // As all our products (gemm.h).
  return wrong_products(dgemm, sgemm);
}

std::string blas_kernels() { return openblas_get_corename(); }

Vectors processor_vectors() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd"))
    return Vectors::kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Vectors::kAvx2;
#endif
  return Vectors::kNarrow;
}

std::string better_kernels(std::string_view chosen, bool multiply_wrongly, Vectors vectors) {
  constexpr std::string_view kNarrow[] = {"Katmai",       "Coppermine", "Northwood",  "Prescott", "Banias", "Atom",
                                          "Core2",        "Penryn",     "Dunnington", "Nehalem",  "Athlon", "Opteron",
                                          "Opteron_SSE3", "Barcelona",  "Bobcat",     "Nano",     "Generic"};
  if (vectors == Vectors::kNarrow) return "";
  if (multiply_wrongly) return chosen == "Haswell" ? "" : "Haswell";
  if (std::ranges::find(kNarrow, chosen) == std::end(kNarrow)) return "";
  return vectors == Vectors::kAvx512 ? "SkylakeX" : "Haswell";
}

}  // namespace plumbline::cpu
