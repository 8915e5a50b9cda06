#include "kernels/ball/format.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/ball/code.h"
#include "kernels/ball/round.h"
#include "kernels/cpu/parallel.h"

namespace plumbline {
namespace {

constexpr FormatTraits kFormats[] = {
    {Format::kUnknown, "unknown", 0, 0, 0, 0},    {Format::kFloat64, "fp64", 8, 53, -1022, 1023},
    {Format::kFloat32, "fp32", 4, 24, -126, 127}, {Format::kFloat16, "fp16", 2, 11, -14, 15},
    {Format::kBFloat16, "bf16", 2, 8, -126, 127}, {Format::kInt64, "int64", 8, 0, 0, 0},
    {Format::kInt32, "int32", 4, 0, 0, 0},        {Format::kInt16, "int16", 2, 0, 0, 0},
    {Format::kInt8, "int8", 1, 0, 0, 0},          {Format::kUInt8, "uint8", 1, 0, 0, 0},
    {Format::kBool, "bool", 1, 0, 0, 0},          {Format::kFloat8E4M3, "e4m3", 1, 4, -6, 8, false},
    {Format::kFloat8E5M2, "e5m2", 1, 3, -14, 15}, {Format::kTf32, "tf32", 4, 11, -126, 127},
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What the format holds for a value that is too large, infinite or NaN.
double overflowed(const FormatTraits& t, double x) {
  return x != x ? x : std::copysign(t.infinities ? kInfinity : largest_finite(t), x);
}

// The float must be one that the format holds exactly, or NaN.
std::uint8_t float_to_e4m3(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>(bits >> 24 & 0x80U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return sign | 0x7fU;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p-120F;
  return sign | static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(scaled) >> 20);
}

// The float must be one that the format holds exactly, infinity or NaN.
std::uint16_t float_to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return sign | 0x7e00U | static_cast<std::uint16_t>(magnitude >> 13 & 0x1ffU);
  if (magnitude == 0x7f800000U) return sign | 0x7c00U;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p-112F;
  return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(scaled) >> 13);
}

struct Decode {
  const unsigned char* bytes;
  std::int64_t count;
  double* out;

  template <class Code>
  void operator()(Code) const {
    using Stored = typename Code::Stored;
    cpu::parallel_for(count, cpu::kGrain, [in = bytes, to = out](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        Stored value;
        std::memcpy(&value, in + i * static_cast<std::int64_t>(sizeof(Stored)), sizeof(Stored));
        to[i] = Code::value(value);
      }
    });
  }
};

struct FindNonFinite {
  const unsigned char* bytes;
  std::int64_t count;
  std::atomic<bool>* found;

  template <class Code>
  void operator()(Code) const {
    using Stored = typename Code::Stored;
    cpu::parallel_for(count, cpu::kGrain, [in = bytes, to = found](std::int64_t begin, std::int64_t end) {
      unsigned here = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        Stored value;
        std::memcpy(&value, in + i * static_cast<std::int64_t>(sizeof(Stored)), sizeof(Stored));
        const double x = Code::value(value);
        here |= x - x == 0 ? 0U : 1U;
      }
      if (here != 0) *to = true;
    });
  }
};

template <class T, class Convert>
void encode_as(const double* values, std::int64_t count, void* bytes, Convert convert) {
  auto* const to = static_cast<unsigned char*>(bytes);
  cpu::parallel_for(count, cpu::kGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T value = convert(values[i]);
      std::memcpy(to + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
    }
  });
}

// Truncates, saturates, and makes NaN zero: never undefined.
template <class T>
T to_integer(double x) {
  if (x != x) return 0;
  if (x <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (x >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(x);
}

}  // namespace

const FormatTraits& traits(Format format) {
  const auto index = static_cast<std::size_t>(format);
  return kFormats[index < std::size(kFormats) ? index : 0];
}

std::optional<Format> format_by_name(std::string_view name) {
  for (const FormatTraits& t : kFormats) {
    if (t.format != Format::kUnknown && t.name == name) return t.format;
  }
  return std::nullopt;
}

double unit_roundoff(Format format) {
  const FormatTraits& t = traits(format);
  return t.precision > 0 ? std::ldexp(1.0, -t.precision) : 0.0;
}

// For fp64 half the smallest subnormal is no double: the smallest subnormal itself, rounded up.
double half_smallest_subnormal(Format format) {
  const FormatTraits& t = traits(format);
  if (t.precision == 0) return 0.0;
  return format == Format::kFloat64 ? std::numeric_limits<double>::denorm_min()
                                    : std::ldexp(1.0, t.exponent_min - t.precision);
}

double smallest_normal(Format format) {
  const FormatTraits& t = traits(format);
  return t.precision > 0 ? std::ldexp(1.0, t.exponent_min) : 0.0;
}

double largest_finite(const FormatTraits& t) {
  return std::ldexp(2.0 - std::ldexp(t.infinities ? 1.0 : 2.0, 1 - t.precision), t.exponent_max);
}

double largest_finite(Format format) {
  const FormatTraits& t = traits(format);
  return t.precision > 0 ? largest_finite(t) : kInfinity;
}

double round_to(Format format, double x) { return RoundTo(format)(x); }

double round_to(Format format, double x, Rounding rounding, double draw) {
  const FormatTraits& t = traits(format);
  if (rounding == Rounding::kNearest || t.precision == 0) return round_to(format, x);
  if (!(std::fabs(x) < kInfinity)) return overflowed(t, x);
  if (x == 0) return x;
  const int quantum = std::max(std::ilogb(x), t.exponent_min) - t.precision + 1;
  const double scaled = std::ldexp(std::fabs(x), -quantum), whole = std::floor(scaled);
  const bool up = rounding == Rounding::kStochastic && draw < scaled - whole;
  const double y = std::copysign(std::ldexp(up ? whole + 1 : whole, quantum), x);
  if (std::fabs(y) <= largest_finite(t)) return y;
  return rounding == Rounding::kTowardZero ? std::copysign(largest_finite(t), x) : overflowed(t, y);
}

double flush(Format format, double x) { return std::fabs(x) < smallest_normal(format) ? std::copysign(0.0, x) : x; }

void decode(Format format, const void* bytes, std::int64_t count, double* out) {
  if (!code::visit(format, Decode{static_cast<const unsigned char*>(bytes), count, out}))
    std::fill_n(out, count, std::numeric_limits<double>::quiet_NaN());
}

bool finite(Format format, const void* bytes, std::int64_t count) {
  std::atomic<bool> found = false;
  return code::visit(format, FindNonFinite{static_cast<const unsigned char*>(bytes), count, &found}) && !found;
}

void encode(Format format, const double* values, std::int64_t count, void* out) {
  const RoundTo round(format);
  switch (format) {
    case Format::kFloat64:
      return encode_as<double>(values, count, out, [](double v) { return v; });
    case Format::kFloat32:
      return encode_as<float>(values, count, out, [](double v) { return static_cast<float>(v); });
    case Format::kFloat16:
      return encode_as<std::uint16_t>(values, count, out,
                                      [round](double v) { return float_to_half(static_cast<float>(round(v))); });
    case Format::kBFloat16:
      return encode_as<std::uint16_t>(values, count, out, [round](double v) {
        const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(round(v)));
        return static_cast<std::uint16_t>(bits >> 16 | (v != v ? 0x40U : 0U));
      });
    case Format::kInt64:
      return encode_as<std::int64_t>(values, count, out, to_integer<std::int64_t>);
    case Format::kInt32:
      return encode_as<std::int32_t>(values, count, out, to_integer<std::int32_t>);
    case Format::kInt16:
      return encode_as<std::int16_t>(values, count, out, to_integer<std::int16_t>);
    case Format::kInt8:
      return encode_as<std::int8_t>(values, count, out, to_integer<std::int8_t>);
    case Format::kUInt8:
      return encode_as<std::uint8_t>(values, count, out, to_integer<std::uint8_t>);
    case Format::kBool:
      return encode_as<std::uint8_t>(values, count, out,
                                     [](double v) { return static_cast<std::uint8_t>(v != 0 ? 1 : 0); });
    case Format::kFloat8E4M3:
      return encode_as<std::uint8_t>(values, count, out,
                                     [round](double v) { return float_to_e4m3(static_cast<float>(round(v))); });
    case Format::kFloat8E5M2:
      return encode_as<std::uint8_t>(values, count, out, [round](double v) {
        const std::uint16_t half = float_to_half(static_cast<float>(round(v)));
        return static_cast<std::uint8_t>(v != v ? half >> 8 | 0x7fU : half >> 8);
      });
    case Format::kTf32:
    case Format::kUnknown:
      return;
  }
}

}  // namespace plumbline
