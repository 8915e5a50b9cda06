#include "kernels/cpu/gemm.h"
#include "kernels/primitive/error_model.h"
#include "kernels/primitive/noise.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

Array evaluate(const Attributes&, const Shape& shape, Inputs in) {
  Array out = Array::uninitialized(shape);
  loop::matmul(in[0], in[1], out, false);
  return out;
}

// dA = G B^T, dB = A^T G, summed over leading dimensions that were broadcast.
void pull_back(const Attributes&, Inputs in, const Array&, const Array& cotangent, std::span<Array* const> into) {
  const auto add = [](Array& target, const Array& x, const Array& y, const Shape& shape) {
    const bool accumulate = static_cast<bool>(target);
    if (accumulate) {
      make_writable(target, shape);
    } else {
      target = Array::uninitialized(shape);
    }
    loop::matmul(x, y, target, accumulate);
  };
  if (into[0]) add(*into[0], cotangent, loop::transpose_last_two(in[1]), in[0].shape());
  if (into[1]) add(*into[1], loop::transpose_last_two(in[0]), cotangent, in[1].shape());
}

constexpr PrimitiveTraits kRows[] = {
    {Primitive::kMatmul, "matmul", 2, false, evaluate, pull_back, error_matmul, radius_matmul, noise_matmul},
};

}  // namespace

std::span<const PrimitiveTraits> matmul_rows() { return kRows; }

}  // namespace plumbline::primitive
