#include "server/bound/pair/standouts.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/sums.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

constexpr std::size_t kElementsMax = 8, kTapsMax = 8;  // That get a probe of their own.
// One sample of noise may be small by chance: an element's is taken for no less than a share of what elements of its
// tap and of its size, to a factor of 16, move by.
constexpr double kLeastShare = 0x1p-6;
constexpr double kTapStandsOut = 256, kElementStandsOut = 0x1p14;
constexpr double kTapFloor = 0x1p-52, kElementFloor = 0x1p-50;  // Of their size: noise is taken for no less.

struct Candidate {
  const PairedTap* pair = nullptr;
  std::int64_t element = 0;
  double times = 0;  // Gap over noise.
  double magnitude = 0;
};

int size_of(double x) { return x == 0 ? -2000 : std::ilogb(x) >> 2; }

struct Moved {
  double squares = 0, elements = 0;
  void add(double moved) {
    squares += moved * moved;
    ++elements;
  }
  double noise() const { return elements > 0 ? std::sqrt(squares / elements) : 0; }
};

template <class Container>
void keep_largest(std::size_t most, Container* candidates) {
  std::ranges::sort(*candidates, std::ranges::greater(), &Candidate::times);
  if (candidates->size() > most) candidates->resize(most);
}

// Whether anything of the tap would stand out if nothing moved by more than the floor: most healthy steps need no
// replay with noise.
bool may_stand_out(const Array& t, const Array& r, double difference, double size) {
  if (t.count() > 1 && difference > kTapStandsOut * kTapFloor * size) return true;
  for (std::int64_t i = 0; i < t.count() && t.count() > 1; ++i)
    if (std::fabs(t.data()[i] - r.data()[i]) > kElementStandsOut * kElementFloor * std::fabs(t.data()[i])) return true;
  return false;
}

}  // namespace

Standouts find_standouts(const BoundsInput& input, const Gap& gap, const std::map<std::size_t, Answer>& compared) {
  Standouts found;
  const Graph& graph = *input.target;
  std::vector<const PairedTap*> open;
  std::vector<NodeId> nodes;
  for (const PairedTap& pair : gap.pairs()) {
    const GraphTap& tap = graph.taps[pair.target];
    found.elements += static_cast<std::uint64_t>(count(tap.shape));
    if (compared.contains(pair.target)) continue;
    const Array t = gap.of_target(pair).materialize().on_host(), r = gap.of_reference(pair).materialize().on_host();
    const double difference = norm2_difference(t, r);
    if (difference == 0 || !may_stand_out(t, r, difference, norm2(t))) continue;
    open.push_back(&pair);
    for (const GraphTap::Term& term : tap.terms) nodes.push_back(term.node);
  }
  if (open.empty()) return found;
  const Replay jittered = replay(graph, gap.replays().target_leaves, Precision::kJittered,
                                 gap.replays().target_overrides, &gap.replays().target, nullptr, &nodes);
  std::vector<Candidate> taps, elements;
  for (const PairedTap* each : open) {
    const PairedTap& pair = *each;
    const GraphTap& tap = graph.taps[pair.target];
    const Array t = gap.of_target(pair).materialize().on_host(), r = gap.of_reference(pair).materialize().on_host();
    const double difference = norm2_difference(t, r), size = norm2(t);
    const Array mask = gap.mask(pair), kept = mask ? mask.on_host() : Array();
    const Array moved = replayed_value(tap, jittered).materialize().on_host();
    const auto moved_by = [&](std::int64_t i) {
      return std::isfinite(moved.data()[i]) ? std::fabs(moved.data()[i] - t.data()[i]) : 0.0;
    };
    std::map<int, Moved> like;  // By size: what elements of one size move by.
    for (std::int64_t i = 0; i < t.count() && t.count() > 1; ++i) like[size_of(t.data()[i])].add(moved_by(i));
    double squares = 0;
    for (std::int64_t i = 0; i < t.count(); ++i)
      if (std::isfinite(moved.data()[i]) && !(kept && kept.data()[i] == 0))
        squares += std::pow(moved.data()[i] - t.data()[i], 2);
    const double noise = std::sqrt(squares) + kTapFloor * size;
    if (t.count() > 1 && difference > kTapStandsOut * noise) taps.push_back({&pair, 0, difference / noise, size});
    std::vector<Candidate> here;
    for (std::int64_t i = 0; i < t.count() && t.count() > 1; ++i) {
      const double apart = std::fabs(t.data()[i] - r.data()[i]);
      const double own = moved_by(i);
      const double least = kLeastShare * like[size_of(t.data()[i])].noise();
      const double around = own + least + kElementFloor * std::fabs(t.data()[i]);
      if (apart > kElementStandsOut * around) here.push_back({&pair, i, apart / around, std::fabs(t.data()[i])});
      if (here.size() > 16 * kElementsMax) keep_largest(kElementsMax, &here);
    }
    keep_largest(2, &here);
    elements.insert(elements.end(), here.begin(), here.end());
  }
  keep_largest(kTapsMax, &taps);
  keep_largest(kElementsMax, &elements);
  for (const Candidate& one : taps) {
    found.probes.push_back(gap.probe(*one.pair));
    found.probes.back().of_mathematics = true;
  }
  for (const Candidate& one : elements) {
    const GraphTap& tap = graph.taps[one.pair->target];
    found.probes.push_back(element_probe(tap.name + "[" + std::to_string(one.element) + "]",
                                         {one.pair->target, tap.name, tap.shape, one.magnitude}, one.element,
                                         one.magnitude));
  }
  return found;
}

}  // namespace plumbline
