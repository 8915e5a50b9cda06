#include "kernels/wide/compare.h"

#include "kernels/wide/families.h"
#include "kernels/wide/loop.h"

namespace plumbline::wide {
namespace {

double apart(Wide a, Wide b) { return a == b ? 0.0 : static_cast<double>(a - b); }

Dims all_of(const WideArray& values) {
  Dims dims;
  for (std::size_t d = 0; d < values.shape().size(); ++d) dims.push_back(static_cast<std::int64_t>(d));
  return dims;
}

}  // namespace

Array rounded(const WideArray& values) {
  Array out = Array::uninitialized(values.shape());
  map_to(
      out.data(), values.shape(), [](Wide x) { return static_cast<double>(x); }, operand(values));
  return out;
}

Array difference(const WideArray& a, const WideArray& b) {
  Array out = Array::uninitialized(a.shape());
  map_to(out.data(), a.shape(), apart, operand(a), operand(b.reshape(a.shape())));
  return out;
}

Array difference(const WideArray& a, const Array& b) {
  const Array host = b.reshape(a.shape()).on_host();
  Array out = Array::uninitialized(a.shape());
  map_to(
      out.data(), a.shape(), [](Wide x, double y) { return apart(x, y); }, operand(a),
      Operand<double>{host.data(), View{host.shape(), host.strides(), 0}});
  return out;
}

WideArray plus(const WideArray& a, double weight, const WideArray& b) {
  return map(
      a.shape(), [weight](Wide x, Wide y) { return x + weight * y; }, a, b.reshape(a.shape()));
}

double dot(const Array& weights, const WideArray& values) {
  const WideArray w = WideArray::of(weights).reshape(values.shape());
  const WideArray terms = map(
      values.shape(), [](Wide weight, Wide x) { return weight == 0 ? 0 : weight * x; }, w, values);
  return static_cast<double>(sum(terms, all_of(terms), {}).data()[0]);
}

double dot_difference(const Array& weights, const WideArray& a, const WideArray& b) {
  const WideArray apart = map(
      a.shape(), [](Wide x, Wide y) { return x == y ? 0 : x - y; }, a, b.reshape(a.shape()));
  return dot(weights, apart);
}

double norm2(const WideArray& values) { return static_cast<double>(norm(values, all_of(values), {}).data()[0]); }

double norm_max(const WideArray& values) {
  const WideArray magnitudes = map(values.shape(), fabsf128, values);
  const WideArray most = extreme(magnitudes, all_of(values), {}, true);
  return values.count() == 0 ? 0.0 : static_cast<double>(most.data()[0]);
}

}  // namespace plumbline::wide
