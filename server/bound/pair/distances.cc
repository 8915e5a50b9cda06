#include "server/bound/pair/distances.h"

#include <algorithm>
#include <cmath>

#include "kernels/sums.h"
#include "server/bound/envelope/probe.h"
#include "server/bound/findings/compensation.h"
#include "server/bound/pair/reference_execution.h"
#include "server/bound/replay/range.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

double square(double x) { return x * x; }

Apart joined(const Apart& a, const Apart& b) {
  return {std::sqrt(square(a.norm) + square(b.norm)), std::sqrt(square(a.difference) + square(b.difference))};
}

// What was observed of a tap of both programs: of each other and, where that is asked, of exact arithmetic. Elements
// are asked for part by part, so that no array is written that is only read here.
struct ObservedPair {
  Apart each_other, ours, theirs;
  bool equal = true;  // Bit by bit.

  ObservedPair(const BoundsInput& input, const PairedTap& pair, const PairReplays* exact) {
    const GraphTap &target = input.target->taps[pair.target], &reference = input.reference->taps[pair.reference];
    PartsOf our_exact, their_exact;
    if (exact != nullptr) {
      our_exact = parts_of(replayed_value(target, exact->target));
      their_exact = parts_of(replayed_value(reference, exact->reference));
    }
    struct Part {
      Apart each_other, ours, theirs;
      bool equal;
    };
    std::vector<Part> parts(count_parts(count(target.shape)));
    for_each_part(count(target.shape), [&](std::size_t index, std::int64_t begin, std::int64_t length) {
      const Array x = observed_part(target, begin, length), y = observed_part(reference, begin, length);
      Part& part = parts[index];
      part.each_other = apart(x, y);
      part.equal = !(part.each_other.difference > 0) && bitwise_equal(x, y);
      if (exact == nullptr) return;
      part.ours = apart(x, our_exact(begin, length));
      part.theirs = apart(y, their_exact(begin, length));
    });
    for (const Part& part : parts) {
      each_other = joined(each_other, part.each_other);
      ours = joined(ours, part.ours);
      theirs = joined(theirs, part.theirs);
      equal = equal && part.equal;
    }
  }
};

void add(const ObservedPair& pair, Distances* distances) {
  const auto to = [](double* distance, const Apart& with) {
    if (with.norm > 0 && std::isfinite(with.norm))
      *distance = std::sqrt(square(*distance) + square(with.difference / with.norm));
  };
  to(&distances->ours, pair.ours);
  to(&distances->theirs, pair.theirs);
}

}  // namespace

std::optional<Distances> compare_observed(const BoundsInput& input, const std::vector<PairedTap>& pairs,
                                          const PairReplays* exact, Bounds* bounds) {
  const Graph &target = *input.target, &reference = *input.reference;
  bounds->all_taps_equal_reference = !pairs.empty();
  std::optional<Distances> distances;
  for (auto pair = pairs.begin(); pair != pairs.end(); ++pair) {
    const ObservedPair observed(input, *pair, distances ? exact : nullptr);
    const Apart& with = observed.each_other;
    if (distances) {
      add(observed, &*distances);
    } else if (!observed.equal && exact != nullptr) {
      distances.emplace();
      for (auto before = pairs.begin(); before <= pair; ++before) add(ObservedPair(input, *before, exact), &*distances);
    }
    const GraphTap& theirs = reference.taps[pair->reference];
    bounds->all_taps_equal_reference = bounds->all_taps_equal_reference && observed.equal;
    for (Finding& finding : bounds->findings) {
      if (finding.taps != std::vector<std::size_t>{pair->target}) continue;
      finding.drift = with.relative();
      if (count(theirs.shape) == 1) finding.reference = observed_value(theirs).item();
    }
    for (RangeFinding& finding : bounds->range)
      if (finding.tap == target.taps[pair->target].name)
        finding.reference_finite =
            all_finite(observed_value(theirs)) && computes_in(reference, theirs, target.nodes[*finding.first].result);
  }
  return distances;
}

bool distances_tell(const Correspondence& match) {
  const auto named = [](const MatchedItem& item) {
    return item.evidence == Evidence::kNamed || item.evidence == Evidence::kKept;
  };
  return match.drifted.empty() && std::ranges::none_of(match.items, named);
}

void compare_errors(const BoundsInput& input, const PairReplays& replays, const Distances& distances, Bounds* bounds) {
  constexpr double kFurther = 4;
  const auto& [ours, theirs] = distances;
  if (const auto found =
          find_compensation({*input.target, replays.target, ours}, {*input.reference, replays.reference, theirs}))
    bounds->hazards.push_back(*found);
  if (theirs > kFurther * ours) bounds->reference_fault = find_reference_fault(input);
}

}  // namespace plumbline
