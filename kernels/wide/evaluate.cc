#include "kernels/wide/evaluate.h"

#include <cmath>
#include <stdexcept>

#include "kernels/primitive/absorb.h"
#include "kernels/wide/error_function.h"
#include "kernels/wide/exponential.h"
#include "kernels/wide/families.h"
#include "kernels/wide/loop.h"

namespace plumbline::wide {
namespace {

Wide outcome(bool holds) { return holds ? 1 : 0; }

Wide sign(Wide a) { return a > 0 ? 1 : a < 0 ? -1 : 0; }

// a + b, where b may stand for infinity (primitive/absorb.h).
Wide absorbing_sum(Wide a, Wide b) {
  return primitive::absorbed(static_cast<double>(a), static_cast<double>(b)) ? b : a + b;
}

// What rounds to infinity in fp64 is not finite to the programs.
bool is_finite(Wide a) { return std::isfinite(static_cast<double>(a)); }

}  // namespace

// One row each: a primitive without one does not compile.
WideArray evaluate(Primitive primitive, const Attributes& attributes, const Shape& shape,
                   std::span<const WideArray> in) {
  using enum Primitive;
  const auto each = [&](Wide (*f)(Wide)) { return map(shape, f, in[0]); };
  const auto both = [&](Wide (*f)(Wide, Wide)) { return map(shape, f, in[0], in[1]); };
  switch (primitive) {
    case kLeaf:
    case kCount:
      break;
    case kConstant:
      return WideArray::full(shape, attributes.scalar);
    case kIota: {
      const Wide start = attributes.scalar, step = attributes.scalar2;
      WideArray out = WideArray::uninitialized(shape);
      for (std::int64_t i = 0; i < out.count(); ++i) out.data()[i] = start + static_cast<Wide>(i) * step;
      return out;
    }

    case kNeg:
      return each([](Wide a) { return -a; });
    case kAbs:
      return each(fabsf128);
    case kSign:
      return each(sign);
    case kExp:
      return each(exponential);
    case kExpm1:
      return each(exponential_less_one);
    case kLog:
      return each(logf128);
    case kLog1p:
      return each(log1pf128);
    case kSqrt:
      return each(sqrtf128);
    case kRsqrt:
      return each([](Wide a) { return 1 / sqrtf128(a); });
    case kReciprocal:
      return each([](Wide a) { return 1 / a; });
    case kSin:
      return each(sinf128);
    case kCos:
      return each(cosf128);
    case kTanh:
      return each(tangent);
    case kErf:
      return each(error_function);
    case kSigmoid:
      return each(sigmoid);
    case kFloor:
      return each(floorf128);
    case kCeil:
      return each(ceilf128);
    case kRound:
      return each(nearbyintf128);  // Ties to even.
    case kTrunc:
      return each(truncf128);
    case kIsFinite:
      return each([](Wide a) { return outcome(is_finite(a)); });
    case kLogicalNot:
      return each([](Wide a) { return outcome(a == 0); });
    case kCast:
      return in[0].expand(shape);

    case kAdd:
      if (attributes.scalar != 0) return both([](Wide a, Wide b) { return absorbing_sum(a, b); });
      return both([](Wide a, Wide b) { return a + b; });
    case kSub:
      if (attributes.scalar != 0) return both([](Wide a, Wide b) { return absorbing_sum(a, -b); });
      return both([](Wide a, Wide b) { return a - b; });
    case kMul:
      return both([](Wide a, Wide b) { return a * b; });
    case kDiv:
      return both([](Wide a, Wide b) { return a / b; });
    case kPow:
      return both(powf128);
    case kAtan2:
      return both(atan2f128);
    case kMax:
      return both([](Wide a, Wide b) { return a >= b || a != a ? a : b; });
    case kMin:
      return both([](Wide a, Wide b) { return a <= b || a != a ? a : b; });
    case kFmod:
      return both(fmodf128);
    case kLess:
      return both([](Wide a, Wide b) { return outcome(a < b); });
    case kLessEqual:
      return both([](Wide a, Wide b) { return outcome(a <= b); });
    case kGreater:
      return both([](Wide a, Wide b) { return outcome(a > b); });
    case kGreaterEqual:
      return both([](Wide a, Wide b) { return outcome(a >= b); });
    case kEqual:
      return both([](Wide a, Wide b) { return outcome(a == b); });
    case kNotEqual:
      return both([](Wide a, Wide b) { return outcome(a != b); });
    case kLogicalAnd:
      return both([](Wide a, Wide b) { return outcome(a != 0 && b != 0); });
    case kLogicalOr:
      return both([](Wide a, Wide b) { return outcome(a != 0 || b != 0); });
    case kSelect:
      return map(
          shape, [](Wide c, Wide a, Wide b) { return c != 0 ? a : b; }, in[0], in[1], in[2]);

    case kSum:
      return sum(in[0], attributes.dims, shape);
    case kAmax:
      return extreme(in[0], attributes.dims, shape, true);
    case kAmin:
      return extreme(in[0], attributes.dims, shape, false);
    case kArgmax:
      return argmax(in[0], attributes.dims, shape);
    case kArgsort:
      return argsort(in[0], attributes.dims[0], shape);
    case kVarianceRsqrt:
      return variance_rsqrt(in[0], attributes.dims, shape, attributes.scalar);
    case kNorm:
      return norm(in[0], attributes.dims, shape);
    case kCumsum:
      return shape.empty() ? in[0] : cumsum(in[0], attributes.dims[0]);
    case kMatmul:
      return product(in, shape);
    case kSoftmax:
      return softmax(in[0], false);
    case kLogSoftmax:
      return softmax(in[0], true);
    case kWindow:
      return in[0].materialize().window(attributes.view);
    case kAssemble:
      return assemble(attributes, shape, in);
    case kGatherRows:
      return gather_rows(in[0], in[1], shape);
    case kScatterAdd:
      return scatter_add(in[0], in[1], shape);
  }
  throw std::invalid_argument("wide::evaluate: a leaf has nothing to compute");
}

double work(Primitive primitive, const Attributes& attributes, const Shape& shape, std::span<const Shape> in) {
  using enum Primitive;
  constexpr double kMove = 2, kOperation = 20, kExponential = 300, kFunction = 1000, kSlowFunction = 2500;
  const auto out = static_cast<double>(count(shape));
  const double first = in.empty() ? 0 : static_cast<double>(count(in[0]));
  switch (primitive) {
    case kLeaf:
    case kConstant:
    case kCast:
    case kCount:
      return 0;
    case kExp:
    case kExpm1:
    case kTanh:
    case kSigmoid:
    case kErf:
      return out * kExponential;
    case kLog:
    case kLog1p:
    case kSin:
    case kCos:
    case kSqrt:
    case kRsqrt:
    case kAtan2:
      return out * kFunction;
    case kPow:
    case kFmod:  // Goes through the quotient bit by bit.
      return out * kSlowFunction;
    case kSoftmax:
    case kLogSoftmax:
      return out * (kExponential + 3 * kOperation);
    case kIota:
    case kNeg:
    case kAbs:
    case kSign:
    case kReciprocal:
    case kFloor:
    case kCeil:
    case kRound:
    case kTrunc:
    case kIsFinite:
    case kLogicalNot:
    case kAdd:
    case kSub:
    case kMul:
    case kDiv:
    case kMax:
    case kMin:
    case kLess:
    case kLessEqual:
    case kGreater:
    case kGreaterEqual:
    case kEqual:
    case kNotEqual:
    case kLogicalAnd:
    case kLogicalOr:
    case kSelect:
      return out * kOperation;
    case kSum:
    case kAmax:
    case kAmin:
    case kArgmax:
    case kCumsum:
      return first * kOperation;
    case kVarianceRsqrt:
    case kNorm:
      return first * 4 * kOperation + out * kFunction;
    case kArgsort: {
      const auto length = static_cast<double>(in[0][static_cast<std::size_t>(attributes.dims[0])]);
      return first * (kMove + kOperation * std::log2(length + 2));
    }
    case kMatmul: {
      const std::int64_t columns = shape.back(), padded = (columns + 15) / 16 * 16;  // As product.cc has them.
      const double terms = static_cast<double>(in[0].back()) * static_cast<double>(padded);
      const double products = columns == 0 ? 0 : out / static_cast<double>(columns) * terms;
      return products + 3 * kOperation * out + kOperation * (first + static_cast<double>(count(in[1])));
    }
    case kWindow:
      return first * kMove;
    case kAssemble:
    case kGatherRows:
      return (out + first) * kMove;
    case kScatterAdd:
      return out * kMove + first * kOperation;
  }
  return 0;
}

}  // namespace plumbline::wide
