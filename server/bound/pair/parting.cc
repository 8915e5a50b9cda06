#include "server/bound/pair/parting.h"

#include "server/bound/pair/confirm.h"
#include "server/bound/pair/zeros.h"

namespace plumbline {
namespace {

constexpr int kTurnsMax = 16;  // Quotients by zero, one in the other.

// Those that depend on none of the others.
Overrides first_of(const Graph& graph, Overrides values) {
  std::vector<bool> after(graph.nodes.size(), false);
  for (NodeId id = 0; id < graph.nodes.size(); ++id)
    for (NodeId input : graph.nodes[id].inputs) after[id] = after[id] || after[input] || values.count(input) != 0;
  std::erase_if(values, [&](const auto& value) { return after[value.first]; });
  return values;
}

// Takes 0 for every -0 that something tells from it. False: there is none.
bool drop_negative_zeros(const Graph& graph, const std::vector<LeafValue>& leaves, Replay* replay,
                         Overrides* overrides) {
  for (int turn = 0; turn < kTurnsMax; ++turn) {
    const Overrides positive = first_of(graph, without_negative_zeros(graph, *replay));
    if (positive.empty()) return turn > 0;
    for (const auto& [node, value] : positive) (*overrides)[node] = value;
    *replay = plumbline::replay(graph, leaves, Precision::kExact, *overrides, replay);
  }
  return true;
}

}  // namespace

std::set<std::size_t> parted_by_signs_of_zero(const BoundsInput& input, const Gap& gap) {
  std::vector<PairedTap> parted;
  for (const PairedTap& pair : gap.pairs())
    if (gap.parting(pair) == Gap::Parting::kOther) parted.push_back(pair);
  if (parted.empty()) return {};
  PairReplays plain = gap.replays();
  const bool ours = drop_negative_zeros(*input.target, plain.target_leaves, &plain.target, &plain.target_overrides);
  const bool theirs =
      drop_negative_zeros(*input.reference, plain.reference_leaves, &plain.reference, &plain.reference_overrides);
  if (!ours && !theirs) return {};
  const Gap other(input, plain, parted);
  std::vector<Probe> probes;
  for (const PairedTap& pair : parted) probes.push_back(other.probe(pair));
  std::vector<Answer> answers = other.ask(probes);
  confirm(input, other, probes, &answers);
  std::set<std::size_t> taps;
  for (std::size_t i = 0; i < parted.size(); ++i)
    if (other.parting(parted[i]) != Gap::Parting::kOther && !answers[i].failed()) taps.insert(parted[i].target);
  return taps;
}

}  // namespace plumbline
