// What a device and its library promise about their arithmetic. Plain data; loaded from deploy/profiles/ by the
// server. A function with N documented ULPs is charged a relative error of (N + 1/2) 2u.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "kernels/ball/format.h"

namespace plumbline {

// Elementary functions whose error a profile states.
enum class Function {
  kExp,
  kLog,
  kTanh,
  kErf,
  kSin,
  kCos,
  kPow,
  kRsqrt,
  kDivide,
  kSqrt,
  kExpm1,
  kLog1p,
  kSigmoid,
  kAtan2,           // And all inverse trigonometric functions.
  kFusedExp,        // The exponential inside of fused attention; on CPUs of 16-bit numbers.
  kDivideByNumber,  // By a number for all elements: some devices multiply by its rounded reciprocal.
  kCount
};

struct FunctionError {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  double ulp = 4;       // Relative part: (ulp + 1/2) 2u |t|. 0 means correctly rounded (u |t| to nearest).
  double absolute = 0;  // Absolute part, added.
  double slope = 0;     // ULPs added per unit of |x|, x the argument: fast exponentials.
  // What no result may leave; a range that rounding alone would leave is kept by a careful library, and a careless one
  // leaves a range that mathematics keeps.
  double low = -kInfinity, high = kInfinity;
  // For arguments beyond it in magnitude only the range of results is promised.
  double argument_max = kInfinity;
  friend bool operator==(const FunctionError&, const FunctionError&) = default;
};

// Accumulation of a sum of n terms in compute format: c * n_eff * u * sum|terms|, n_eff = k ceil(n/k); of a balanced
// tree n_eff is its height, ceil(log2 n).
struct Accumulation {
  int k = 1;
  double c = 1;
  bool tree = false;  // It holds for reductions to a result, not for scans and scattered sums.
  friend bool operator==(const Accumulation&, const Accumulation&) = default;
};

// What a unit does with a product of matrices, by the format of their elements.
enum class ProductClass { kFp64, kFp32, kTf32, kFp16, kBf16, kFp8, kCount };

// A sum of n products errs by c * n_eff * u * absM with n_eff = k ceil(n/k) and the accumulator's u; an accumulator
// that is promoted to the compute format every q terms gathers only q, and each promotion costs the compute format's u
// absM.
struct Product {
  int k = 1;
  double c = 1;
  int accumulator_bits = 0;          // Precision of the accumulator: u = 2^-bits; 0: the compute format's.
  int accumulator_exponent_min = 0;  // Its smallest normal has this exponent; 0 stands for the compute format's.
  int promote_every = 0;             // q; 0: never.
  bool flushes = false;  // Subnormal elements and products count as zero, whatever the rest of the device does.
  bool inputs_truncated = false;  // Inputs of a wider format are cut off, not rounded to nearest.
  friend bool operator==(const Product&, const Product&) = default;
};

// K split into `parts` partial sums, each held in the compute format or, reduced, in the result's.
struct SplitK {
  int parts = 1;
  bool reduced = false;
  friend bool operator==(const SplitK&, const SplitK&) = default;
};

// How a variance is computed. kStable: two passes, Welford or Chan, whichever; one pass (E[x^2] - E[x]^2) only where it
// is declared.
enum class Variance { kTwoPass, kWelford, kChan, kStable, kOnePass };

struct Profile {
  std::string name = "ieee";
  // The index is a Function. The errors are those of results computed in fp32; fp64 uses the same ULPs.
  FunctionError functions[static_cast<int>(Function::kCount)];
  Accumulation sum;                                          // Reductions.
  Product products[static_cast<int>(ProductClass::kCount)];  // Index: ProductClass.
  SplitK split_k;
  bool tf32_allowed = false;               // Products of fp32 matrices may run in class tf32.
  bool tf32_convolutions = false;          // Those of convolutions and recurrent layers may.
  Rounding rounding = Rounding::kNearest;  // Every result is rounded so.
  bool flush_subnormals = false;           // Operands and results.
  Variance variance = Variance::kStable;
  // Fused optimizers may hold their numbers (betas, rates) in the compute format before they compute with them, and
  // contract products into sums; otherwise they do so in fp64, and round what enters the loop. Beside it, sums may hold
  // parts in a narrower format (kSum), and products a factor without dimensions in the other's (kMul), where the
  // lowering says so.
  bool narrow_numbers = false;
  bool casts_elided = false;         // A value that was stored narrow may have been consumed before it was rounded.
  std::vector<std::string> widened;  // Fields that the file left out and that took their widest legal value.
};

// Correctly rounded + - * / sqrt, functions of a good libm (1 ULP), sums and products in any order.
Profile ieee();

// What PyTorch's CPU kernels were measured to keep, with headroom.
Profile pytorch_cpu();

}  // namespace plumbline
