#include "server/lower/aten/attention_products.h"

#include "server/lower/aten/attention.h"

namespace plumbline::attention {
namespace {

// Blocks are of at least so many keys. To rescale one costs an exponential, 2.5 ulp by the profiles of CUDA, and a
// product: 6 u. A term of a 16-bit product is charged as little as 5/8 u.
constexpr std::int64_t kBlockMin = 32, kTermsOfRescaling = 10;

void charge(Expr sum, std::int64_t terms) { sum.emitter->graph().nodes[sum.id].attributes.size = terms; }

}  // namespace

// CUTLASS multiplies fp32 numbers as the sums of two tf32 numbers (OpMultiplyAddFastF32): three instructions on 8 terms
// each cut off, which on Ampere is 3 * 2 * 6 u in 8 terms, so less than 5 u a term; what the smaller halves lack, and
// their own product, is below 2 * 4 u + 16 u of |a b|. 16-bit kernels take instructions of 8 terms, too, where the
// profile of Hopper states 16: that is twice what it charges. Terms are filled up to whole instructions. 8 terms more,
// 5 u at least, are for the factor that a kernel takes in place of the scale: times log2 e, rounded three times, and
// for the rounding of what it is multiplied with.
Expr product(Expr a, Expr b) {
  const Expr made = matmul(a, b);
  const std::int64_t terms = a.shape().back();
  charge(made, reduced_precision(a.format()) ? 2 * terms + 40 : 5 * terms + 72);
  return made;
}

Expr rescaled(Expr sum) {
  const Node& node = sum.emitter->node(sum.id);
  const std::int64_t keys = sum.emitter->graph().nodes[node.inputs[0]].shape.back();
  charge(sum, std::max(node.attributes.size, keys) + kTermsOfRescaling * ((keys + kBlockMin - 1) / kBlockMin));
  return sum;
}

// log2 e is rounded, the product with it, and that of the maximum where it is taken apart. A factor of 1 is exact, and
// charged as any product is.
Expr in_base_two(Expr x) { return x * 1.0 * 1.0 * 1.0; }

}  // namespace plumbline::attention
