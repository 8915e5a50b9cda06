// Fingerprints of copies. That of several tensors, one behind the other, follows from theirs: what a rank gathered is
// compared with what the others sent, whoever knows where one ends and the next begins.
//
// With the elements' bits x_1 ... x_n as numbers, H = sum (x_i + 1) g^(n-i) modulo the prime 2^61 - 1, for two bases g
// that come from the call's seed: H(ab) = H(a) g^|b| + H(b). Different contents of n elements have the same value for
// at most n of the 2^61 bases (a polynomial of degree n has no more zeros), so a difference is missed with a
// probability of at most (n 2^-61)^2, below 2^-60 for 2^31 elements. That is against accidents, not against who knows
// the seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace plumbline {

struct ContentPrint {
  std::uint64_t first = 0, second = 0;  // Those of nothing.
  friend bool operator==(const ContentPrint&, const ContentPrint&) = default;
};

// Thread-safe: no state but the bases.
class Fingerprinter {
 public:
  explicit Fingerprinter(std::uint64_t seed);

  // `element_bytes`: 1, 2, 4 or 8, of which `bytes` has a multiple.
  ContentPrint of(std::span<const std::uint8_t> bytes, std::size_t element_bytes) const;
  // Of what has `b`, of `count` such elements, behind `a`.
  ContentPrint joined(const ContentPrint& a, const ContentPrint& b, std::int64_t count,
                      std::size_t element_bytes) const;

 private:
  std::uint64_t bases_[2];
};

}  // namespace plumbline
