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

__extension__ using Wide = unsigned __int128;

// Of what is below 2^123.
std::uint64_t reduced(Wide x) {
  return reduced(static_cast<std::uint64_t>(x & kPrime) + static_cast<std::uint64_t>(x >> 61));
}

std::uint64_t product(std::uint64_t a, std::uint64_t b) { return reduced(static_cast<Wide>(a) * b); }

std::uint64_t power(std::uint64_t base, std::uint64_t exponent) {
  std::uint64_t result = 1;
  for (; exponent > 0; exponent >>= 1, base = product(base, base))
    if ((exponent & 1) != 0) result = product(result, base);
  return result;
}

// Numbers that an element makes: its value must be below the prime.
std::size_t words_of(std::size_t element_bytes) { return element_bytes == 8 ? 2 : 1; }

// sum (x_i + 1) g^(n-i). Four words at a time, of which each is below 2^32, so that one product waits for the one
// before.
template <typename Word>
std::uint64_t polynomial(std::span<const std::uint8_t> bytes, std::uint64_t g) {
  const auto term = [&](std::size_t at, std::uint64_t factor) {
    Word word;
    std::memcpy(&word, bytes.data() + at * sizeof(Word), sizeof word);
    return static_cast<Wide>(static_cast<std::uint64_t>(word) + 1) * factor;
  };
  const std::uint64_t g2 = product(g, g), g3 = product(g2, g), g4 = product(g3, g);
  const std::size_t words = bytes.size() / sizeof(Word);
  std::uint64_t sum = 0;
  std::size_t at = 0;
  for (; at + 4 <= words; at += 4)
    sum = reduced(static_cast<Wide>(sum) * g4 + term(at, g3) + term(at + 1, g2) + term(at + 2, g) + term(at + 3, 1));
  for (; at < words; ++at) sum = reduced(static_cast<Wide>(sum) * g + term(at, 1));
  return sum;
}

std::uint64_t polynomial(std::span<const std::uint8_t> bytes, std::size_t word_bytes, std::uint64_t g) {
  if (word_bytes == 1) return polynomial<std::uint8_t>(bytes, g);
  if (word_bytes == 2) return polynomial<std::uint16_t>(bytes, g);
  return polynomial<std::uint32_t>(bytes, g);
}

}  // namespace

Fingerprinter::Fingerprinter(std::uint64_t seed) {
  for (int i = 0; i < 2; ++i) bases_[i] = 2 + mixed(seed + static_cast<std::uint64_t>(i)) % (kPrime - 3);
}

ContentPrint Fingerprinter::of(std::span<const std::uint8_t> bytes, std::size_t element_bytes) const {
  const std::size_t word_bytes = element_bytes / words_of(element_bytes);
  return {polynomial(bytes, word_bytes, bases_[0]), polynomial(bytes, word_bytes, bases_[1])};
}

ContentPrint Fingerprinter::joined(const ContentPrint& a, const ContentPrint& b, std::int64_t count,
                                   std::size_t element_bytes) const {
  const std::uint64_t words = static_cast<std::uint64_t>(count) * words_of(element_bytes);
  return {reduced(product(a.first, power(bases_[0], words)) + b.first),
          reduced(product(a.second, power(bases_[1], words)) + b.second)};
}

}  // namespace plumbline
