// Hazards are places where rounding alone does harm, whoever is right (kernels/README.md, "Hazards"). The numbers come
// from the exact replay, beside every node's format; judge/hazards.cc says what they mean.
//
// A hazard is only reported where its error is larger than what rounding to nearest in the same format does anyway, so
// that the few small numbers of any tensor, the tails of any sum and gradients that vanish at an optimum are none. Of
// long chains some stretches stand for all (tiles.h): what is lost in a few rows of a large tensor alone may go untold.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "server/bound/replay/tiles.h"

namespace plumbline {

enum class HazardKind : std::uint8_t {
  kOverflow,      // Finite values beyond the format's largest.
  kUnderflow,     // Gradients or optimizer state below the format's normal range.
  kLostUpdates,   // Steps that leave their weight as it was: |step| < u|w|.
  kStagnation,    // Increments that leave a running sum as it was.
  kSaturation,    // Values beyond the ends of a grid of integers, which are cut off.
  kCancellation,  // Sums far smaller than their terms, which carry errors.
  kCompensation,  // What mathematics says is zero and carries roundings, which one of two programs makes worse.
};

struct HazardFinding {
  HazardKind kind = HazardKind::kOverflow;
  NodeId node = 0;   // Where it is worst.
  double share = 0;  // A share of the elements there that are not zero; for kLostUpdates, of all weights' updates.
  double harm = 0;   // Relative error that it causes: lost over total; kCancellation: terms over their sum.
  // Powers of two by which the loss may be scaled so that gradients neither underflow (at least `scale_min`) nor
  // overflow (at most `scale_max`) in their formats. Absent where the place is not a gradient.
  std::optional<int> scale_min, scale_max;
};

// `values` is the exact replay on the target's decisions, `between` the one that goes on from what was observed. What
// is lost in a weight or a running sum is looked for there, where it was added. What cancels is looked for in exact
// values: where all digits are gone, nothing that was observed tells how much there was. In the optimizer that is
// `between` too, which has no other rounding before it. Refers to what it is made from.
class HazardSearch {
 public:
  HazardSearch(const Graph& graph, const Replay& values, const Replay& between);
  ~HazardSearch();

  // To be looked at, in `values` and in `between`, before anything is found.
  std::vector<Look> looks();
  std::vector<Look> looks_between();
  // At most one finding of each kind and format, worst first within a kind. `not_finite`: some tap is not, so that the
  // wide formats are looked at as well.
  std::vector<HazardFinding> find(bool not_finite);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plumbline
