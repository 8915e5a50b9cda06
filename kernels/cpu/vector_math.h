// Elementary functions over contiguous arrays, to 1.0 ULP: SLEEF's u10 functions, as wide as the build allows; without
// SLEEF the C library's. A value depends on its operand alone, never on its place in the array, so equal inputs have
// bitwise equal results. `out` may be the input.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/ball/scalar.h"

namespace plumbline::cpu {

using VectorFunction = void (*)(const double* x, double* out, std::int64_t n);

void vector_exp(const double* x, double* out, std::int64_t n);
void vector_expm1(const double* x, double* out, std::int64_t n);
void vector_log(const double* x, double* out, std::int64_t n);
void vector_log1p(const double* x, double* out, std::int64_t n);
void vector_sin(const double* x, double* out, std::int64_t n);
void vector_cos(const double* x, double* out, std::int64_t n);
void vector_tanh(const double* x, double* out, std::int64_t n);
void vector_erf(const double* x, double* out, std::int64_t n);
void vector_sigmoid(const double* x, double* out, std::int64_t n);
void vector_pow(const double* x, const double* y, double* out, std::int64_t n);
void vector_atan2(const double* y, const double* x, double* out, std::int64_t n);

// That of a scalar functor of one operand, if it has one. (Whether is told by the type: with sanitizers the address of
// a function is no constant that could be compared.)
template <class F>
inline constexpr auto kVector = nullptr;
template <class F>
inline constexpr bool kHasVector = !std::is_null_pointer_v<std::remove_const_t<decltype(kVector<F>)>>;
template <>
inline constexpr VectorFunction kVector<scalar::Exp> = vector_exp;
template <>
inline constexpr VectorFunction kVector<scalar::Expm1> = vector_expm1;
template <>
inline constexpr VectorFunction kVector<scalar::Log> = vector_log;
template <>
inline constexpr VectorFunction kVector<scalar::Log1p> = vector_log1p;
template <>
inline constexpr VectorFunction kVector<scalar::Sin> = vector_sin;
template <>
inline constexpr VectorFunction kVector<scalar::Cos> = vector_cos;
template <>
inline constexpr VectorFunction kVector<scalar::Tanh> = vector_tanh;
template <>
inline constexpr VectorFunction kVector<scalar::Erf> = vector_erf;
template <>
inline constexpr VectorFunction kVector<scalar::Sigmoid> = vector_sigmoid;

}  // namespace plumbline::cpu
