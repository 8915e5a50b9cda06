#include "kernels/ball/description.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace plumbline {
namespace {

constexpr Format kDescribed[] = {Format::kFloat64,  Format::kFloat32,    Format::kTf32,      Format::kFloat16,
                                 Format::kBFloat16, Format::kFloat8E4M3, Format::kFloat8E5M2};

FormatDescription of_traits(const FormatTraits& t, std::string name, int bits, int bytes) {
  FormatDescription d;
  d.name = std::move(name);
  d.bits = bits;
  d.bytes = bytes;
  d.infinities = t.infinities;
  d.nan = true;
  d.largest = largest_finite(t);
  d.lowest = -d.largest;
  d.smallest_normal = std::ldexp(1.0, t.exponent_min);
  d.epsilon = std::ldexp(1.0, 1 - t.precision);
  d.unit_roundoff = d.epsilon / 2;
  d.smallest_positive = std::ldexp(1.0, t.exponent_min - t.precision + 1);
  return d;
}

// Sign, significand without its hidden bit, and the exponent's bits: its range holds two codes more than it has.
int bits_of(const FormatTraits& t) {
  const auto exponents = static_cast<unsigned>(t.exponent_max - t.exponent_min + 1);
  return t.precision + std::bit_width(exponents);
}

std::string wrong(std::string_view name, const std::string& expected, const std::string& found) {
  return "format '" + std::string(name) + "': expected " + expected + ", found " + found;
}

// A number that begins at *at, which moves behind it.
std::optional<int> number_at(std::string_view text, std::size_t* at) {
  int value = 0;
  const char* const begin = text.data() + *at;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error != std::errc() || *begin == '-') return std::nullopt;
  *at += static_cast<std::size_t>(end - begin);
  return value;
}

// PREFIX number MIDDLE number END, and nothing else.
std::optional<std::pair<int, int>> two_numbers(std::string_view text, std::string_view prefix, char middle,
                                               std::string_view end) {
  if (text.substr(0, prefix.size()) != prefix) return std::nullopt;
  std::size_t at = prefix.size();
  const auto first = number_at(text, &at);
  if (!first || at >= text.size() || text[at++] != middle) return std::nullopt;
  const auto second = number_at(text, &at);
  if (!second || text.substr(at) != end) return std::nullopt;
  return std::pair(*first, *second);
}

}  // namespace

FormatDescription describe(Format format) {
  const FormatTraits& t = traits(format);
  return of_traits(t, std::string(t.name), bits_of(t), t.bytes);
}

FormatDescription describe(const FixedPoint& fixed) {
  FormatDescription d;
  d.name = "fixed<" + std::to_string(fixed.integer_bits) + "," + std::to_string(fixed.fraction_bits) + ">";
  d.bits = fixed.integer_bits + fixed.fraction_bits;
  d.bytes = static_cast<int>(std::bit_ceil(static_cast<unsigned>((d.bits + 7) / 8)));
  d.fixed = true;
  d.lowest = fixed.low();
  d.largest = fixed.high();
  d.smallest_positive = fixed.step();
  return d;
}

std::variant<FormatDescription, std::string> describe(std::string_view name) {
  for (const Format format : kDescribed)
    if (traits(format).name == name) return describe(format);
  if (const auto fixed = two_numbers(name, "fixed<", ',', ">")) {
    const auto [integer, fraction] = *fixed;
    if (integer < 1) return wrong(name, "at least 1 bit before the point, the sign's", std::to_string(integer));
    const long bits = static_cast<long>(integer) + fraction;
    if (bits > FixedPoint::kBitsMax)
      return wrong(name, "at most " + std::to_string(FixedPoint::kBitsMax) + " bits", std::to_string(bits));
    return describe(FixedPoint{integer, fraction});
  }
  if (const auto binary = two_numbers(name, "e", 'm', "")) {
    const auto [exponent, significand] = *binary;
    const long bits = 1 + static_cast<long>(exponent) + significand;
    if (bits > 64) return wrong(name, "a code of at most 64 bits to hold it", std::to_string(bits) + " bits");
    if (exponent < 2 || significand < 1)
      return wrong(name, "at least 2 bits of exponent and 1 of significand, without which no code holds a number",
                   std::to_string(exponent) + " and " + std::to_string(significand));
    if (exponent > 11 || significand > 52)
      return wrong(name, "at most fp64's 11 bits of exponent and 52 of significand, in which the audit computes",
                   std::to_string(exponent) + " and " + std::to_string(significand));
    const int bias = (1 << (exponent - 1)) - 1;
    const FormatTraits t{Format::kUnknown, "", 0, significand + 1, 1 - bias, bias};
    return of_traits(t, std::string(name), static_cast<int>(bits), static_cast<int>(std::bit_ceil((bits + 7UL) / 8)));
  }
  std::string known;
  for (const Format format : kDescribed) known += std::string(traits(format).name) + ", ";
  return wrong(name, known + "eXmY or fixed<IL,FL>", "'" + std::string(name) + "'");
}

std::vector<FormatDescription> described_formats() {
  std::vector<FormatDescription> all;
  for (const Format format : kDescribed) all.push_back(describe(format));
  return all;
}

}  // namespace plumbline
