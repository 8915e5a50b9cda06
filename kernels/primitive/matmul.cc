#include "kernels/cpu/gemm.h"
#include "kernels/cpu/patches.h"
#include "kernels/primitive/error_model.h"
#include "kernels/primitive/noise.h"
#include "kernels/primitive/product_above.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

Array evaluate(const Attributes&, const Shape& shape, Inputs in) {
  Array out = Array::uninitialized(shape);
  if (of_patches(in[1], shape)) {
    cpu::multiply_patches(in[0], in[1], out);
  } else {
    loop::matmul(in[0], in[1], out, false);
  }
  if (in.size() > 2)
    loop::map(
        out, [] PLUMBLINE_HOST_DEVICE(double t, double c, double alpha) { return alpha * t + c; }, out, in[2],
        alpha_of(in));
  return out;
}

// Patches as the matrices that the product takes them for.
Array matrices(Inputs in, const Shape& product) {
  Shape shape = product;
  shape[shape.size() - 2] = in[0].shape().back();
  return in[1].reshape(shape);
}

// Whether the matrices' columns lie in memory as others' rows do, as those of a transposed operand do.
bool by_columns(const Array& x) {
  const Shape& strides = x.strides();
  const std::size_t d = strides.size();
  return x.shape()[d - 2] > 1 && x.shape()[d - 1] > 1 && strides[d - 2] == 1 && strides[d - 1] > 1;
}

// target (+)= xy, a cotangent of the operand. It lies by columns where the operand does: what transposed that takes it
// over as it is (pull_back_window).
void contribute_product(Array& target, const Array& x, const Array& y, const Array& operand) {
  const bool accumulate = static_cast<bool>(target);
  if (accumulate ? target.unique() && loop::transpose_last_two(target).contiguous() : by_columns(operand)) {
    if (!accumulate) target = loop::transpose_last_two(Array::uninitialized(loop::transpose_last_two(operand).shape()));
    Array transposed = loop::transpose_last_two(target);
    return loop::matmul(loop::transpose_last_two(y), loop::transpose_last_two(x), transposed, accumulate);
  }
  if (accumulate) {
    make_writable(target, operand.shape());
  } else {
    target = Array::uninitialized(operand.shape());
  }
  loop::matmul(x, y, target, accumulate);
}

// With P = AB and G' = alpha G: dA = G' B^T, dB = A^T G', summed over leading dimensions that were broadcast; dC = G,
// dalpha = sum G o P.
void pull_back(const Attributes& attributes, Inputs in, const Array& out, const Array& cotangent,
               std::span<Array* const> into) {
  const auto product = [] PLUMBLINE_HOST_DEVICE(double g, double x) { return scalar::pull(g, x); };
  Array scaled = cotangent;
  if (in.size() > 3 && (into[0] || into[1])) {
    scaled = Array::uninitialized(out.shape());
    loop::map(scaled, product, cotangent, in[3]);
  }
  if (of_patches(in[1], out.shape())) {
    Array of_rows = Array::uninitialized(in[0].shape());
    if (into[0] && cpu::multiply_transposed_patches(scaled, in[1], of_rows)) {
      contribute_array(*into[0], of_rows);
    } else if (into[0]) {
      contribute_product(*into[0], scaled, loop::transpose_last_two(matrices(in, out.shape())), in[0]);
    }
    if (into[1]) {
      Array of_matrices = Array::uninitialized(matrices(in, out.shape()).shape());
      loop::matmul(loop::transpose_last_two(in[0]), scaled, of_matrices, false);
      contribute_array(*into[1], of_matrices.reshape(in[1].shape()));
    }
  } else {
    if (into[0]) contribute_product(*into[0], scaled, loop::transpose_last_two(in[1]), in[0]);
    if (into[1]) contribute_product(*into[1], loop::transpose_last_two(in[0]), scaled, in[1]);
  }
  if (in.size() > 2 && into[2]) contribute_array(*into[2], cotangent);
  if (in.size() > 3 && into[3])
    contribute_summed(*into[3], in[3].shape(), out.shape(), product, cotangent,
                      evaluate(attributes, out.shape(), in.first(2)));
}

constexpr PrimitiveTraits kRows[] = {
    {Primitive::kMatmul, "matmul", -1, false, evaluate, pull_back, error_matmul, radius_matmul, noise_matmul},
};

}  // namespace

std::span<const PrimitiveTraits> matmul_rows() { return kRows; }

}  // namespace plumbline::primitive
