// Sketches of tensors that are summed over ranks: a sum of sketches is the sketch of the sum, up to what rounding made.
//
// A tensor is cut into blocks, and of each block there are a few projections: sums with signs +1 and -1 that are drawn
// from a seed, which all nodes have. Small tensors have blocks of one element with the sign +1: every element.
//
// What rounding explains. Let s_1 ... s_n be what n ranks sent, in a format of unit roundoff u (2u where the profile's
// rounding is not to nearest), and r what a rank got. However they are bracketed, an element's sum has n - 1 additions,
// of which each multiplies what is below it by 1 + d, |d| <= u; so with k = n - 1
//   |r_i - sum_j s_ji| <= ((1 + u)^k - 1) sum_j |s_ji| + a
// and k = n + 1 for an average, whose terms are multiplied by a rounded 1/n beside (a division by n errs less).
// Carrying more precision and rounding at the end errs less, too. `a` is for results next to zero: half the smallest
// subnormal for each rounding, or the smallest normal for each operand and result where subnormals are flushed. A
// projection w, |w_i| = 1, of a block then has
//   |<w, r> - sum_j <w, s_j>| <= ((1 + u)^k - 1) sum_j |s_j|_1 + block a,
// and the sketch's own arithmetic adds at most kSketchError of all norms: groups of 64 elements are added in fp64
// (63 2^-53 of their norm), groups and ranks without loss of note (2^-100), and rounded to fp64 once a node.
//
// What it sees. A single wrong element of a block shows in each projection as it is: beyond twice the bound it is
// always found. An error e of several elements may cancel: E <w,e>^2 = |e|_2^2 and E <w,e>^4 <= 3 |e|_2^4, so by
// Paley-Zygmund each projection has |<w,e>| >= |e|_2 / 2 with a probability of at least 3/16; all kProjections miss it
// with at most 0.44 in one block of one call, other blocks, calls and steps independently. Copies are compared bit by
// bit (fingerprint.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ball/format.h"

namespace plumbline {

inline constexpr int kProjections = 4;
inline constexpr std::int64_t kSketchNumbers = 128;  // Of all shares of a tensor together, but kProjections a share.
// Relative to the norms of everything that was added: 64 2^-53 of each side's groups, and ranks' sums rounded.
inline constexpr double kSketchError = 0x1p-45;

std::uint64_t mixed(std::uint64_t x);  // SplitMix64's finalizer.

struct SketchShape {
  std::int64_t blocks = 0;
  int projections = 0;  // 1: blocks are single elements.

  std::size_t numbers() const { return static_cast<std::size_t>(blocks) * static_cast<std::size_t>(projections); }
  std::int64_t begin(std::int64_t block, std::int64_t count) const;  // Of a tensor of that many elements.
};

// Of a share of `count` elements, one of `shares` that a tensor is cut into.
SketchShape sketch_shape(std::int64_t count, std::size_t shares);

struct TensorSketch {
  std::vector<double> sums;   // By block and projection.
  std::vector<double> norms;  // By block; infinite where an element is not finite.
};

// Of `count` elements at `bytes`. Thread-safe.
TensorSketch sketch(Format format, const std::uint8_t* bytes, std::int64_t count, const SketchShape& shape,
                    std::uint64_t seed);

// A sum that loses nothing of note: the error of each addition is kept.
class WideSum {
 public:
  void add(double x) {
    const double sum = high_ + x, of_x = sum - high_;
    low_ += (high_ - (sum - of_x)) + (x - of_x);
    high_ = sum;
  }
  double value() const { return high_ + low_; }

 private:
  double high_ = 0, low_ = 0;
};

// How a reduction over `ranks` terms rounds.
struct SumRounding {
  Format format = Format::kUnknown;
  std::int64_t ranks = 1;
  bool average = false;
  double rounding = 1;  // In half units in the last place; 1: to nearest.
  bool flushes = false;
};

// What rounding explains at most of a projection of a block with that many elements, whose terms have together `norm`.
double allowed_deviation(const SumRounding& sum, std::int64_t elements, double norm);

}  // namespace plumbline
