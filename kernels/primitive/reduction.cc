#include <utility>

#include "kernels/primitive/error_model.h"
#include "kernels/primitive/noise.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

template <class Combine>
Array evaluate_reduce(const Attributes& attributes, const Shape& shape, Inputs in) {
  Array out = Array::uninitialized(reduced_shape(in[0].shape(), attributes.dims));
  loop::reduce<Combine>(out, false, in[0].shape(), loop::Copy{}, in[0]);
  return out.reshape(shape);
}

void pull_back_sum(const Attributes& attributes, Inputs in, const Array&, const Array& cotangent,
                   std::span<Array* const> into) {
  if (!into[0]) return;
  contribute(*into[0], in[0].shape(), loop::Copy{}, cotangent.reshape(reduced_shape(in[0].shape(), attributes.dims)));
}

// Positions in row-major order of the reduced dimensions, to be read along with x.
Array positions(const Array& x, const std::vector<std::int64_t>& dims) {
  Shape reduced(x.shape().size(), 1);
  for (const std::int64_t d : dims) reduced[static_cast<std::size_t>(d)] = x.shape()[static_cast<std::size_t>(d)];
  Array result = Array::uninitialized(reduced);
  loop::fill(result, [] PLUMBLINE_HOST_DEVICE(std::int64_t i) { return static_cast<double>(i); });
  return result;
}

PLUMBLINE_HOST_DEVICE inline bool same(double a, double b) { return a == b || (a != a && b != b); }

// The position of the first element that equals the extreme, which has x's shape but for sizes 1; it is infinite where
// there is none.
Array first_of(const Array& x, const Array& extreme, const Array& position) {
  Array first = Array::uninitialized(extreme.shape());
  loop::reduce<scalar::Min>(
      first, false, x.shape(),
      [] PLUMBLINE_HOST_DEVICE(double v, double wanted, double at) { return same(v, wanted) ? at : __builtin_inf(); },
      x, extreme, position);
  return first;
}

Array evaluate_argmax(const Attributes& attributes, const Shape& shape, Inputs in) {
  const Shape kept = reduced_shape(in[0].shape(), attributes.dims);
  const Array extreme = evaluate_reduce<scalar::Max>(attributes, kept, in);
  Array out = first_of(in[0], extreme, positions(in[0], attributes.dims));
  loop::map(
      out, [] PLUMBLINE_HOST_DEVICE(double at) { return at < __builtin_inf() ? at : -1.0; }, out);
  return out.reshape(shape);
}

// x with dimension `dim` and the last one exchanged; no copy.
Array exchanged(const Array& x, std::size_t dim) {
  View view{x.shape(), x.strides(), 0};
  std::swap(view.sizes[dim], view.sizes.back());
  std::swap(view.strides[dim], view.strides.back());
  return x.restride(view);
}

Array evaluate_argsort(const Attributes& attributes, const Shape& shape, Inputs in) {
  const auto dim = static_cast<std::size_t>(attributes.dims[0]);
  const Array x = exchanged(in[0], dim);
  const std::int64_t length = x.shape().back(), lines = length == 0 ? 0 : x.count() / length;
  Array order = Array::uninitialized({lines, shape[dim]});
  loop::argsort(x.materialize().reshape({lines, length}), order);
  Shape sorted = x.shape();
  sorted.back() = shape[dim];
  return exchanged(order.reshape(sorted), dim).materialize();
}

// The first of equal extremes takes all.
void pull_back_extreme(const Attributes& attributes, Inputs in, const Array& out, const Array& cotangent,
                       std::span<Array* const> into) {
  if (!into[0]) return;
  const Shape kept = reduced_shape(in[0].shape(), attributes.dims);
  const Array position = positions(in[0], attributes.dims);
  const Array first = first_of(in[0], out.reshape(kept), position);
  contribute(
      *into[0], in[0].shape(),
      [] PLUMBLINE_HOST_DEVICE(double g, double at, double place) { return at == place ? g : 0.0; },
      cotangent.reshape(kept), first, position);
}

void pull_back_none(const Attributes&, Inputs, const Array&, const Array&, std::span<Array* const>) {}

// One line along a dimension of a row-major array, `step` apart.
struct Scan {
  std::int64_t length, step;
  bool reverse, add;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t line, double* out, const double* x) const {
    const std::int64_t base = line / step * step * length + line % step;
    const auto place = [=, this](std::int64_t i) { return base + (reverse ? length - 1 - i : i) * step; };
    team.scan(
        length, [=](std::int64_t i) { return x[place(i)]; },
        [=, this](std::int64_t i, double total) {
          double& to = out[place(i)];
          to = add ? to + total : total;
        });
  }
};

// Running sums along one dimension; `add` on top of what is there; from the far end when `reverse`.
void cumulate(const Array& from, std::int64_t dim, bool reverse, bool add, Array& to) {
  const Array x = from.materialize();
  const auto d = static_cast<std::size_t>(dim);
  const std::int64_t length = x.shape()[d];
  if (x.count() == 0) return;
  const Scan scan{length, row_major_strides(x.shape())[d], reverse, add};
  loop::for_each_row(x.count() / length, length, to, scan, x);
}

Array evaluate_cumsum(const Attributes& attributes, const Shape& shape, Inputs in) {
  Array out = Array::uninitialized(shape);
  if (shape.empty()) return in[0];
  cumulate(in[0], attributes.dims[0], false, false, out);
  return out;
}

void pull_back_cumsum(const Attributes& attributes, Inputs in, const Array&, const Array& cotangent,
                      std::span<Array* const> into) {
  if (!into[0]) return;
  if (in[0].shape().empty()) return contribute_array(*into[0], cotangent);
  const bool add = static_cast<bool>(*into[0]);
  if (add) {
    make_writable(*into[0], in[0].shape());
  } else {
    *into[0] = Array::uninitialized(in[0].shape());
  }
  cumulate(cotangent, attributes.dims[0], true, add, *into[0]);
}

using enum Primitive;

constexpr PrimitiveTraits kRows[] = {
    {kSum, "sum", 1, false, evaluate_reduce<scalar::Sum>, pull_back_sum, error_sum, radius_sum, noise_sum},
    {kAmax, "amax", 1, true, evaluate_reduce<scalar::Max>, pull_back_extreme, error_none, radius_extreme},
    {kAmin, "amin", 1, true, evaluate_reduce<scalar::Min>, pull_back_extreme, error_none, radius_extreme},
    {kArgmax, "argmax", 1, true, evaluate_argmax, pull_back_none, error_none, radius_argmax},
    {kArgsort, "argsort", 1, true, evaluate_argsort, pull_back_none, error_none, radius_argsort},
    {kCumsum, "cumsum", 1, false, evaluate_cumsum, pull_back_cumsum, error_cumsum, radius_cumsum},
};

}  // namespace

std::span<const PrimitiveTraits> reduction_rows() { return kRows; }

}  // namespace plumbline::primitive
