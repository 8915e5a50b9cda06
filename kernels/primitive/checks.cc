// Counts and sums for checks (kernels/checks.h), on the backend that is compiled.
#include "kernels/checks.h"

#include <cmath>

#include "kernels/ball/key.h"
#include "kernels/ball/round.h"
#include "kernels/loop.h"
#include "kernels/operations.h"

namespace plumbline::primitive {
namespace {

struct ToFloat {
  PLUMBLINE_HOST_DEVICE float operator()(double x) const { return static_cast<float>(x); }
};

// Elements, lost ones, and their sums.
template <class Round>
struct Absorbs {
  Round round;

  PLUMBLINE_HOST_DEVICE Totals<4> operator()(double a, double x) const {
    const bool counts = (x != 0) & (x - x == 0) & (a - a == 0);
    const double step = counts ? std::fabs(x) : 0.0;
    const bool lost = counts & (round(a + x) == round(a));
    return {{counts ? 1.0 : 0.0, lost ? 1.0 : 0.0, step, lost ? step : 0.0}};
  }
};

template <class Round>
Later<Totals<4>> total_absorbed(const Round& round, const Array& a, const Array& x) {
  return loop::total(Absorbs<Round>{round}, a.count(), a, x);
}

double only(const Totals<1>& sums) { return sums.of[0]; }

}  // namespace

Later<Absorbed> absorbed(const Array& accumulator, const Array& addend, Format format) {
  const Array a = accumulator.materialize(), x = addend.expand(accumulator.shape()).materialize();
  const auto sums =
      format == Format::kFloat32 ? total_absorbed(ToFloat{}, a, x) : total_absorbed(RoundTo(format), a, x);
  return sums.then([](const Totals<4>& s) { return Absorbed{s.of[0], s.of[1], s.of[2], s.of[3]}; });
}

Later<Cancelled> cancelled(const Array& sum, const Array& a, const Array& x) {
  const auto sums = loop::total(
      [] PLUMBLINE_HOST_DEVICE(double t, double first, double second) {
        const double terms = std::fabs(first) + std::fabs(second);
        return Totals<2>{{terms * terms, t * t}};
      },
      sum.count(), sum.materialize(), a.expand(sum.shape()).materialize(), x.expand(sum.shape()).materialize());
  return sums.then([](const Totals<2>& s) { return Cancelled{s.of[0], s.of[1]}; });
}

FormatRange range_of(Format format, const Array& values) {
  const Array x = values.materialize();
  const RoundTo round(format);
  const double normal = smallest_normal(format);
  const Later<Totals<5>> sums = loop::total(
      [round, normal] PLUMBLINE_HOST_DEVICE(double v) {
        const double magnitude = std::fabs(v);
        if (magnitude == 0 || v - v != 0) return Totals<5>{};
        const double held = round(magnitude), lost = magnitude < normal ? magnitude - held : 0.0;
        return Totals<5>{
            {1.0, held - held != 0 ? 1.0 : 0.0, magnitude < normal ? 1.0 : 0.0, magnitude * magnitude, lost * lost}};
      },
      x.count(), x);
  Array largest = Array::uninitialized({});
  loop::reduce<scalar::Max>(
      largest, false, x.shape(), [] PLUMBLINE_HOST_DEVICE(double v) { return v - v == 0 ? std::fabs(v) : 0.0; }, x);
  const double most = scalar::Max::combine(0, largest.item());
  const auto& of = sums.get().of;
  return {of[0], of[1], of[2], of[3], of[4], most};
}

Later<double> count_outside(const Array& x, const Array& m, const Bound& r, double slack, double low, double high) {
  const Array radius = r ? r.values.expand(x.shape()) : Array::scalar(0).expand(x.shape());
  return loop::total(
             [slack, low, high] PLUMBLINE_HOST_DEVICE(double seen, double exact, double ball) {
               // Without a branch: compilers make vectors of these only so.
               const bool same = (seen == exact) | ((seen != seen) & (exact != exact));
               const bool inside = (std::fabs(seen - exact) <= ball * slack) & !((seen < low) | (seen > high));
               return Totals<1>{{(same | inside | (exact - exact != 0)) ? 0.0 : 1.0}};
             },
             x.count(), x.materialize(), m.expand(x.shape()).materialize(), radius.materialize())
      .then(only);
}

Later<Finite> all_finite(const Array& first, const Array& second) {
  const auto sums = loop::total(
      [] PLUMBLINE_HOST_DEVICE(double a, double b) {
        return Totals<2>{{a - a, b - b}};  // 0 or NaN.
      },
      first.count(), first.materialize(), second.materialize());
  return sums.then([](const Totals<2>& s) { return Finite{s.of[0] == 0, s.of[1] == 0}; });
}

Later<double> count_differing(const Array& a, const Array& b) {
  return loop::total(
             [] PLUMBLINE_HOST_DEVICE(double x, double y) {
               const bool same = key::bits_of(x) == key::bits_of(y) || (x != x && y != y);
               return Totals<1>{{same ? 0.0 : 1.0}};
             },
             a.count(), a.materialize(), b.materialize())
      .then(only);
}

Later<Apart> apart(const Array& a, const Array& b) {
  const auto squares = loop::total(
      [] PLUMBLINE_HOST_DEVICE(double x, double y) {
        const double by = x - y, difference = x == y ? 0.0 : by;
        return Totals<2>{{y * y, difference * difference}};
      },
      a.count(), a.materialize(), b.materialize());
  return squares.then([](const Totals<2>& s) { return Apart{std::sqrt(s.of[0]), std::sqrt(s.of[1])}; });
}

}  // namespace plumbline::primitive
