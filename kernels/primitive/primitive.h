// The primitives of the audit's graph: what each computes, how its own rounding is bounded, how it carries radii, and
// its derivative. One registry row each; tests, soundness runs and the README's table enumerate the registry.
//
// All functions are pure and thread-safe. Inputs broadcast numpy-style where a row says so. Values are fp64; the
// formats of the audited computation are in Arithmetic.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "kernels/array.h"
#include "kernels/ball/format.h"
#include "kernels/later.h"
#include "kernels/profile.h"

namespace plumbline {

enum class Primitive : std::uint8_t {
  // Sources. Their values come from the trace or from attributes.
  kLeaf,      // ()                        content of the trace
  kConstant,  // ()                        attributes.scalar everywhere; the kernel's own is within scalar2 of it (size
              //                           != 0: where the profile has narrow_numbers)
  kIota,      // ()                        scalar + i * scalar2, i the row-major index
  // Elementwise, one input.
  kNeg,
  kAbs,
  kSign,
  kExp,  // scalar != 0: the profile's kFusedExp
  kExpm1,
  kLog,
  kLog1p,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kSin,
  kCos,
  kTanh,
  kErf,
  kSigmoid,
  kFloor,
  kCeil,
  kRound,
  kTrunc,
  kIsFinite,
  kLogicalNot,
  kCast,  // identity; the node's format rounds (float to integer truncates)
  // Elementwise, two inputs, broadcast.
  kAdd,  // scalar != 0: from 2^64 on the second operand stands for infinity (absorb.h)
  kSub,  // The same.
  kMul,  // scalar != 0: rounds, to `narrow` where that is given, where the profile has narrow_numbers
  kDiv,  // scalar != 0: the profile's kDivideByNumber
  kPow,
  kAtan2,  // (y, x)                     the angle of the point (x, y)
  kMax,
  kMin,
  kFmod,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual,
  kLogicalAnd,
  kLogicalOr,
  // Elementwise, three inputs, broadcast.
  kSelect,  // (condition, a, b)         a where condition != 0, otherwise b
  // Reductions over attributes.dims, which stay as size 1.
  kSum,  // scalar != 0: kept as a running mean, whose parts are no sums of the elements; size: so many additions;
         // narrow: where the profile has narrow_numbers, terms and parts of the sum are rounded to it, each term in at
         // most scalar2 of these
  kAmax,
  kAmin,
  kArgmax,         // over one dim; first of equals
  kArgsort,        // along one dim, which keeps the first `size`: positions by falling value, equals in order
  kVarianceRsqrt,  // (x)                  1 / sqrt(mean((x - mean x)^2) + scalar) over dims (layer, batch, group norm)
  kNorm,           // (x)                       L2 norm over dims
  kCumsum,         // along dims[0]
  // Contraction. a [..., m, k], b [..., k, n], leading dimensions broadcast.
  kMatmul,  // (a, b [, c [, alpha]])    alpha a b + c, as one accumulation: kernels may begin it with c. c has the
            //                           result's shape, alpha none.
  // Rows along the last dimension.
  kSoftmax,
  kLogSoftmax,
  // Data movement.
  kWindow,    // (x)                       attributes.view read from x's row-major elements
  kAssemble,  // (base | none, pieces...)  flat array of attributes.scalar-free size `size`: base (or zeros), then each
              //                           piece written to its view in attributes.views; has_base says which
  kGatherRows,  // (table [r, d], index [n])        [n, d]; index values in [0, r)
  kScatterAdd,  // (source [n, d], index [n])       [size, d], rows with equal index summed; index < 0 is dropped
  kCount
};

constexpr bool is_elementwise(Primitive primitive) {
  return primitive >= Primitive::kNeg && primitive <= Primitive::kSelect;
}

// What does no arithmetic on its operands' values, but moves them. (Of all others devices may flush the operands.)
constexpr bool moves(Primitive primitive) {
  using enum Primitive;
  return primitive <= kIota || primitive == kSelect || primitive == kWindow || primitive == kAssemble ||
         primitive == kGatherRows;
}

struct Attributes {
  double scalar = 0;
  double scalar2 = 0;
  std::int64_t size = 0;
  std::vector<std::int64_t> dims;  // Sorted, non-negative.
  View view;
  std::vector<View> views;
  bool has_base = false;
  Format narrow = Format::kUnknown;

  bool operator==(const Attributes&) const = default;
};

// What the terms of a product of matrices, beside which its roundings stand, are taken for: themselves, which costs a
// product more; or norms of blocks, some 1.5 times too high, which say nothing where scales cancel along the contracted
// dimension (each row of one operand times a number, and its column of the other divided by it).
enum class Magnitudes : std::uint8_t {
  kAsWorthwhile,  // Norms, unless the result is held in few bits and the sum is long.
  kByNorms,
  kThemselves
};

// How the audited computation produced a node.
struct Arithmetic {
  // The operation's inner arithmetic has it: bf16 elementwise kernels compute in fp32.
  Format compute = Format::kFloat64;
  Format result = Format::kFloat64;  // In which the result is held; narrower than compute: one more rounding.
  const Profile* profile = nullptr;  // Never null in use.
  Format input = Format::kUnknown;   // The widest of its operands': the class of a product; kUnknown: compute.
  bool replayed = false;             // Our own replay of it, which has no grid of its own.
  bool own_kernel = false;           // A user's own kernel: of its functions and sums the library promises nothing.
  bool convolution = false;          // What the profile says of convolutions holds for its products.
  Magnitudes magnitudes = Magnitudes::kAsWorthwhile;
};

using Inputs = std::span<const Array>;

// What a node's rounding adds to a functional in the statistical model (noise.h): as bias, and in squares.
struct Noise {
  double bias = 0;
  double squares = 0;
  double drift = 0;  // It has both signs, which cancel among a node's elements; its magnitude is bias in the end.
};

// The same, and whole: sum |a| e of the cotangents a and local errors e, rounded up.
struct Charge {
  double whole = 0;
  Noise noise;  // Where it is asked.

  void add(const Charge& part) {
    whole += part.whole;
    noise.bias += part.noise.bias;
    noise.squares += part.noise.squares;
    noise.drift += part.noise.drift;
  }
};

struct PrimitiveTraits {
  Primitive primitive;
  std::string_view name;  // "add", "matmul", ...
  int arity;              // Number of inputs; -1: any.
  bool bitwise;  // Its result is exact whenever the format of its inputs holds it (no local error but a cast's).

  // The exact function in fp64. `shape` is the node's result shape, row-major unless the result is a window.
  Array (*evaluate)(const Attributes&, const Shape& shape, Inputs);

  // Vector-Jacobian product: adds cotangent^T d(out)/d(in_i) to *into[i] where into[i] is not null. Each *into[i] is
  // either empty (not yet touched: assign) or has in_i's shape, row-major, or by columns where in_i lies so. Decisions,
  // indices and integer results have no derivative. Where a derivative is unbounded (sqrt at 0) it is infinite;
  // 0 * infinity = 0 only where the cotangent is exactly 0. Null in rows of elementwise primitives, as are
  // `local_error` and `radius`: element.h has their rules.
  void (*pull_back)(const Attributes&, Inputs, const Array& out, const Array& cotangent,
                    std::span<Array* const> into) = nullptr;

  // Upper bound of |computed - exact function of the same inputs|, elementwise, `out`'s shape; empty: zero.
  Bound (*local_error)(const Attributes&, const Arithmetic&, Inputs, const Array& out) = nullptr;

  // Enclosure: an upper bound of |f(x) - f(centre)| over |x_i - centre_i| <= radius_i, elementwise. Empty radii are
  // zero. Infinite where no finite bound is known. The node's own local error is added by the caller.
  Bound (*radius)(const Attributes&, Inputs centres, std::span<const Bound> radii, const Array& out) = nullptr;

  // What the node's rounding, within `local` (from local_error; not empty), adds to functionals with these cotangents
  // (out's shape) at this node. Null in a row: one event, the rounding of the result; the rest is bias.
  Later<std::vector<Charge>> (*charges)(const Attributes&, const Arithmetic&, Inputs, const Array& out,
                                        const Bound& local, std::span<const Array> cotangents) = nullptr;
};

// The traits are those of the backend that the calling thread computes on (kernels/device.h); all_primitives lists the
// host's.
const PrimitiveTraits& traits(Primitive primitive);
std::span<const PrimitiveTraits> all_primitives();

// Its error model looks at the result alone. Others are bounded at the farthest points of their operands' balls.
inline bool of_result_alone(Primitive primitive, const Attributes& attributes) {
  if (primitive == Primitive::kAdd || primitive == Primitive::kSub) return attributes.scalar == 0;
  return traits(primitive).bitwise || primitive == Primitive::kMul;
}

// Adds |t| u_result + eta_result for the rounding of the result into its format, when that is narrower than the
// compute format; used by every local_error. Exposed for opaque results and casts.
Bound with_storage_rounding(const Arithmetic& arithmetic, const Array& out, Bound compute_error);

}  // namespace plumbline
