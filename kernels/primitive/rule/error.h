// How far the rounding of one element moves it: one rule for each way in which profiles state it.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/primitive/absorb.h"
#include "kernels/primitive/enclosure.h"
#include "kernels/primitive/primitive.h"

namespace plumbline::primitive::element {

// The local error of a result t whose first operand is a, with the formats and the profile already in: magnitudes only.
struct LocalError {
  bool none = true;  // Exactly zero.
  bool of_argument = false;
  // Otherwise slope |t| + offset.
  double slope = 0, offset = 0;
  // Where it is of the argument, (relative + per_argument min(|a|, reach)) (|t| + eta) + absolute as computed, and
  // `width` beyond |a| = limit; then what storing it adds, u (|t| + e) + storage.
  double relative = 0, per_argument = 0, reach = 0, eta = 0, absolute = 0, limit = kInfinity, width = 0;
  double u = 0, storage = 0;
  // Of a sum whose second term may stand for infinity: where that absorbs the first it is the result, and in whichever
  // format holds it nothing is rounded. `splits`: 2^(53 - p) + 1 of the narrower format of p bits; 0: there is none.
  bool absorbs = false;
  double splits = 0;

  // Covers the roundings of the bound's own evaluation and, below fp64, of our replay's t, which are smaller than the
  // bound by 2^-29. Where t is infinite the bound is 0 throughout: infinite in fp64, it is infinite on the device too.
  static constexpr double kInflate = 1 + 0x1p-20;

  PLUMBLINE_HOST_DEVICE double of(double t) const { return slope * std::fabs(t) + offset; }
  PLUMBLINE_HOST_DEVICE double of(double a, double t) const {
    if (absorbs && absorbed(a, t) && is_held(t)) return 0;
    const double magnitude = std::fabs(a), result = std::fabs(t);
    const double factor = relative + per_argument * std::min(magnitude, reach);
    const double scaled = factor == 0 ? 0.0 : factor * (result + eta);
    const double e = magnitude <= limit ? scaled + absolute : width;
    if (u == 0) return e * kInflate;
    return result == kInfinity ? 0.0 : (e + (u * (result + e) + storage)) * kInflate;
  }

 private:
  // Veltkamp's splitting gives t rounded to p bits.
  PLUMBLINE_HOST_DEVICE bool is_held(double t) const {
    const double product = splits * t;
    return splits == 0 || product - (product - t) == t;
  }
};

LocalError of_function(Function function, const Arithmetic& arithmetic);

// The rules: a node's local error by its attributes and formats.
struct ErrorRule {
  static constexpr bool kBitwise = false;  // Its result is exact whenever the format of its inputs holds it.
  static constexpr int kSecondSign = 0;    // An addition has the sign of its second operand here.
};

// Nothing is rounded, but for a narrowing of the result.
struct Bitwise : ErrorRule {
  static constexpr bool kBitwise = true;
  static LocalError of(const Attributes& attributes, const Arithmetic& arithmetic);
};

// The same, but a result that is subnormal may be flushed.
struct BitwiseUnlessFlushed : ErrorRule {
  static constexpr bool kBitwise = true;
  static LocalError of(const Attributes& attributes, const Arithmetic& arithmetic);
};

// One rounding; a subnormal sum is exact, and so is one that is the term which absorbs the other, unless the profile
// rounds in another way than to nearest.
struct RoundedSum : ErrorRule {
  static LocalError of(const Attributes& attributes, const Arithmetic& arithmetic);
};
template <int kSign>
struct Addition : RoundedSum {
  static constexpr int kSecondSign = kSign;
};

// One rounding, which may underflow.
struct Multiplication : ErrorRule {
  static LocalError of(const Attributes& attributes, const Arithmetic& arithmetic);
};

// What the profile documents of a function.
template <Function kFunction>
struct ByProfile : ErrorRule {
  static LocalError of(const Attributes&, const Arithmetic& arithmetic) { return of_function(kFunction, arithmetic); }
};

// The same of the quotient that the attributes choose (primitive.h, kDiv).
struct Division : ErrorRule {
  static LocalError of(const Attributes& attributes, const Arithmetic& arithmetic);
};

// The same of the exponential that the attributes choose (primitive.h, kExp).
struct Exponential : ErrorRule {
  static LocalError of(const Attributes& attributes, const Arithmetic& arithmetic);
};

// A profile that flushes subnormal operands to zero moves each by less than the smallest normal, `tiny`: what that can
// do to the result is what the primitive's own enclosure says. Twice that, because an operand that was compared as zero
// may be handed on as it is.
PLUMBLINE_HOST_DEVICE inline double flushed(double x, double tiny) {
  return x != 0 && std::fabs(x) < tiny ? 2 * tiny : 0.0;
}

}  // namespace plumbline::primitive::element
