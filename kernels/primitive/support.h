// What the primitive families share: filling in registry rows, adding contributions to cotangents, bounds.
#pragma once

#include <array>
#include <cmath>
#include <limits>

#include "kernels/ball/scalar.h"
#include "kernels/loop.h"
#include "kernels/primitive/enclosure.h"
#include "kernels/primitive/primitive.h"

namespace plumbline::primitive {

std::span<const PrimitiveTraits> source_rows();
std::span<const PrimitiveTraits> elementwise_rows();
std::span<const PrimitiveTraits> reduction_rows();
std::span<const PrimitiveTraits> normalize_rows();
std::span<const PrimitiveTraits> matmul_rows();
std::span<const PrimitiveTraits> softmax_rows();
std::span<const PrimitiveTraits> movement_rows();

// The target may be written in place: it is ours alone and row-major.
inline bool writable(const Array& target) { return target && target.unique() && target.contiguous(); }

// target (+)= f(operands...) for a target of `shape`, the operands broadcast to it.
template <class F, class... Arrays>
void contribute(Array& target, const Shape& shape, const F& f, const Arrays&... operands) {
  if (writable(target)) {
    loop::map_add(target, f, operands...);
    return;
  }
  Array sum = Array::uninitialized(shape);
  loop::map(sum, f, operands...);
  if (target) loop::map_add(sum, loop::Copy{}, target);
  target = std::move(sum);
}

// Makes the target ours to add to: zeros when untouched, a copy when shared.
inline void make_writable(Array& target, const Shape& shape) {
  if (writable(target)) return;
  if (!target) {
    target = Array::zeros(shape);
    return;
  }
  Array fresh = Array::uninitialized(shape);
  loop::map(fresh, loop::Copy{}, target);
  target = std::move(fresh);
}

// target (+)= an array of the target's shape, taken over without a copy where possible.
inline void contribute_array(Array& target, const Array& value) {
  if (!target) {
    target = value.materialize();
  } else {
    contribute(target, target.shape(), loop::Copy{}, value);
  }
}

// target (+)= f(operands...) for a target of `shape`, as many elements in the operands' shape: leading ones may differ.
template <class F, class... Arrays>
void contribute_reshaped(Array& target, const Shape& shape, const Shape& full, const F& f, const Arrays&... operands) {
  Array reshaped;
  if (writable(target)) {
    reshaped = std::move(target).reshape(full);
    target = Array();
  } else if (target) {
    reshaped = target.reshape(full);
  }
  contribute(reshaped, full, f, operands...);
  target = reshaped.reshape(shape);
}

// target (+)= sum of f(operands...) over the dimensions along which a target of `shape` was broadcast to `full`.
template <class F, class... Arrays>
void contribute_summed(Array& target, const Shape& shape, const Shape& full, const F& f, const Arrays&... operands) {
  if (count(shape) == count(full)) {
    contribute_reshaped(target, shape, full, f, operands...);
    return;
  }
  const bool accumulate = static_cast<bool>(target);
  if (accumulate) {
    make_writable(target, shape);
  } else {
    target = Array::uninitialized(shape);
  }
  loop::reduce<scalar::Sum>(target, accumulate, full, f, operands...);
}

// The factor of a product's terms, which only products with a third operand have (primitive.h, kMatmul).
inline Array alpha_of(Inputs in) { return in.size() > 3 ? in[3] : Array::scalar(1); }

// Result shape of a reduction over `dims`: those stay as size 1.
inline Shape reduced_shape(Shape shape, const std::vector<std::int64_t>& dims) {
  for (const std::int64_t d : dims) shape[static_cast<std::size_t>(d)] = 1;
  return shape;
}

}  // namespace plumbline::primitive
