// Values that a function documented to N ULP may return: within (N + 1/2) ulp(t) of the exact t, and the profile's
// absolute part.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/primitive/primitive.h"
#include "tests/soundness/superaccumulator.h"

namespace plumbline::soundness {

// ulp of t in T: 2^(e - p + 1) for 2^e <= |t| < 2^(e+1), no less than the smallest subnormal.
template <class T>
double ulp_of(double t) {
  const double binade = std::bit_cast<double>(std::bit_cast<std::uint64_t>(t) & 0x7ff0000000000000U);
  const double ulp = binade * static_cast<double>(std::numeric_limits<T>::epsilon());
  const double lowest = static_cast<double>(std::numeric_limits<T>::denorm_min());
  return ulp > lowest ? ulp : lowest;
}

// What a profile says of a function, in T.
template <class T>
struct Promise {
  Promise(Function function, const Profile& profile) : error(profile.functions[static_cast<int>(function)]) {
    half = profile.rounding == Rounding::kNearest ? 0.5 : 1;
    if (std::numeric_limits<T>::digits == 24) return;
    error.absolute *= 0x1p-29;
    error.slope = 0;
  }
  bool correctly_rounded() const { return error.ulp == 0 && half == 0.5 && error.slope == 0; }

  // How far the result may lie from t = f(x).
  double reach(double t, double x = 0) const {
    if (!(std::fabs(x) <= error.argument_max)) return error.high - error.low;
    // Fast exponentials: 0 or overflow, right, where that of |x| has no inverse.
    const double farthest = -std::log(static_cast<double>(std::numeric_limits<T>::denorm_min()) / 2);
    return (error.ulp + half + error.slope * std::min(std::fabs(x), farthest)) * ulp_of<T>(t) + error.absolute;
  }

  FunctionError error;
  double half;
};

// The value of T next to t + choice * reach that is within reach of t. `choice` in [-1, 1].
template <class T>
inline T within(const Exact& t, double reach, double ulp, float choice) {
  const double offset = static_cast<double>(choice) * reach;
  const T nearest = static_cast<T>(t.value);
  const T far = static_cast<T>(t.value + (t.rest + offset));
  const T back = static_cast<T>(t.value + (t.rest + (offset - std::copysign(ulp, offset))));
  const auto legal = [&](T x) { return std::fabs((static_cast<double>(x) - t.value) - t.rest) <= reach; };
  return legal(far) ? far : (legal(back) ? back : nearest);
}

// Mostly the ends of [-1, 1].
inline float sharpened(float choice) { return choice > 0.5F ? 1.0F : (choice < -0.5F ? -1.0F : choice); }

}  // namespace plumbline::soundness
