// Rounding to a grid of integers (ATen: native/quantized/FakeQuantPerTensorAffine.cpp).
#include "server/lower/registry.h"

namespace plumbline {
namespace {

// q = clamp(zero_point + round(x / scale), quant_min, quant_max), (q - zero_point) scale; the mask is true where
// nothing was cut off. The kernel multiplies by the rounded 1 / scale, and counts an edge of a bin to either side: the
// integer that it chose is seen in the output, but where that was clamped.
void lower_fake_quantize(Call& call) {
  const Expr x = call.tensor("self"), scale = call.operand("scale");
  const double zero = call.real("zero_point");
  const double low = call.real("quant_min") - zero, high = call.real("quant_max") - zero;
  const Expr code = unary(Primitive::kRound, x * (1.0 / scale));
  const Emitter& emitter = call.emitter();
  const Expr bottom = call.emitter().constant(low, emitter.compute()),
             top = call.emitter().constant(high, emitter.compute());
  call.returns(0, minimum(maximum(code, bottom), top) * scale);
  if (call.wants(1)) {
    const Expr above = compare(Primitive::kGreaterEqual, code, bottom);
    call.returns(1, logical_and(above, compare(Primitive::kLessEqual, code, top)));
  }
  const auto step = call.known_number("scale");
  if (step) call.decides_code(code, {*step, low, high});
}

}  // namespace

std::span<const Rule> quantize_rules() {
  static const Rule kRules[] = {
      {"fake_quantize_per_tensor_affine_cachemask",
       {"default"},
       lower_fake_quantize,
       kFunctional,
       DecisionKind::kResult},
  };
  return kRules;
}

}  // namespace plumbline
