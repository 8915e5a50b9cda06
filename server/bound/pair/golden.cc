#include "server/bound/pair/golden.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "kernels/sums.h"
#include "server/bound/findings/invariants.h"
#include "server/bound/match/readings.h"
#include "server/bound/replay/range.h"
#include "server/bound/replay/taps.h"
#include "server/lower/lower.h"

namespace plumbline {
namespace {

constexpr std::int64_t kSmallTapElementsMax = 64;
constexpr std::size_t kScalarProbesMax = 16;
constexpr double kNotAnswered = std::numeric_limits<double>::quiet_NaN();

// A scalar product, and a bound of its own error.
struct Projection {
  double value = 0, error = 0;
};

// Dot2 of Ogita, Rump and Oishi (2005), Accurate sum and dot product, algorithm 5.3: as in twice the precision.
// |error| <= u |value| + gamma_n^2 sum|w_i x_i|, proposition 5.5.
Projection project(const Array& weights, const Array& values) {
  const Array w = weights.on_host(), x = values.on_host();
  double sum = 0, low = 0, magnitude = 0;
  for (std::int64_t i = 0; i < w.count(); ++i) {
    const double product = w.data()[i] * x.data()[i];
    const double product_low = std::fma(w.data()[i], x.data()[i], -product);
    const double next = sum + product;
    const double part = next - sum;
    low += ((sum - (next - part)) + (product - part)) + product_low;
    sum = next;
    magnitude += std::fabs(product);
  }
  const double nu = static_cast<double>(w.count() + 1) * 0x1p-53;
  return {sum + low, 0x1p-52 * std::fabs(sum + low) + 2 * nu * nu * magnitude};
}

std::string values_digest(const Array& values) {
  std::vector<std::uint8_t> bytes;
  const Array x = values.on_host();
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double value = std::isnan(x.data()[i]) ? kNotAnswered : x.data()[i];  // One NaN for all.
    const auto* raw = reinterpret_cast<const std::uint8_t*>(&value);
    bytes.insert(bytes.end(), raw, raw + sizeof value);
  }
  return content_digest(bytes);
}

std::vector<double> listed(const Array& values) {
  const Array x = values.on_host();
  return {x.data(), x.data() + x.count()};
}

Array array_of(const std::vector<double>& values, const Shape& shape) {
  Array array = Array::uninitialized(shape);
  std::copy(values.begin(), values.end(), array.data());
  return array;
}

bool on_grid(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.primitive == Primitive::kRound || node.primitive == Primitive::kFloor ||
           node.primitive == Primitive::kCeil || node.primitive == Primitive::kTrunc;
  });
}

std::string group_of(TapKind kind) {
  if (kind == TapKind::kGradient) return "all gradients";
  if (outlives_step(kind)) return "all updates and state";
  return "all values";
}

// Scalar taps one by one, the rest by kind. Taps that are not finite in exact arithmetic are in none.
std::vector<GoldenStep::Probe> plan(const std::vector<GoldenStep::Tap>& taps) {
  std::vector<GoldenStep::Probe> scalars, groups;
  for (const GoldenStep::Tap& tap : taps) {
    if (!std::isfinite(tap.magnitude) || count(tap.shape) == 0) continue;
    const bool own = tap.kind == TapKind::kLoss || tap.kind == TapKind::kValue;
    if (own && count(tap.shape) == 1 && scalars.size() < kScalarProbesMax) {
      scalars.push_back({tap.name, {tap.name}, true});
      continue;
    }
    const std::string name = group_of(tap.kind);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& probe) { return probe.name == name; });
    if (group == groups.end()) group = groups.insert(groups.end(), {name, {}, false});
    group->taps.push_back(tap.name);
  }
  scalars.insert(scalars.end(), groups.begin(), groups.end());
  return scalars;
}

// The golden step's taps by name, and their places in a graph that has them all.
struct Places {
  std::map<std::string, const GoldenStep::Tap*> taps;
  std::map<std::string, std::size_t> indices;
};

Probe weights_of(const GoldenStep& golden, const GoldenStep::Probe& recorded, const Places& places) {
  const auto index = static_cast<std::uint64_t>(&recorded - golden.probes.data());
  std::vector<ProbeTap> taps;
  for (const std::string& name : recorded.taps) {
    const GoldenStep::Tap& tap = *places.taps.at(name);
    taps.push_back({places.indices.at(name), name, tap.shape, tap.magnitude});
  }
  return recorded.scalar ? scalar_probe(taps.front()) : signs_probe(recorded.name, taps, golden.seed + index);
}

Places places_in(const Graph& graph, const GoldenStep& golden) {
  Places places;
  for (const GoldenStep::Tap& tap : golden.taps) places.taps[tap.name] = &tap;
  for (std::size_t i = 0; i < graph.taps.size(); ++i)
    if (places.taps.count(graph.taps[i].name) != 0) places.indices[graph.taps[i].name] = i;
  for (const GoldenStep::Tap& tap : golden.taps)  // The graph may have another reading of it.
    if (is_other_reading(tap.name) && places.indices.count(tap.name) == 0)
      if (const auto first = places.indices.find(first_reading(tap.name));
          first != places.indices.end() && graph.taps[first->second].shape == tap.shape)
        places.indices[tap.name] = first->second;
  return places;
}

std::string describe(const GoldenStep::Leaf& leaf, std::size_t index) {
  const std::string name = leaf.name.empty() ? "data " + std::to_string(index) : "'" + leaf.name + "'";
  return "leaf " + name + " (" + std::string(traits(leaf.format).name) + ", " + std::to_string(leaf.count) +
         " elements)";
}

std::string leaf_digest(const Trace& trace, const TraceLeaf& leaf) {
  const auto payload = trace.payloads.find(leaf.payload);
  return payload == trace.payloads.end() ? std::string() : content_digest(*payload->second);
}

// What pairing would compare: taps of both, in shapes and in number.
void compare_taps(const Graph& target, const GoldenStep& golden, const Places& places, Bounds* bounds) {
  bounds->all_taps_equal_reference = !golden.taps.empty();
  for (const GraphTap& tap : target.taps)
    if (places.taps.count(tap.name) == 0 && !is_other_reading(tap.name))
      bounds->unpaired_taps.push_back("'" + tap.name + "' (target only)");
  for (const GoldenStep::Tap& tap : golden.taps) {
    const auto found = places.indices.find(tap.name);
    if (found == places.indices.end()) {
      bounds->unpaired_taps.push_back("'" + tap.name + "' (golden run only)");
      continue;
    }
    const GraphTap& ours = target.taps[found->second];
    if (ours.name != tap.name) continue;  // Another reading of it, which need not be the one that is compared.
    if (ours.shape != tap.shape) {
      bounds->shape_conflicts.push_back("tap '" + tap.name + "': target " + to_string(ours.shape) + ", golden run " +
                                        to_string(tap.shape));
      continue;
    }
    const Array observed = observed_value(ours);
    bounds->all_taps_equal_reference =
        bounds->all_taps_equal_reference && values_digest(observed) == tap.observed_digest;
    if (tap.observed.empty()) continue;
    const Array theirs = array_of(tap.observed, tap.shape);
    const double drift = apart(observed, theirs).get().relative();
    for (Finding& finding : bounds->findings) {
      if (finding.taps != std::vector<std::size_t>{found->second}) continue;
      finding.drift = drift;
      if (tap.observed.size() == 1) finding.reference = tap.observed.front();
    }
  }
}

// A recorded probe, asked of the target: its parts and, for each, the golden step's tap.
struct Asked {
  const GoldenStep::Probe* recorded;
  Probe probe;
  std::vector<const GoldenStep::Tap*> taps;
};

// What a part of a probe sees of the difference of two taps.
struct PartGap {
  double difference = 0, error = 0;
  double relative = 0;  // To the tap's own magnitude.
};

PartGap gap_of(const Graph& target, const Replay& exact, const Probe::Part& part, const GoldenStep::Tap& tap) {
  PartGap gap;
  const Array weights = part.weights.array(), ours = replayed_value(target.taps[part.tap], exact);
  if (!tap.exact.empty()) {
    gap.difference = dot_difference(weights, ours, array_of(tap.exact, tap.shape));
  } else {
    const Projection projection = project(weights, ours);
    gap.difference = projection.value - tap.projection;
    gap.error = 2 * projection.error;  // Theirs is of the same size.
  }
  const double own = tap.magnitude * norm2(weights) / std::sqrt(static_cast<double>(count(tap.shape)));
  gap.relative = gap.difference == 0 ? 0 : std::fabs(gap.difference) / (own > 0 ? own : 1);
  return gap;
}

struct Gap {
  double difference = 0, error = 0;
  std::vector<double> by_tap;  // Relative, as far as the probe sees it.
};

Gap gap_of(const Graph& target, const Replay& exact, const Asked& asked) {
  Gap gap;
  for (std::size_t i = 0; i < asked.taps.size(); ++i) {
    const PartGap part = gap_of(target, exact, asked.probe.parts[i], *asked.taps[i]);
    gap.difference += part.difference;
    gap.error += part.error;
    gap.by_tap.push_back(part.relative);
  }
  return gap;
}

// Of the readings of each gradient or loss (readings.h) in either program the two that are closest are asked about.
void keep_closest(const Graph& target, const Replay& exact, Asked* asked) {
  if (std::ranges::none_of(target.taps, is_other_reading, &GraphTap::name) &&
      std::ranges::none_of(asked->taps, is_other_reading, &GoldenStep::Tap::name))
    return;
  std::map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < target.taps.size(); ++i) places[target.taps[i].name] = i;
  struct Choice {
    double distance = HUGE_VAL;
    std::size_t part = 0, tap = 0;
  };
  std::map<std::string, Choice> choices;
  for (std::size_t i = 0; i < asked->taps.size(); ++i) {
    const GoldenStep::Tap& tap = *asked->taps[i];
    Choice& choice =
        choices.try_emplace(first_reading(tap.name), Choice{HUGE_VAL, i, asked->probe.parts[i].tap}).first->second;
    for (const std::string& name : all_readings(tap.name)) {
      const auto found = places.find(name);
      if (found == places.end() || target.taps[found->second].shape != tap.shape) continue;
      Probe::Part part = asked->probe.parts[i];
      part.tap = found->second;
      if (const double relative = gap_of(target, exact, part, tap).relative; relative < choice.distance)
        choice = {relative, i, part.tap};
    }
  }
  std::vector<Probe::Part> parts;
  std::vector<const GoldenStep::Tap*> taps;
  for (const auto& [name, choice] : choices) {
    parts.push_back(asked->probe.parts[choice.part]);
    parts.back().tap = choice.tap;
    taps.push_back(asked->taps[choice.part]);
  }
  if (asked->recorded->scalar) asked->probe.name = target.taps[parts.front().tap].name;
  asked->probe.parts = std::move(parts);
  asked->taps = std::move(taps);
}

// A loss has a probe for each reading of the golden run's: only the closest is asked.
void keep_closest_scalars(const Graph& target, const Replay& exact, std::vector<Asked>* all) {
  const auto distance = [&](const Asked& asked) {
    const double relative = gap_of(target, exact, asked).by_tap.front();
    return std::isnan(relative) ? HUGE_VAL : relative;
  };
  std::map<std::string, double> least;
  for (const Asked& asked : *all)
    if (asked.recorded->scalar) {
      double& known = least.try_emplace(first_reading(asked.recorded->name), HUGE_VAL).first->second;
      known = std::fmin(known, distance(asked));
    }
  std::set<std::string> kept;
  std::erase_if(*all, [&](const Asked& asked) {
    if (!asked.recorded->scalar) return false;
    const std::string name = first_reading(asked.recorded->name);
    return distance(asked) > least[name] || !kept.insert(name).second;
  });
}

NodeId node_of(const Graph& graph, std::size_t tap) { return graph.taps[tap].terms.front().node; }

// The target's first operation with a tap that differs, among those that differ by much.
void suspect_first(const Graph& target, const std::map<std::size_t, double>& gaps, Bounds* bounds) {
  double largest = 0;
  for (const auto& [tap, gap] : gaps) largest = std::fmax(largest, gap);
  for (const auto& [tap, gap] : gaps) {
    if (!(gap >= 1e-3 * largest) || gap == 0) continue;
    const NodeId node = node_of(target, tap);
    if (bounds->suspicion && bounds->suspicion->node <= node) continue;
    bounds->suspicion =
        Suspicion{node, "it or an operation before it: tap '" + target.taps[tap].name + "' is the first that differs",
                  false, false};
  }
}

}  // namespace

GoldenStep record_golden(const Trace& trace, std::uint64_t seed, const Profile& profile) {
  GoldenStep golden;
  golden.rank = trace.identity.rank;
  golden.step = trace.identity.step;
  golden.digest = trace.digest;
  golden.seed = seed;
  for (const TraceLeaf& leaf : trace.leaves)
    golden.leaves.push_back({leaf.role, leaf.name, leaf.format, leaf.count, leaf_digest(trace, leaf)});

  const Graph graph = lower(trace);
  golden.opaque = graph.coverage.opaque > 0;
  golden.on_grid = on_grid(graph);
  golden.overflow = overflow_was_found(graph);
  const Replay exact = replay(graph, leaf_values(graph), Precision::kExact);
  for (const GraphTap& tap : graph.taps) {
    const Array value = replayed_value(tap, exact), observed = observed_value(tap);
    GoldenStep::Tap kept{
        tap.name, tap.kind, tap.shape, all_finite(value) ? probe_tap(0, tap, value).magnitude.get() : HUGE_VAL,
        0,        {},       {},        values_digest(observed)};
    if (count(tap.shape) <= kSmallTapElementsMax) {
      kept.exact = listed(value);
      kept.observed = listed(observed);
    }
    golden.taps.push_back(std::move(kept));
  }
  golden.probes = plan(golden.taps);

  const Places places = places_in(graph, golden);
  std::vector<Probe> probes;
  for (const GoldenStep::Probe& recorded : golden.probes) probes.push_back(weights_of(golden, recorded, places));
  const std::vector<Envelope> envelopes = adjoint_envelopes(graph, exact, probes, profile, Executions::kOwn,
                                                            {uncertain_numbers(graph, exact, nullptr), {}});
  for (std::size_t p = 0; p < probes.size(); ++p) {
    golden.probes[p].rho = envelopes[p].rho;
    golden.probes[p].noise_bias = envelopes[p].own_noise.bias;
    golden.probes[p].noise_squares = envelopes[p].own_noise.squares;
    golden.probes[p].python = envelopes[p].python;
    for (const Probe::Part& part : probes[p].parts)
      golden.taps[part.tap].projection =
          project(part.weights.array(), replayed_value(graph.taps[part.tap], exact)).value;
  }
  return golden;
}

std::string first_foreign_leaf(const Trace& trace, const GoldenStep& golden) {
  std::map<std::string, const TraceLeaf*> by_name;
  std::multiset<std::string> data;
  for (const TraceLeaf& leaf : trace.leaves) {
    if (named(leaf.role)) {
      by_name.emplace(leaf.name, &leaf);
    } else if (leaf.role == LeafRole::kData && leaf.count > 1) {
      data.insert(leaf_digest(trace, leaf));
    }
  }
  std::string unmatched;
  for (std::size_t i = 0; i < golden.leaves.size(); ++i) {
    const GoldenStep::Leaf& leaf = golden.leaves[i];
    if (leaf.role == LeafRole::kUnwritten) continue;
    if (leaf.role == LeafRole::kData) {
      if (leaf.count <= 1) continue;
      const auto same = data.find(leaf.digest);
      if (same != data.end()) {
        data.erase(same);
      } else if (unmatched.empty()) {
        unmatched = describe(leaf, i);
      }
      continue;
    }
    const auto found = by_name.find(leaf.name);
    if (found == by_name.end()) {
      if (leaf.role == LeafRole::kRandom) continue;  // A draw that the target does not make.
      return describe(leaf, i) + " is not among the target's";
    }
    const TraceLeaf& ours = *found->second;
    if (ours.format != leaf.format || ours.count != leaf.count)
      return describe(leaf, i) + " is " + std::string(traits(ours.format).name) + ", " + std::to_string(ours.count) +
             " elements in the target";
    if (leaf_digest(trace, ours) != leaf.digest) return describe(leaf, i) + " has other content in the target";
  }
  if (unmatched.empty() || data.empty()) return "";
  return unmatched + " is not among the data that the target was fed";
}

void pair_with_golden(const BoundsInput& input, const Replay& target_exact, const Uncertainty& numbers,
                      Bounds* bounds) {
  const Graph& target = *input.target;
  const GoldenStep& golden = *input.golden;
  bounds->paired = true;
  bounds->cuts_complete = !golden.opaque && target.opaque.empty();
  const Places places = places_in(target, golden);
  compare_taps(target, golden, places, bounds);
  if (!bounds->shape_conflicts.empty()) return;

  const bool skipped = golden.overflow != overflow_was_found(target);
  const bool uncertain = golden.on_grid || on_grid(target);  // A tie may have gone either way.
  std::vector<Asked> all_asked;
  for (const GoldenStep::Probe& probe : golden.probes) {
    const bool complete = std::all_of(probe.taps.begin(), probe.taps.end(),
                                      [&](const std::string& name) { return places.indices.count(name) != 0; });
    if (skipped && probe.name == group_of(TapKind::kUpdate)) {
      bounds->skipped_taps.insert(bounds->skipped_taps.end(), probe.taps.begin(), probe.taps.end());
    } else if (complete) {
      Asked& asked = all_asked.emplace_back(Asked{&probe, weights_of(golden, probe, places), {}});
      for (const std::string& name : probe.taps) asked.taps.push_back(places.taps.at(name));
      if (probe.scalar || probe.name == group_of(TapKind::kGradient)) keep_closest(target, target_exact, &asked);
    } else {
      Finding unanswered;
      unanswered.name = probe.name;
      unanswered.mathematics.asked = true;
      bounds->findings.push_back(std::move(unanswered));
    }
  }
  keep_closest_scalars(target, target_exact, &all_asked);
  std::vector<Probe> probes;
  std::ranges::transform(all_asked, std::back_inserter(probes), &Asked::probe);
  const std::vector<Envelope> own =
      adjoint_envelopes(target, target_exact, probes, *input.profile, Executions::kOwn, {numbers, {}});
  const double lambda = hoeffding_lambda(std::max(1.0, static_cast<double>(probes.size())), input.alpha);
  std::map<std::size_t, double> differing;
  for (std::size_t p = 0; p < probes.size(); ++p) {
    const Probe& probe = probes[p];
    Envelope theirs;
    const GoldenStep::Probe& golden_probe = *all_asked[p].recorded;
    theirs.rho = golden_probe.rho;
    theirs.own_noise = {golden_probe.noise_bias, golden_probe.noise_squares};
    const Gap gap = gap_of(target, target_exact, all_asked[p]);
    const double python = own[p].python + golden_probe.python, error = gap.error + python;
    Answer answer{true, std::fabs(gap.difference) / probe.scale,
                  (replay_error({&own[p], &theirs}, lambda) + error) / probe.scale,
                  (own[p].rho + theirs.rho + error) / probe.scale, python / probe.scale};
    if (uncertain && answer.failed()) answer.envelope = answer.worst_case = kNotAnswered;
    const auto asks_it = [&](const Finding& known) {  // A tap may be called as a group is.
      return known.name == probe.name && std::ranges::all_of(probe.parts, [&](const Probe::Part& part) {
               return std::ranges::find(known.taps, part.tap) != known.taps.end();
             });
    };
    auto finding = std::ranges::find_if(bounds->findings, asks_it);
    if (finding == bounds->findings.end()) {
      finding = bounds->findings.insert(finding, Finding{});
      finding->name = probe.name;
      for (const Probe::Part& part : probe.parts) {
        finding->taps.push_back(part.tap);
        finding->elements += static_cast<std::uint64_t>(part.elements);
      }
    }
    finding->mathematics = answer;
    if (!answer.failed()) continue;
    for (std::size_t i = 0; i < probe.parts.size(); ++i) differing[probe.parts[i].tap] = gap.by_tap[i];
  }
  suspect_first(target, differing, bounds);
}

}  // namespace plumbline
