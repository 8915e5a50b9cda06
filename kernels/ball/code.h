// What the numbers of a format are worth, as they are stored: one source for host and device.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/ball/format.h"
#include "kernels/ball/scalar.h"

namespace plumbline::code {

PLUMBLINE_HOST_DEVICE inline float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7fffU;
  if (magnitude >= 0x7c00U) {  // Infinity, NaN: keep the payload.
    return std::bit_cast<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
  }
  // Shifted into place the exponent is 112 too small; the product is exact, subnormals included.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
}

PLUMBLINE_HOST_DEVICE inline float e4m3_to_float(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80U) << 24;
  const std::uint32_t magnitude = code & 0x7fU;
  if (magnitude == 0x7fU) return std::bit_cast<float>(sign | 0x7fc00000U);
  // Shifted into place the exponent is 120 too small; the product is exact, subnormals included.
  const float value = std::bit_cast<float>(magnitude << 20) * 0x1p120F;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
}

template <class T>
struct Plain {
  using Stored = T;
  PLUMBLINE_HOST_DEVICE static double value(T v) { return static_cast<double>(v); }
};
struct Float16 {
  using Stored = std::uint16_t;
  PLUMBLINE_HOST_DEVICE static double value(std::uint16_t v) { return double{half_to_float(v)}; }
};
struct BFloat16 {
  using Stored = std::uint16_t;
  PLUMBLINE_HOST_DEVICE static double value(std::uint16_t v) {
    return double{std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16)};
  }
};
struct Float8E4M3 {
  using Stored = std::uint8_t;
  PLUMBLINE_HOST_DEVICE static double value(std::uint8_t v) { return double{e4m3_to_float(v)}; }
};
struct Float8E5M2 {  // The upper byte of an fp16 number.
  using Stored = std::uint8_t;
  PLUMBLINE_HOST_DEVICE static double value(std::uint8_t v) {
    return double{half_to_float(static_cast<std::uint16_t>(v << 8))};
  }
};
struct Bool {
  using Stored = std::uint8_t;
  PLUMBLINE_HOST_DEVICE static double value(std::uint8_t v) { return v != 0 ? 1.0 : 0.0; }
};

// visitor(code) of a format that is stored; false: it never is (kTf32, kUnknown).
template <class Visitor>
bool visit(Format format, const Visitor& visitor) {
  switch (format) {
    case Format::kFloat64:
      visitor(Plain<double>{});
      return true;
    case Format::kFloat32:
      visitor(Plain<float>{});
      return true;
    case Format::kFloat16:
      visitor(Float16{});
      return true;
    case Format::kBFloat16:
      visitor(BFloat16{});
      return true;
    case Format::kInt64:
      visitor(Plain<std::int64_t>{});
      return true;
    case Format::kInt32:
      visitor(Plain<std::int32_t>{});
      return true;
    case Format::kInt16:
      visitor(Plain<std::int16_t>{});
      return true;
    case Format::kInt8:
      visitor(Plain<std::int8_t>{});
      return true;
    case Format::kUInt8:
      visitor(Plain<std::uint8_t>{});
      return true;
    case Format::kBool:
      visitor(Bool{});
      return true;
    case Format::kFloat8E4M3:
      visitor(Float8E4M3{});
      return true;
    case Format::kFloat8E5M2:
      visitor(Float8E5M2{});
      return true;
    case Format::kTf32:
    case Format::kUnknown:
      break;
  }
  return false;
}

}  // namespace plumbline::code
