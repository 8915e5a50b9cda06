#include "server/bound/pair/standouts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/device.h"
#include "kernels/sums.h"
#include "server/bound/replay/arithmetic.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

constexpr double kOwnRoundoff = 0x1p-53;
constexpr std::size_t kElementsMax = 8, kPerTapMax = 2, kTapsMax = 8;  // That get a probe of their own.
constexpr std::size_t kAlongMax = 4;                                   // Taps that are asked along their gap.
constexpr std::int64_t kDenseMax = 1 << 22;                            // Elements up to which they are.
// One sample of noise may be small by chance: an element's is taken for no less than a share of what elements of its
// tap and of its size move by.
constexpr double kLeastShare = 0x1p-6;
constexpr double kTapStandsOut = 256, kElementStandsOut = 0x1p14;
// Noise is taken for no less than this share of their size.
constexpr double kTapFloor = 0x1p-52, kElementFloor = 0x1p-50;

struct Candidate {
  const PairedTap* pair = nullptr;
  std::int64_t element = 0;
  double times = 0;  // Gap over noise.
  double magnitude = 0;
};

// What elements of one size, to a factor of 16, move by. Those that are not finite count as zeros.
class MovedBySize {
 public:
  void add(double x, double moved) {
    Sum& sum = sums_[index(x)];
    sum.squares += moved * moved;
    ++sum.elements;
  }
  void join(const MovedBySize& other) {
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      sums_[i].squares += other.sums_[i].squares;
      sums_[i].elements += other.sums_[i].elements;
    }
  }
  double noise(double x) const {
    const Sum& sum = sums_[index(x)];
    return sum.elements > 0 ? std::sqrt(sum.squares / sum.elements) : 0;
  }

 private:
  struct Sum {
    double squares = 0, elements = 0;
  };
  static constexpr std::uint64_t kExponents = 1 << 11;
  static std::size_t index(double x) {
    const std::uint64_t exponent = std::bit_cast<std::uint64_t>(x) >> 52 & (kExponents - 1);
    return exponent == kExponents - 1 ? 0 : exponent >> 2;
  }
  std::vector<Sum> sums_ = std::vector<Sum>(kExponents / 4);
};

template <class Container>
void keep_largest(std::size_t most, Container* candidates) {
  std::ranges::sort(*candidates, std::ranges::greater(), &Candidate::times);
  if (candidates->size() > most) candidates->resize(most);
}

constexpr std::int64_t kChunk = 1 << 16;  // Elements that a thread looks at; places in it are counted in 16 bits.

// body(chunk, begin, end) for all chunks of n elements, in parallel.
void for_each_chunk(std::int64_t n, const std::function<void(std::size_t, std::int64_t, std::int64_t)>& body) {
  cpu::parallel_for((n + kChunk - 1) / kChunk, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t c = first; c < last; ++c)
      body(static_cast<std::size_t>(c), c * kChunk, std::min(n, (c + 1) * kChunk));
  });
}

static_assert(kChunk <= 1 << 16);

std::size_t chunks(std::int64_t n) { return static_cast<std::size_t>((n + kChunk - 1) / kChunk); }

double element_floor(double x) { return kElementFloor * std::fabs(x); }

// How far a tap of both programs is apart, and what of it lies beyond the floor: that would stand out if nothing moved
// by more.
struct Beyond {
  double difference = 0, size = 0;                   // Norms of t - r, and of t.
  std::vector<std::vector<std::uint16_t>> elements;  // By chunk, counted from its first.

  Beyond(const Array& t, const Array& r) : elements(chunks(t.count())) {
    constexpr std::int64_t kLanes = 8;
    struct Sums {
      double difference[kLanes] = {}, size[kLanes] = {};
    };
    std::vector<Sums> sums(elements.size());
    for_each_chunk(t.count(), [&](std::size_t chunk, std::int64_t begin, std::int64_t end) {
      Sums sum;
      for (std::int64_t first = begin; first < end; first += kLanes) {
        const double *const x = t.data() + first, *const y = r.data() + first;
        const std::int64_t lanes = std::min(kLanes, end - first);
        bool any = false;
        for (std::int64_t l = 0; l < lanes; ++l) {
          const double by = std::fabs(x[l] - y[l]);
          sum.difference[l] += by * by;
          sum.size[l] += x[l] * x[l];
          any |= by > kElementStandsOut * element_floor(x[l]);
        }
        for (std::int64_t l = 0; any && l < lanes; ++l)
          if (std::fabs(x[l] - y[l]) > kElementStandsOut * element_floor(x[l]))
            elements[chunk].push_back(static_cast<std::uint16_t>(first + l - begin));
      }
      sums[chunk] = sum;
    });
    for (const Sums& sum : sums)
      for (std::int64_t l = 0; l < kLanes; ++l) {
        difference += sum.difference[l];
        size += sum.size[l];
      }
    difference = std::sqrt(difference);
    size = std::sqrt(size);
  }

  bool whole() const { return difference > kTapStandsOut * kTapFloor * size; }
  bool any() const {
    return whole() || std::ranges::any_of(elements, [](const auto& of_chunk) { return !of_chunk.empty(); });
  }
};

// One sample of what roundings make of taps.
class Sample {
 public:
  // The execution, which rounds 1 / `share` times as coarsely as the replay that follows it.
  Sample(const Replay& followed, double share) : exact_(followed), share_(share) {}
  // A replay that rounds otherwise, of these nodes and what they are computed of.
  Sample(const Graph& graph, const PairReplays& replays, const std::vector<NodeId>& nodes)
      : exact_(replays.target),
        jittered_(replay(graph, replays.target_leaves, Precision::kJittered, replays.target_overrides, &exact_,
                         {.only = &nodes})) {}

  // The tap with roundings and without; their difference times share() is of our own precision.
  PartsOf rounded(const GraphTap& tap) const {
    return jittered_ ? parts_of(replayed_value(tap, jittered_).materialize().on_host()) : observed_parts(tap);
  }
  Array exact(const GraphTap& tap) const { return replayed_value(tap, exact_); }
  double share() const { return share_; }

 private:
  const Replay exact_, jittered_;
  const double share_ = 1;
};

// A tap of both programs, on the host, beside its sample.
struct Compared {
  const Array t, r, kept;  // `kept`: 0 of elements that are left out; empty: none is.
  const Beyond& beyond;
  const PartsOf rounded;
  const Array exact;
  const double share;

  // The distances by which elements moved: moved(i) of one from `begin` to `end`. It is 0 where that is not finite.
  auto moved(std::int64_t begin, std::int64_t end) const {
    const HostScope host;  // A device would be waited for at each chunk.
    return [part = rounded(begin, end - begin), begin, this](std::int64_t i) {
      const double by = part.data()[i - begin] - exact.data()[i];
      return std::isfinite(by) ? share * std::fabs(by) : 0;
    };
  }

  // Gathers over all elements how far they moved, by their size, and adds the squares of those that are kept.
  MovedBySize by_size(double* squares) const {
    std::vector<MovedBySize> parts(chunks(t.count()));
    std::vector<double> sums(parts.size(), 0);
    for_each_chunk(t.count(), [&](std::size_t chunk, std::int64_t begin, std::int64_t end) {
      const auto moved = this->moved(begin, end);
      for (std::int64_t i = begin; i < end; ++i) {
        const double by = moved(i);
        parts[chunk].add(t.data()[i], by);
        if (!(kept && kept.data()[i] == 0)) sums[chunk] += by * by;
      }
    });
    for (std::size_t c = 1; c < parts.size(); ++c) parts[0].join(parts[c]);
    for (const double sum : sums) *squares += sum;
    return std::move(parts[0]);
  }

  // Elements that stand out most. `like` (null: nothing): what those of their size move by.
  std::vector<Candidate> elements(const PairedTap& pair, const MovedBySize* like) const {
    std::vector<std::vector<Candidate>> parts(beyond.elements.size());
    for_each_chunk(t.count(), [&](std::size_t chunk, std::int64_t begin, std::int64_t) {
      const std::vector<std::uint16_t>& asked = beyond.elements[chunk];
      if (asked.empty()) return;
      const auto moved = this->moved(begin + asked.front(), begin + asked.back() + 1);
      std::vector<Candidate>& here = parts[chunk];
      for (const std::uint16_t at : asked) {
        const std::int64_t i = begin + at;
        const double x = t.data()[i], by = std::fabs(x - r.data()[i]);
        const double least = like != nullptr ? kLeastShare * like->noise(x) : 0;
        const double around = moved(i) + least + element_floor(x);
        if (by > kElementStandsOut * around) here.push_back({&pair, i, by / around, std::fabs(x)});
        if (here.size() > 16 * kElementsMax) keep_largest(kElementsMax, &here);
      }
    });
    std::vector<Candidate> all;
    for (const std::vector<Candidate>& part : parts) all.insert(all.end(), part.begin(), part.end());
    keep_largest(kPerTapMax, &all);
    return all;
  }
};

Array on_host(const Array& values) { return values ? values.materialize().on_host() : Array(); }

// A functional that weighs each element by its gap. An item that is free moves each element as far as its freedom, and
// this functional only by what it has in common with the gap: a scale or a shift of all elements, which no free item
// makes alone, shows far below the freedom of each.
std::optional<Probe> along_gap(const Compared& both, const PairedTap& pair, const GraphTap& tap) {
  if (both.t.count() > kDenseMax) return std::nullopt;
  Array weights = Array::uninitialized(tap.shape);
  const double length = norm2_difference(both.t, both.r), size = norm2(both.r);
  if (!(length > 0) || !std::isfinite(length)) return std::nullopt;
  for (std::int64_t i = 0; i < weights.count(); ++i) weights.data()[i] = (both.t.data()[i] - both.r.data()[i]) / length;
  return Probe{tap.name,
               {{pair.target, count(tap.shape), dense_weights(weights, tap.shape)}},
               size > 0 ? size : 1,
               /*of_mathematics=*/true};
}

// A tap of both programs that is far enough apart to stand out.
struct Open {
  const PairedTap& pair;
  Beyond beyond;
};

struct Found {
  std::vector<Candidate> taps, elements;
  std::vector<std::pair<double, Probe>> along;  // By how far they stand out.

  bool empty() const { return taps.empty() && elements.empty(); }
};

// What stands out from the sample.
Found stand_out(const Graph& graph, const Gap& gap, const std::vector<Open>& open, const Sample& sample) {
  const bool free = !gap.replays().target_slack.freedoms.empty() || !gap.replays().reference_slack.freedoms.empty();
  Found found;
  for (const auto& [pair, beyond] : open) {
    const GraphTap& tap = graph.taps[pair.target];
    const Compared both{on_host(gap.of_target(pair)), on_host(gap.of_reference(pair)), on_host(gap.mask(pair)), beyond,
                        sample.rounded(tap),          on_host(sample.exact(tap)),      sample.share()};
    // What moved far itself stands out from nothing, however far others moved.
    if (!beyond.whole() && both.elements(pair, nullptr).empty()) continue;
    double squares = 0;
    const MovedBySize like = both.by_size(&squares);
    const double whole = std::sqrt(squares) + kTapFloor * beyond.size;
    if (beyond.difference > kTapStandsOut * whole) {
      found.taps.push_back({&pair, 0, beyond.difference / whole, beyond.size});
      if (std::optional<Probe> probe = free ? along_gap(both, pair, tap) : std::nullopt)
        found.along.emplace_back(beyond.difference / whole, std::move(*probe));
    }
    std::ranges::copy(both.elements(pair, &like), std::back_inserter(found.elements));
  }
  return found;
}

}  // namespace

Standouts find_standouts(const BoundsInput& input, const Gap& gap, const std::map<std::size_t, Answer>& compared,
                         const Replay* followed) {
  Standouts standouts;
  const Graph& graph = *input.target;
  std::vector<Open> open;
  std::vector<NodeId> nodes;
  for (const PairedTap& pair : gap.pairs()) {
    const GraphTap& tap = graph.taps[pair.target];
    standouts.elements += static_cast<std::uint64_t>(count(tap.shape));
    // What has one element is a question already.
    if (count(tap.shape) == 1 || compared.contains(pair.target)) continue;
    Beyond beyond(on_host(gap.of_target(pair)), on_host(gap.of_reference(pair)));
    if (!beyond.any()) continue;
    open.push_back({pair, std::move(beyond)});
    for (const GraphTap::Term& term : tap.terms) nodes.push_back(term.node);
  }
  if (open.empty()) return standouts;
  Found found;
  // The execution moved what it rounds finer by less than our own roundings would: nothing that stands out is passed
  // over, and mostly nothing does.
  bool settled = false;
  if (followed != nullptr) {
    const Roundoffs executed = roundoffs(graph, ancestors(graph, nodes));
    if (executed.coarsest > kOwnRoundoff) {
      found = stand_out(graph, gap, open, Sample(*followed, kOwnRoundoff / executed.coarsest));
      settled = found.empty() || executed.finest == executed.coarsest;
    }
  }
  if (!settled) found = stand_out(graph, gap, open, Sample(graph, gap.replays(), nodes));
  auto& [taps, elements, along] = found;
  keep_largest(kTapsMax, &taps);
  keep_largest(kElementsMax, &elements);
  for (const Candidate& one : taps) {
    standouts.probes.push_back(gap.probe(*one.pair));
    standouts.probes.back().of_mathematics = true;
  }
  std::ranges::sort(along, std::ranges::greater(), &std::pair<double, Probe>::first);
  if (along.size() > kAlongMax) along.resize(kAlongMax);
  for (auto& [times, probe] : along) standouts.probes.push_back(std::move(probe));
  for (const Candidate& one : elements) {
    const GraphTap& tap = graph.taps[one.pair->target];
    standouts.probes.push_back(element_probe(tap.name + "[" + std::to_string(one.element) + "]",
                                             {one.pair->target, tap.name, tap.shape, one.magnitude}, one.element,
                                             one.magnitude));
  }
  return standouts;
}

}  // namespace plumbline
