#include "server/bound/taps.h"

#include <bit>
#include <cmath>

#include "kernels/cpu/loop.h"
#include "kernels/cpu/sums.h"

namespace plumbline {
namespace {

Array weighted(Array term, double weight) {
  if (weight == 1) return term;
  const Array source = term.materialize();
  Array scaled = Array::uninitialized(source.shape());
  cpu::map(
      scaled, [weight](double x) { return weight * x; }, source);
  return scaled;
}

// a + b for row-major arrays of one count.
Array plus(const Array& a, const Array& b) {
  Array sum = Array::uninitialized(a.shape());
  cpu::map(
      sum, [](double x, double y) { return x + y; }, a, b);
  return sum;
}

template <class ValueOfTerm>
Array sum_of_terms(const GraphTap& tap, ValueOfTerm value_of) {
  Array sum;
  for (const GraphTap::Term& term : tap.terms) {
    Array value = weighted(value_of(term), term.weight).materialize();
    sum = sum ? plus(sum, value) : value;
  }
  return sum.reshape(tap.shape);
}

Array decoded(Format format, const Bytes& bytes, const Shape& shape) {
  Array values = Array::uninitialized(shape);
  decode(format, bytes->data(), values.count(), values.data());
  return values;
}

}  // namespace

Array observed_value(const GraphTap& tap) {
  return sum_of_terms(tap, [&](const GraphTap::Term& term) { return decoded(term.format, term.observed, tap.shape); });
}

Array replayed_value(const GraphTap& tap, const Replay& replay) {
  return sum_of_terms(tap, [&](const GraphTap::Term& term) { return replay.computed(term.node); });
}

Array reference_value(const GraphTap& tap) {
  return tap.reference ? decoded(tap.reference_format, tap.reference, tap.shape) : Array();
}

Format tap_format(const GraphTap& tap) { return tap.terms.front().format; }

bool all_finite(const Array& values) { return std::isfinite(cpu::norm_max(values)); }

bool bitwise_equal(const Array& a, const Array& b) {
  const Array x = a.materialize(), y = b.materialize();
  if (x.count() != y.count()) return false;
  if (x.data() == y.data()) return true;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double p = x.data()[i], q = y.data()[i];
    if (std::bit_cast<std::uint64_t>(p) != std::bit_cast<std::uint64_t>(q) && !(std::isnan(p) && std::isnan(q)))
      return false;
  }
  return true;
}

}  // namespace plumbline
