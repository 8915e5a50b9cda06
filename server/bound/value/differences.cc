#include "server/bound/value/differences.h"

#include <algorithm>
#include <cmath>

#include "kernels/sums.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

constexpr double kNearLimit = 0.9;  // Beyond this share of a format's largest number rounding may overflow.

bool one_class(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b)) || (std::isfinite(a) && std::isfinite(b));
}

// Values on the way to the tap come near the end of their format's range, so that a program which computes them
// otherwise may leave it.
bool near_overflow(const Graph& graph, const Replay& exact, const GraphTap& tap) {
  const std::vector<bool> before = ancestors(graph, nodes_of(tap));
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (!before[id] || !exact.has(id) || !is_float(node.result) || node.primitive == Primitive::kLeaf ||
        node.primitive == Primitive::kConstant)
      continue;
    if (largest_finite(node.result) < largest_finite(Format::kFloat32) / 2) return true;
    const Array values = exact.computed(id).on_host();
    // A square of what is computed, or an exponential without its row's maximum, is as far as another way goes.
    const double limit = std::sqrt(largest_finite(node.result));
    for (std::int64_t i = 0; i < values.count(); ++i)
      if (std::fabs(values.data()[i]) > limit) return true;
  }
  return false;
}

class Differences {
 public:
  Differences(const Graph& graph, const std::vector<LeafValue>& leaves, const Replay& exact)
      : graph_(graph), leaves_(leaves), exact_(exact) {}

  ValueDifferences run() {
    for (std::size_t i = 0; i < graph_.taps.size(); ++i)
      if (graph_.taps[i].reference && count(graph_.taps[i].shape) > 0) add(i);
    return std::move(found_);
  }

 private:
  void add(std::size_t index) {
    const GraphTap& tap = graph_.taps[index];
    const Array r = reference_value(tap).on_host(), m = replayed_value(tap, exact_).materialize().on_host();
    ValueDifference one{index, Array::uninitialized(tap.shape), Array::uninitialized(tap.shape),
                        Array::uninitialized(tap.shape), Array::full(tap.shape, 1)};
    bool masked = false;
    PatternFinding pattern{tap.name};
    double squares = 0;
    for (std::int64_t i = 0; i < r.count(); ++i) {
      const double value = r.data()[i], centre = m.data()[i];
      const bool finite = std::isfinite(value) && std::isfinite(centre);
      one.reference.data()[i] = finite ? value : 0;
      one.exact.data()[i] = finite ? centre : 0;
      one.difference.data()[i] = finite ? value - centre : 0;
      if (finite) squares += centre * centre;
      if (finite) continue;
      one.mask.data()[i] = 0;
      masked = true;
      if (one_class(value, centre)) continue;
      if (pattern.elements++ == 0) {
        pattern.element = static_cast<std::uint64_t>(i);
        pattern.reference = value;
        pattern.exact = centre;
      }
    }
    one.norm = std::sqrt(squares);
    if (!masked) one.mask = Array();
    if (pattern.elements > 0) note(tap, r, m, pattern);
    found_.taps.push_back(std::move(one));
  }

  void note(const GraphTap& tap, const Array& r, const Array& m, PatternFinding pattern) {
    const double limit = largest_finite(tap.reference_format);
    const Array ran = observed_value(tap).on_host();
    std::optional<bool> near;
    bool open = false;
    for (std::int64_t i = 0; i < r.count(); ++i) {
      const double value = r.data()[i], centre = m.data()[i];
      if (one_class(value, centre)) continue;
      bool certain = false;
      if (std::isfinite(centre)) {
        if (!near) near = near_overflow(graph_, exact_, tap);
        certain = !*near && std::fabs(centre) <= kNearLimit * limit;
      } else if (!one_class(ran.data()[i], centre)) {
        certain = false;  // The target itself ran otherwise: this is our replay's, and says nothing of the mathematics.
      } else if (std::isfinite(value)) {
        certain = std::fabs(value) < kNearLimit * limit && stays(tap, i, centre);
      } else {
        // An infinity of the other sign is certain where the centre stays one.
        certain = stays(tap, i, centre) && !std::isnan(value) && !std::isnan(centre);
      }
      if (certain) {
        pattern.certain = true;
        pattern.element = static_cast<std::uint64_t>(i);
        pattern.reference = value;
        pattern.exact = centre;
        found_.patterns.push_back(pattern);
        return;
      }
      // A result beyond the range of its format, which the other holds as an infinity.
      const bool overflow = std::isinf(value) && std::isfinite(centre) && std::signbit(value) == std::signbit(centre) &&
                            std::fabs(centre) > kNearLimit * limit;
      open = open || !overflow;
    }
    if (open) found_.patterns.push_back(pattern);
  }

  // Whether the element stays in its class of numbers that are not finite, however a replay rounds.
  bool stays(const GraphTap& tap, std::int64_t element, double centre) {
    if (!jittered_) jittered_ = replay(graph_, leaves_, Precision::kJittered, {}, &exact_);
    return one_class(replayed_value(tap, jittered_).materialize().on_host().data()[element], centre);
  }

  const Graph& graph_;
  const std::vector<LeafValue>& leaves_;
  const Replay& exact_;
  Replay jittered_;
  ValueDifferences found_;
};

}  // namespace

double ValueDifference::relative() const {
  const double away = norm2(difference);
  return away == 0 ? 0 : norm > 0 ? away / norm : HUGE_VAL;
}

ValueDifferences value_differences(const Graph& graph, const std::vector<LeafValue>& leaves, const Replay& exact) {
  return Differences(graph, leaves, exact).run();
}

}  // namespace plumbline
