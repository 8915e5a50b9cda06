#include "server/nodes/fingerprint.h"

#include <cstring>

#include "server/nodes/sketch.h"

namespace plumbline {
namespace {

constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;

std::uint64_t reduced(std::uint64_t x) {
  x = (x & kPrime) + (x >> 61);
  return x >= kPrime ? x - kPrime : x;
}

std::uint64_t product(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide wide = static_cast<Wide>(a) * b;
  return reduced(static_cast<std::uint64_t>(wide & kPrime) + static_cast<std::uint64_t>(wide >> 61));
}

std::uint64_t power(std::uint64_t base, std::uint64_t exponent) {
  std::uint64_t result = 1;
  for (; exponent > 0; exponent >>= 1, base = product(base, base))
    if ((exponent & 1) != 0) result = product(result, base);
  return result;
}

// Numbers that an element makes: its value must be below the prime.
std::size_t words_of(std::size_t element_bytes) { return element_bytes == 8 ? 2 : 1; }

}  // namespace

Fingerprinter::Fingerprinter(std::uint64_t seed) {
  for (int i = 0; i < 2; ++i) bases_[i] = 2 + mixed(seed + static_cast<std::uint64_t>(i)) % (kPrime - 3);
}

ContentPrint Fingerprinter::of(std::span<const std::uint8_t> bytes, std::size_t element_bytes) const {
  const std::size_t words = words_of(element_bytes), word_bytes = element_bytes / words;
  std::uint64_t first = 0, second = 0;
  for (std::size_t at = 0; at < bytes.size(); at += word_bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, word_bytes);
    first = reduced(product(first, bases_[0]) + word + 1);
    second = reduced(product(second, bases_[1]) + word + 1);
  }
  return {first, second};
}

ContentPrint Fingerprinter::joined(const ContentPrint& a, const ContentPrint& b, std::int64_t count,
                                   std::size_t element_bytes) const {
  const std::uint64_t words = static_cast<std::uint64_t>(count) * words_of(element_bytes);
  return {reduced(product(a.first, power(bases_[0], words)) + b.first),
          reduced(product(a.second, power(bases_[1], words)) + b.second)};
}

}  // namespace plumbline
