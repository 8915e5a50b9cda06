#include "kernels/cpu/vector_math.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(PLUMBLINE_HAVE_SLEEF) && defined(__SSE2__)
#define PLUMBLINE_VECTOR_MATH 1
#include <immintrin.h>
#include <sleef.h>
#endif

#include "kernels/ball/scalar.h"

namespace plumbline::cpu {
namespace {

#if defined(PLUMBLINE_VECTOR_MATH) && defined(__AVX512F__)
using Lanes = __m512d;
#define PLUMBLINE_SLEEF(name) Sleef_##name##d8_u10
#elif defined(PLUMBLINE_VECTOR_MATH) && defined(__AVX__)
using Lanes = __m256d;
#define PLUMBLINE_SLEEF(name) Sleef_##name##d4_u10
#elif defined(PLUMBLINE_VECTOR_MATH)
using Lanes = __m128d;
#define PLUMBLINE_SLEEF(name) Sleef_##name##d2_u10
#else
using Lanes = double;
#define PLUMBLINE_SLEEF(name) [](auto... x) { return std::name(x...); }
#endif

constexpr std::int64_t kLanes = sizeof(Lanes) / sizeof(double);

Lanes load(const double* from, std::int64_t n) {
  double padded[kLanes] = {};
  std::memcpy(padded, from, static_cast<std::size_t>(n) * sizeof(double));
  Lanes lanes;
  std::memcpy(&lanes, padded, sizeof lanes);
  return lanes;
}

// f over whole vectors, then over a padded one.
template <class F, class... Inputs>
void apply(const F& f, double* out, std::int64_t n, const Inputs*... inputs) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto whole = [i](const double* from) {
      Lanes lanes;
      std::memcpy(&lanes, from + i, sizeof lanes);
      return lanes;
    };
    const Lanes result = f(whole(inputs)...);
    std::memcpy(out + i, &result, sizeof result);
  }
  if (i < n) {
    const Lanes result = f(load(inputs + i, n - i)...);
    std::memcpy(out + i, &result, static_cast<std::size_t>(n - i) * sizeof(double));
  }
}

}  // namespace

#define PLUMBLINE_VECTOR(name)                                          \
  void vector_##name(const double* x, double* out, std::int64_t n) {    \
    apply([](Lanes v) { return PLUMBLINE_SLEEF(name)(v); }, out, n, x); \
  }
PLUMBLINE_VECTOR(exp)
PLUMBLINE_VECTOR(expm1)
PLUMBLINE_VECTOR(log)
PLUMBLINE_VECTOR(log1p)
PLUMBLINE_VECTOR(sin)
PLUMBLINE_VECTOR(cos)
PLUMBLINE_VECTOR(tanh)
PLUMBLINE_VECTOR(erf)
#undef PLUMBLINE_VECTOR

void vector_pow(const double* x, const double* y, double* out, std::int64_t n) {
  apply([](Lanes a, Lanes b) { return PLUMBLINE_SLEEF(pow)(a, b); }, out, n, x, y);
}

void vector_atan2(const double* y, const double* x, double* out, std::int64_t n) {
  apply([](Lanes a, Lanes b) { return PLUMBLINE_SLEEF(atan2)(a, b); }, out, n, y, x);
}

void vector_sigmoid(const double* x, double* out, std::int64_t n) {
  constexpr std::int64_t kTile = 256;
  double e[kTile];
  for (std::int64_t begin = 0; begin < n; begin += kTile) {
    const std::int64_t length = std::min(kTile, n - begin);
    for (std::int64_t i = 0; i < length; ++i) e[i] = -std::fabs(x[begin + i]);
    vector_exp(e, e, length);
    for (std::int64_t i = 0; i < length; ++i) out[begin + i] = scalar::sigmoid_from(x[begin + i], e[i]);
  }
}

}  // namespace plumbline::cpu
