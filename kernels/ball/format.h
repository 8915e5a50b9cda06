// Number formats as data, and rounding into them.
//
// A binary format is its precision p (significand bits, the hidden one included) and its exponent range; everything
// else (unit roundoff, largest finite, smallest subnormal) follows. Integers and booleans are held exactly in fp64
// (int64 exactly below 2^53).
//
// The common mistake: unit_roundoff is 2^-p, half of machine epsilon 2^(1-p).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace plumbline {

// Values equal plumbline.v1.DType.
enum class Format : std::uint8_t {
  kUnknown = 0,
  kFloat64 = 1,
  kFloat32 = 2,
  kFloat16 = 3,
  kBFloat16 = 4,
  kInt64 = 5,
  kInt32 = 6,
  kInt16 = 7,
  kInt8 = 8,
  kUInt8 = 9,
  kBool = 10,
};

struct FormatTraits {
  Format format;
  std::string_view name;  // "fp32", "int64", ...
  int bytes;              // Storage per element.
  int precision;          // Significand bits with the hidden one; 0 for integers.
  int exponent_min;       // Smallest normal is 2^exponent_min; 0 for integers.
  int exponent_max;       // Largest finite is (2 - 2^(1-p)) 2^exponent_max; 0 for integers.
};

// Traits of a format; kUnknown has 0 bytes.
const FormatTraits& traits(Format format);
std::optional<Format> format_by_name(std::string_view name);

inline bool is_float(Format format) { return traits(format).precision > 0; }
double unit_roundoff(Format format);            // 2^-p; 0 for integers.
double half_smallest_subnormal(Format format);  // eta: absolute rounding error in the subnormal range; 0 for integers.
double smallest_normal(Format format);
double largest_finite(Format format);  // Infinite for integers, which never round.

// Rounds to nearest, ties to even, with subnormals and overflow to infinity as IEEE 754 defines them. Exact (one
// rounding) for every double. Integer formats return x unchanged. NaN and infinities pass through.
double round_to(Format format, double x);

// Decodes `count` little-endian elements at `bytes` into fp64, exactly. Encodes by round_to.
void decode(Format format, const void* bytes, std::int64_t count, double* out);
void encode(Format format, const double* values, std::int64_t count, void* out);

}  // namespace plumbline
