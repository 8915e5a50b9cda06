// Number formats as data, and rounding into them.
//
// A binary format is its precision p (significand bits, the hidden one included) and its exponent range; everything
// else (unit roundoff, largest finite, smallest subnormal) follows. A format without infinities (e4m3) has one NaN in
// their place and saturates. Integers and booleans are held exactly in fp64 (int64 exactly below 2^53).
//
// The common mistake: unit_roundoff is 2^-p, half of machine epsilon 2^(1-p).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace plumbline {

// Values up to kFloat8E5M2 equal plumbline.v1.DType; what follows is never stored, only computed in.
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
  kFloat8E4M3 = 11,  // torch.float8_e4m3fn
  kFloat8E5M2 = 12,
  kTf32 = 13,
};

inline constexpr Format kLastStored = Format::kFloat8E5M2;

struct FormatTraits {
  Format format;
  std::string_view name;   // "fp32", "int64", ...
  int bytes;               // Storage per element.
  int precision;           // Significand bits with the hidden one; 0 for integers.
  int exponent_min;        // Smallest normal is 2^exponent_min; 0 for integers.
  int exponent_max;        // The largest finite number has it; it is 0 for integers.
  bool infinities = true;  // Otherwise the code above the largest finite number is NaN.
};

// Traits of a format; kUnknown has 0 bytes.
const FormatTraits& traits(Format format);
std::optional<Format> format_by_name(std::string_view name);

inline bool is_float(Format format) { return traits(format).precision > 0; }
double unit_roundoff(Format format);            // 2^-p; 0 for integers.
double half_smallest_subnormal(Format format);  // eta: absolute rounding error in the subnormal range; 0 for integers.
double smallest_normal(Format format);
double largest_finite(const FormatTraits& format);
double largest_finite(Format format);  // Infinite for integers, which never round.

// Rounds to nearest, ties to even, with subnormals and overflow to infinity as IEEE 754 defines them (saturation where
// the format has no infinities, as torch's casts do; earlier releases gave NaN). Exact (one rounding) for every double.
// Integer formats return x unchanged.
double round_to(Format format, double x);

enum class Rounding { kNearest, kStochastic, kTowardZero };

// The same by any rounding; stochastic goes up in magnitude with the probability of the fraction: where that is above
// `draw`, uniform in [0, 1). Toward zero never overflows.
double round_to(Format format, double x, Rounding rounding, double draw = 0);

// Subnormals become zeros of their sign.
double flush(Format format, double x);

// Decodes `count` little-endian elements at `bytes` into fp64, exactly. Encodes by round_to.
void decode(Format format, const void* bytes, std::int64_t count, double* out);
void encode(Format format, const double* values, std::int64_t count, void* out);
// Whether none of them is an infinity or NaN; false of a format that is never stored.
bool finite(Format format, const void* bytes, std::int64_t count);

}  // namespace plumbline
