// What elementwise primitives compute, as functors: `value` and the partial derivatives, given the operands and the
// result t. One source for host and device (the CPU loops and the CUDA kernels instantiate the same types).
//
// A product with a derivative goes through `pull`: 0 * infinity is 0 only where the cotangent is exactly 0.
#pragma once

#include <cmath>

// PLUMBLINE_ROW: a template over `Team` (kernels/loop.h), whose functions belong to one side.
#if defined(__CUDACC__)
#define PLUMBLINE_HOST_DEVICE __host__ __device__
#define PLUMBLINE_ROW                                    \
  _Pragma("nv_exec_check_disable") template <class Team> \
  __host__ __device__
#else
#define PLUMBLINE_HOST_DEVICE
#define PLUMBLINE_ROW template <class Team>
#endif

namespace plumbline::scalar {

PLUMBLINE_HOST_DEVICE inline double pull(double cotangent, double derivative) {
  return cotangent == 0 ? 0.0 : cotangent * derivative;
}

// Name, value, derivative, lower end of the domain (upper ends are infinite).
#define PLUMBLINE_UNARY_ON(Name, domain_low, value_expression, derivative_expression)                      \
  struct Name {                                                                                            \
    static constexpr double kDomainLow = domain_low;                                                       \
    PLUMBLINE_HOST_DEVICE static double value(double a) { return value_expression; }                       \
    PLUMBLINE_HOST_DEVICE static double derivative([[maybe_unused]] double a, [[maybe_unused]] double t) { \
      return derivative_expression;                                                                        \
    }                                                                                                      \
  };

#define PLUMBLINE_UNARY(Name, value_expression, derivative_expression) \
  PLUMBLINE_UNARY_ON(Name, -__builtin_inf(), value_expression, derivative_expression)

// Value and both partial derivatives.
#define PLUMBLINE_BINARY(Name, value_expression, first_expression, second_expression)                \
  struct Name {                                                                                      \
    PLUMBLINE_HOST_DEVICE static double value(double a, double b) { return value_expression; }       \
    PLUMBLINE_HOST_DEVICE static double first([[maybe_unused]] double a, [[maybe_unused]] double b,  \
                                              [[maybe_unused]] double t) {                           \
      return first_expression;                                                                       \
    }                                                                                                \
    PLUMBLINE_HOST_DEVICE static double second([[maybe_unused]] double a, [[maybe_unused]] double b, \
                                               [[maybe_unused]] double t) {                          \
      return second_expression;                                                                      \
    }                                                                                                \
  };

// Decisions and steps: a value alone, whose derivative is 0 wherever it has one.
#define PLUMBLINE_FLAT_UNARY(Name, value_expression)                                 \
  struct Name {                                                                      \
    PLUMBLINE_HOST_DEVICE static double value(double a) { return value_expression; } \
  };
#define PLUMBLINE_FLAT_BINARY(Name, value_expression)                                          \
  struct Name {                                                                                \
    PLUMBLINE_HOST_DEVICE static double value(double a, double b) { return value_expression; } \
  };

// From e = exp(-|a|), which cannot overflow.
PLUMBLINE_HOST_DEVICE inline double sigmoid_from(double a, double e) { return (a >= 0 ? 1.0 : e) / (1.0 + e); }
PLUMBLINE_HOST_DEVICE inline double sigmoid(double a) { return sigmoid_from(a, std::exp(-std::fabs(a))); }

PLUMBLINE_HOST_DEVICE inline double sign(double a) { return a > 0 ? 1.0 : (a < 0 ? -1.0 : 0.0); }

PLUMBLINE_HOST_DEVICE inline double pow_first(double a, double b) { return b == 0 ? 0.0 : b * std::pow(a, b - 1); }

// d/db a^b = a^b log a; 0^b is 0 for all b > 0 and 1 at b = 0.
PLUMBLINE_HOST_DEVICE inline double pow_second(double a, double b, double t) {
  return a == 0 && b >= 0 ? 0.0 : t * std::log(a);
}

// One exponent for all elements, and a small integer: products, to 1.5 ULP.
PLUMBLINE_HOST_DEVICE inline bool is_small_power(double b) { return b == 2 || b == 3 || b == 1 || b == -1; }
PLUMBLINE_HOST_DEVICE inline double small_power(double a, double b) {
  return b == 2 ? a * a : b == 3 ? a * a * a : b == 1 ? a : 1 / a;
}

// a / (a^2 + b^2), without its overflow; unbounded at the origin.
PLUMBLINE_HOST_DEVICE inline double over_square(double a, double b) {
  if (a == 0 && b == 0) return __builtin_inf();
  const bool wide = std::fabs(a) >= std::fabs(b);
  const double ratio = wide ? b / a : a / b;
  return wide ? 1 / (a + b * ratio) : ratio / (b + a * ratio);
}

// A NaN operand wins.
PLUMBLINE_HOST_DEVICE inline bool takes_first_max(double a, double b) { return a >= b || a != a; }
PLUMBLINE_HOST_DEVICE inline bool takes_first_min(double a, double b) { return a <= b || a != a; }

PLUMBLINE_UNARY(Identity, a, 1.0)
PLUMBLINE_UNARY(Neg, -a, -1.0)
PLUMBLINE_UNARY(Abs, std::fabs(a), sign(a))
PLUMBLINE_FLAT_UNARY(Sign, sign(a))
PLUMBLINE_UNARY(Exp, std::exp(a), t)
PLUMBLINE_UNARY(Expm1, std::expm1(a), t + 1.0)
PLUMBLINE_UNARY_ON(Log, 0.0, std::log(a), 1.0 / a)
PLUMBLINE_UNARY_ON(Log1p, -1.0, std::log1p(a), 1.0 / (1.0 + a))
PLUMBLINE_UNARY_ON(Sqrt, 0.0, std::sqrt(a), 0.5 / t)
PLUMBLINE_UNARY_ON(Rsqrt, 0.0, 1.0 / std::sqrt(a), -0.5 * t / a)
PLUMBLINE_UNARY(Reciprocal, 1.0 / a, -t* t)
PLUMBLINE_UNARY(Sin, std::sin(a), std::cos(a))
PLUMBLINE_UNARY(Cos, std::cos(a), -std::sin(a))
PLUMBLINE_UNARY(Tanh, std::tanh(a), 1.0 - t * t)
PLUMBLINE_UNARY(Erf, std::erf(a), 1.1283791670955126 * std::exp(-a * a))  // 2 / sqrt(pi)
PLUMBLINE_UNARY(Sigmoid, sigmoid(a), t*(1.0 - t))
PLUMBLINE_FLAT_UNARY(Floor, std::floor(a))
PLUMBLINE_FLAT_UNARY(Ceil, std::ceil(a))
PLUMBLINE_FLAT_UNARY(Round, std::nearbyint(a))  // Ties to even.
PLUMBLINE_FLAT_UNARY(Trunc, std::trunc(a))
PLUMBLINE_FLAT_UNARY(IsFinite, a - a == 0 ? 1.0 : 0.0)
PLUMBLINE_FLAT_UNARY(LogicalNot, a == 0 ? 1.0 : 0.0)

PLUMBLINE_BINARY(Add, a + b, 1.0, 1.0)
PLUMBLINE_BINARY(Sub, a - b, 1.0, -1.0)
PLUMBLINE_BINARY(Mul, a* b, b, a)
PLUMBLINE_BINARY(Div, a / b, 1.0 / b, -t / b)
PLUMBLINE_BINARY(Pow, std::pow(a, b), pow_first(a, b), pow_second(a, b, t))
PLUMBLINE_BINARY(Atan2, std::atan2(a, b), over_square(b, a), -over_square(a, b))
PLUMBLINE_BINARY(Maximum, takes_first_max(a, b) ? a : b, takes_first_max(a, b) ? 1.0 : 0.0,
                 takes_first_max(a, b) ? 0.0 : 1.0)
PLUMBLINE_BINARY(Minimum, takes_first_min(a, b) ? a : b, takes_first_min(a, b) ? 1.0 : 0.0,
                 takes_first_min(a, b) ? 0.0 : 1.0)
PLUMBLINE_BINARY(Fmod, std::fmod(a, b), 1.0, -std::trunc(a / b))
PLUMBLINE_FLAT_BINARY(Less, a < b ? 1.0 : 0.0)
PLUMBLINE_FLAT_BINARY(LessEqual, a <= b ? 1.0 : 0.0)
PLUMBLINE_FLAT_BINARY(Greater, a > b ? 1.0 : 0.0)
PLUMBLINE_FLAT_BINARY(GreaterEqual, a >= b ? 1.0 : 0.0)
PLUMBLINE_FLAT_BINARY(Equal, a == b ? 1.0 : 0.0)
PLUMBLINE_FLAT_BINARY(NotEqual, a != b ? 1.0 : 0.0)
PLUMBLINE_FLAT_BINARY(LogicalAnd, a != 0 && b != 0 ? 1.0 : 0.0)
PLUMBLINE_FLAT_BINARY(LogicalOr, a != 0 || b != 0 ? 1.0 : 0.0)

struct Select {
  PLUMBLINE_HOST_DEVICE static double value(double c, double a, double b) { return c != 0 ? a : b; }
};

struct Copy {
  PLUMBLINE_HOST_DEVICE double operator()(double x) const { return x; }
};

// F::value as an object, for loops to inline.
template <class F>
struct Value {
  PLUMBLINE_HOST_DEVICE double operator()(double a) const { return F::value(a); }
  PLUMBLINE_HOST_DEVICE double operator()(double a, double b) const { return F::value(a, b); }
  PLUMBLINE_HOST_DEVICE double operator()(double a, double b, double c) const { return F::value(a, b, c); }
};

// What reductions combine with, and start from.
struct Sum {
  static constexpr double kStart = 0;
  PLUMBLINE_HOST_DEVICE static double combine(double a, double b) { return a + b; }
};
// A NaN wins, as it does in every framework.
struct Max {
  static constexpr double kStart = -__builtin_inf();
  PLUMBLINE_HOST_DEVICE static double combine(double a, double b) { return ((a == a) & !(b <= a)) != 0 ? b : a; }
};
struct Min {
  static constexpr double kStart = __builtin_inf();
  PLUMBLINE_HOST_DEVICE static double combine(double a, double b) { return ((a == a) & !(b >= a)) != 0 ? b : a; }
};

#undef PLUMBLINE_UNARY
#undef PLUMBLINE_UNARY_ON
#undef PLUMBLINE_BINARY
#undef PLUMBLINE_FLAT_UNARY
#undef PLUMBLINE_FLAT_BINARY

}  // namespace plumbline::scalar
