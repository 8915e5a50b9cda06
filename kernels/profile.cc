#include "kernels/profile.h"

namespace plumbline {
namespace {

void set(Profile& profile, Function function, double ulp, double absolute) {
  FunctionError& error = profile.functions[static_cast<int>(function)];
  error.ulp = ulp;
  error.absolute = absolute;
}

void keep_range(Profile& profile, Function function, double low, double high) {
  FunctionError& error = profile.functions[static_cast<int>(function)];
  error.low = low;
  error.high = high;
}

constexpr double kSmallestNormal = 0x1p-126;  // This is fp32's.

}  // namespace

Profile ieee() {
  Profile profile;
  profile.name = "ieee";
  for (FunctionError& error : profile.functions) error = {.ulp = 1};
  for (const Function function : {Function::kSin, Function::kCos, Function::kTanh, Function::kErf})
    keep_range(profile, function, -1, 1);
  keep_range(profile, Function::kSigmoid, 0, 1);
  set(profile, Function::kDivide, 0, 0);
  set(profile, Function::kDivideByNumber, 0, 0);
  set(profile, Function::kSqrt, 0, 0);
  set(profile, Function::kRsqrt, 2, 0);
  // 1 / (1 + exp(-x)): the exponential overflows before the result underflows.
  set(profile, Function::kSigmoid, 4, kSmallestNormal);
  return profile;
}

// Measured on PyTorch 2.15, AVX-512, fp32 against fp64: 4 million values a range (whole exponent range, the working
// range, around the zeros), contiguous and strided, the largest (|error| - half an ulp) in ulps in brackets.
Profile pytorch_cpu() {
  Profile profile = ieee();
  profile.name = "pytorch-cpu";
  // torch.exp and softmax [0.16]; but the exponential inside fused attention [1.8], which also flushes results in the
  // last binade above the subnormals to 0.
  set(profile, Function::kExp, 2.5, kSmallestNormal);
  set(profile, Function::kLog, 1, 0);                    // [0.30]
  set(profile, Function::kLog1p, 1, 0);                  // [0.50, next to the subnormals]
  set(profile, Function::kExpm1, 1, 0);                  // [0.25]
  set(profile, Function::kTanh, 1, 0);                   // [0.01]
  set(profile, Function::kSin, 1, 0);                    // [0.05]
  set(profile, Function::kCos, 1, 0);                    // [0.05]
  set(profile, Function::kPow, 1, 0);                    // [0.06; 0.48 where the exponent is 3]
  set(profile, Function::kAtan2, 1.5, 0);                // [0.95; asin, acos, atan 0.33]
  set(profile, Function::kRsqrt, 1, 0);                  // [0.25]
  set(profile, Function::kSqrt, 0.5, 0);                 // [0.25]: not correctly rounded.
  set(profile, Function::kDivide, 0, 0);                 // [0]
  set(profile, Function::kSigmoid, 2, kSmallestNormal);  // [0.74]
  // Kernels for 16-bit queries take 2^f = 1 + f - K(f) with a cubic K that is off by up to 1.0704e-4 (Malossi et al.,
  // 2015; all of f in [0, 1)), and round to a multiple of 2^-17 in the end; x log2(e) is rounded, and so is its integer
  // part's rest.
  set(profile, Function::kFusedExp, 970, kSmallestNormal);
  profile.functions[static_cast<int>(Function::kFusedExp)].slope = 1.5;
  // torch.erf [0.11]; but the one inside gelu is off by 5e-7 near 2.1, whatever its ulp.
  set(profile, Function::kErf, 1, 6e-7);
  // AMX and AVX512-BF16 count subnormal elements and products as zero.
  profile.products[static_cast<int>(ProductClass::kBf16)].flushes = true;
  return profile;
}

}  // namespace plumbline
