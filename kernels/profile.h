// What a device and its library promise about their arithmetic. Plain data; loaded from deploy/profiles/ by the
// server. NUMERICS: the error of a function is charged eps_f = (N + 1/2) 2u, N its documented ULP.
#pragma once

#include <map>
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
  kCount
};

struct FunctionError {
  double ulp = 4;       // Relative part: (ulp + 1/2) 2u |t|. 0 means correctly rounded (u |t|).
  double absolute = 0;  // Absolute part, added.
};

// Accumulation of a product or sum of n terms in compute format: c * n_eff * u * sum|terms|, n_eff = k ceil(n/k).
struct Accumulation {
  int k = 1;
  double c = 1;
};

struct Profile {
  std::string name = "ieee";
  // By function, for results computed in fp32; fp64 uses the same ULPs. Index: Function.
  FunctionError functions[static_cast<int>(Function::kCount)];
  Accumulation sum;      // Reductions.
  Accumulation product;  // Matrix products.
  bool flush_subnormals = false;
  std::vector<std::string> widened;  // Fields that the file left out and that took their widest legal value.
};

// Correctly rounded + - * / sqrt, functions of a good libm (1 ULP), sums and products in any order.
Profile ieee();

// What PyTorch's CPU kernels were measured to keep, with headroom.
Profile pytorch_cpu();

}  // namespace plumbline
