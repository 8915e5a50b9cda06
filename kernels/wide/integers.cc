#include "kernels/wide/integers.h"

#include <atomic>
#include <cstdint>

#include "kernels/wide/loop.h"

namespace plumbline::wide {
namespace {

constexpr double kLimit = 0x1p64;

bool holds(Wide x) { return fabsf128(x) <= kLimit && truncf128(x) == x; }

std::uint64_t modulo(Wide x) {  // Takes an integer modulo 2^64.
  const Wide rest = x - floorf128(x * Wide(0x1p-64)) * Wide(0x1p64);
  return static_cast<std::uint64_t>(rest);
}

Wide wrap(Wide x, int bits, bool is_signed) {
  if (!(fabsf128(x) < Wide(0x1p112)) || truncf128(x) != x) return x;
  const int beyond = 64 - bits;
  const std::uint64_t upper = modulo(x) << beyond;
  return is_signed ? static_cast<Wide>(static_cast<std::int64_t>(upper) >> beyond) : static_cast<Wide>(upper >> beyond);
}

}  // namespace

bool integral(const WideArray& values) {
  std::atomic<bool> all{true};
  const WideArray x = values.materialize();
  cpu::parallel_for(x.count(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      if (!holds(x.data()[i])) return all.store(false, std::memory_order_relaxed);
  });
  return all;
}

WideArray wrapped(Format format, const WideArray& values) {
  const int bits = 8 * traits(format).bytes;
  const bool is_signed = format != Format::kUInt8;
  return map(
      values.shape(), [=](Wide x) { return wrap(x, bits, is_signed); }, values);
}

WideArray multiplied(const WideArray& a, const WideArray& b, const Shape& shape) {
  return map(
      shape, [](Wide x, Wide y) { return static_cast<Wide>(static_cast<std::int64_t>(modulo(x) * modulo(y))); }, a, b);
}

}  // namespace plumbline::wide
