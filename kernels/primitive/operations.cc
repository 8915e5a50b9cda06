// The table of a backend (kernels/operations.h).
#include "kernels/operations.h"

#include <bit>
#include <cmath>

#include "kernels/loop.h"
#include "kernels/primitive/rounding.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {

// chain.cc
ChainResult run_chain(const Chain& chain, std::span<const ChainInput> inputs, std::int64_t count,
                      std::span<const Array> into);
Later<std::vector<PulledBack>> pull_back(const Pullback& pullback, std::span<const PulledFunctional> functionals,
                                         std::span<const Array> errors, std::int64_t begin, std::int64_t count);
Later<Comparison> compare(std::span<const ComparedTerm> centres, std::span<const ComparedTerm> values,
                          std::int64_t count, double slack);

// checks.cc
Later<Absorbed> absorbed(const Array& accumulator, const Array& addend, Format format);
Later<Cancelled> cancelled(const Array& sum, const Array& a, const Array& x);
FormatRange range_of(Format format, const Array& values);
Later<double> count_outside(const Array& x, const Array& m, const Bound& r, double slack, double low, double high);
Later<Finite> all_finite(const Array& first, const Array& second);
Later<double> count_differing(const Array& a, const Array& b);
Later<Apart> apart(const Array& a, const Array& b);

// projection.cc
double outlying_rows(const Arithmetic& arithmetic, Inputs in, const Array& observed, std::uint64_t seed);

// sharing.cc
EventOrder order_events(std::span<const EventOperand> operands, const Array& value, std::int64_t row);
Array merge_events(const EventOrder& events, const Array& cotangent);

namespace {

void decode(Array& out, Format format, const void* bytes) { loop::decode(out, format, bytes); }

void copy(Array& out, const Array& from) { loop::map(out, loop::Copy{}, from); }

void add(Array& out, const Array& a, const Array& b) { loop::map(out, scalar::Value<scalar::Add>{}, a, b); }

void add_summed(Array& into, const Shape& shape, const Array& cotangent) {
  contribute_summed(into, shape, cotangent.shape(), loop::Copy{}, cotangent);
}

void scale(Array& out, double factor, const Array& from) {
  loop::map(
      out, [factor] PLUMBLINE_HOST_DEVICE(double x) { return factor * x; }, from);
}

void fill(Array& out, double value) {
  loop::fill(out, [value] PLUMBLINE_HOST_DEVICE(std::int64_t) { return value; });
}

void inflate(Array& out, const Array& centre, const Array& radius) {
  loop::map(
      out, [] PLUMBLINE_HOST_DEVICE(double c, double r) { return std::copysign(std::fabs(c) + r, c); }, centre, radius);
}

// (a + b)(1 + 2^-40), above the rounding of one addition.
void add_bounds(Array& out, const Array& a, const Array& b) {
  loop::map(
      out, [] PLUMBLINE_HOST_DEVICE(double p, double q) { return (p + q) * (1 + 0x1p-40); }, a, b);
}

Later<Largest> largest(const Array& radii, const Array& values) {
  const Array both = Array::uninitialized({2});  // Brought together.
  Array radius = both.restride({{}, {}, 0}), value = both.restride({{}, {}, 1});
  loop::reduce<scalar::Max>(
      radius, false, values.shape(),
      [] PLUMBLINE_HOST_DEVICE(double r, double x) { return x - x == 0 ? std::fabs(r) : 0.0; }, radii, values);
  loop::reduce<scalar::Max>(
      value, false, values.shape(), [] PLUMBLINE_HOST_DEVICE(double x) { return x - x == 0 ? std::fabs(x) : 0.0; },
      values);
  return later(both, [](const double* found) {
    const auto bits = [&](int i) { return std::bit_cast<std::int64_t>(scalar::Max::combine(0, found[i])); };
    return Largest{bits(0), bits(1)};
  });
}

Later<std::vector<double>> weighted_bounds(const std::vector<Array>& weights, const Bound& bound) {
  std::vector<Array> each;
  for (const Array& one : weights) each.push_back(one.materialize());
  const auto whole = [] PLUMBLINE_HOST_DEVICE(double w, double e) { return Totals<1>{{whole_charge(w, e)}}; };
  return loop::totals(whole, bound.values.count(), each, bound.values.materialize())
      .then([](const std::vector<Totals<1>>& sums) {
        std::vector<double> bounds;
        for (const Totals<1>& sum : sums) bounds.push_back(charge_of({{sum.of[0]}}).whole);
        return bounds;
      });
}

double only(const Totals<1>& sums) { return sums.of[0]; }
double root(const Totals<1>& sums) { return std::sqrt(sums.of[0]); }

Later<double> dot(const Array& weights, const Array& values) {
  return loop::total(
             [] PLUMBLINE_HOST_DEVICE(double w, double x) {
               const double product = w * x;
               return Totals<1>{{w == 0 ? 0.0 : product}};
             },
             weights.count(), weights.materialize(), values.materialize())
      .then(only);
}

Later<double> dot_difference(const Array& weights, const Array& a, const Array& b) {
  return loop::total(
             [] PLUMBLINE_HOST_DEVICE(double w, double x, double y) {
               const double product = w * (x - y);
               return Totals<1>{{w == 0 ? 0.0 : product}};
             },
             weights.count(), weights.materialize(), a.materialize(), b.materialize())
      .then(only);
}

Later<double> norm2(const Array& values) {
  return loop::total([] PLUMBLINE_HOST_DEVICE(double x) { return Totals<1>{{x * x}}; }, values.count(),
                     values.materialize())
      .then(root);
}

Later<double> norm_max(const Array& values) {
  Array most = Array::uninitialized({});
  loop::reduce<scalar::Max>(
      most, false, values.shape(), [] PLUMBLINE_HOST_DEVICE(double x) { return std::fabs(x); }, values);
  return later(most, [](const double* found) { return scalar::Max::combine(0, *found); });
}

}  // namespace

Operations operations(const Arithmetic& arithmetic) {
  return {
      .primitives = all_primitives(),
      .arithmetic = arithmetic,
      .decode = decode,
      .copy = copy,
      .add = add,
      .add_summed = add_summed,
      .scale = scale,
      .fill = fill,
      .inflate = inflate,
      .add_bounds = add_bounds,
      .largest = largest,
      .run_chain = run_chain,
      .pull_back = pull_back,
      .compare = compare,
      .order_events = order_events,
      .merge_events = merge_events,
      .absorbed = absorbed,
      .cancelled = cancelled,
      .range_of = range_of,
      .count_outside = count_outside,
      .all_finite = all_finite,
      .apart = apart,
      .count_differing = count_differing,
      .outlying_rows = outlying_rows,
      .weighted_bounds = weighted_bounds,
      .dot = dot,
      .dot_difference = dot_difference,
      .norm2 = norm2,
      .norm_max = norm_max,
  };
}

}  // namespace plumbline::primitive
