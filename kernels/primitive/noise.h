// The statistical model of a node's rounding (kernels/README.md, "Envelopes"): what it adds to a scalar functional
// whose cotangent at the node is a. Every local error is split into
//
//   events  zero-mean given all that came before, each within a half-width c: they add in squares, sum (a c)^2;
//   bias    what has no reason to be zero-mean, charged whole: sum |a| b.
//
// An event is one rounding to nearest (or stochastic): c = u|t| (+ eta). Bias is everything else in the local error: a
// function's error beyond half an ulp, truncation, flushing, and additions that a running sum swallows (stagnation).
// Hoeffding and Azuma: the functional then moves by more than bias + sqrt(2 ln(2/alpha) squares) with probability at
// most alpha.
#pragma once

#include "kernels/primitive/primitive.h"

namespace plumbline::primitive {

// The event of rounding the result itself; the rest of `local` is bias. Sound for every primitive.
Later<std::vector<Charge>> noise_of_rounding(const Arithmetic& arithmetic, const Array& out, const Bound& local,
                                             std::span<const Array> cotangents);

// Additions are events: no unit that truncates, no tree that the profile declares in its place.
bool zero_mean_sums(const Profile& profile);

#define PLUMBLINE_NOISE(name)                                                                                         \
  Later<std::vector<Charge>> name(const Attributes&, const Arithmetic&, Inputs, const Array& out, const Bound& local, \
                                  std::span<const Array> cotangents);
PLUMBLINE_NOISE(noise_default)
PLUMBLINE_NOISE(noise_sum)
PLUMBLINE_NOISE(noise_scatter_add)
PLUMBLINE_NOISE(noise_matmul)
PLUMBLINE_NOISE(noise_norm)
PLUMBLINE_NOISE(noise_variance_rsqrt)
PLUMBLINE_NOISE(noise_softmax)
PLUMBLINE_NOISE(noise_log_softmax)
#undef PLUMBLINE_NOISE
template <int kSecondSign>
Later<std::vector<Charge>> noise_add(const Attributes&, const Arithmetic&, Inputs, const Array& out, const Bound& local,
                                     std::span<const Array> cotangents);

}  // namespace plumbline::primitive
