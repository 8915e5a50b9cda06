#include "server/bound/match/executed_choices.h"

#include <cmath>
#include <map>
#include <optional>

#include "kernels/ball/key.h"
#include "kernels/operations.h"
#include "server/bound/match/transplant.h"

namespace plumbline {
namespace {

struct Choice {
  NodeId node = 0;
  Array outcomes;  // On the host.

  std::size_t count() const { return static_cast<std::size_t>(outcomes.count()); }
  // What a part of so many elements from `begin` on is known by.
  std::uint64_t key(std::size_t begin, std::size_t length) const {
    std::uint64_t key = key::mixed(length);
    for (std::size_t i = begin; i < begin + length; ++i) key = key::mixed(key ^ key::bits_of(outcomes.data()[i]));
    return key;
  }
};

std::vector<Choice> choices_of(const MatchSide& side) {
  const std::vector<bool> used = used_by_taps(side.graph);
  std::map<NodeId, Choice> found;  // Of several decisions for one node the last counts.
  for (const GraphDecision& decision : side.graph.decisions) {
    if (!decision.choice || !decision.sides || !used[decision.node] || !side.replay.has(decision.node)) continue;
    if (!is_float(side.graph.nodes[decision.choice->table].result)) continue;  // Integers come of choices before.
    Choice choice{decision.node, Array::uninitialized(side.graph.nodes[decision.node].shape)};
    if (choice.count() == 0) continue;
    current_operations().decode(choice.outcomes, decision.format, decision.sides->data());
    choice.outcomes = choice.outcomes.on_host();
    bool told = true;
    for (std::size_t i = 0; i < choice.count(); ++i) told = told && !std::isnan(choice.outcomes.data()[i]);
    if (told) found[decision.node] = std::move(choice);
  }
  std::vector<Choice> choices;
  choices.reserve(found.size());
  for (auto& [node, choice] : found) choices.push_back(std::move(choice));
  return choices;
}

// Marks choices of two programs that were made alike: one as a whole, and as many of the other as it is made of, in
// order, as those of a batch and of its parts; or one.
void mark_alike(const std::vector<Choice>& wholes, const std::vector<Choice>& parts, std::vector<bool>* alike_wholes,
                std::vector<bool>* alike_parts) {
  std::map<std::size_t, std::map<std::uint64_t, std::vector<std::size_t>>> by_count;  // Then by key.
  for (std::size_t i = 0; i < parts.size(); ++i)
    by_count[parts[i].count()][parts[i].key(0, parts[i].count())].push_back(i);
  for (std::size_t w = 0; w < wholes.size(); ++w)
    for (const auto& [length, known] : by_count) {
      if (wholes[w].count() % length != 0) continue;
      std::map<std::uint64_t, std::size_t> taken;
      std::vector<std::size_t> made_of;
      std::size_t begin = 0;
      for (; begin < wholes[w].count(); begin += length) {
        const std::uint64_t key = wholes[w].key(begin, length);
        const auto found = known.find(key);
        if (found == known.end() || taken[key] == found->second.size()) break;
        made_of.push_back(found->second[taken[key]++]);
      }
      if (begin < wholes[w].count()) continue;
      (*alike_wholes)[w] = true;
      for (const std::size_t part : made_of) (*alike_parts)[part] = true;
    }
}

// The outcomes of the choices that are alike. Whether exact arithmetic makes one otherwise; nothing where it does so to
// one that is not.
std::optional<bool> add_alike(const MatchSide& side, const std::vector<Choice>& choices, const std::vector<bool>& alike,
                              Overrides* found) {
  bool otherwise = false;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const Choice& choice = choices[i];
    const bool turned = count_differing(side.replay.value(choice.node), choice.outcomes) > 0;
    if (alike[i])
      (*found)[choice.node] = choice.outcomes;
    else if (turned)
      return std::nullopt;
    otherwise = otherwise || turned;
  }
  return otherwise;
}

}  // namespace

ExecutedChoices executed_choices(const MatchSide& target, const MatchSide& reference) {
  const std::vector<Choice> ours = choices_of(target), theirs = choices_of(reference);
  std::vector<bool> our_alike(ours.size(), false), their_alike(theirs.size(), false);
  mark_alike(ours, theirs, &our_alike, &their_alike);
  mark_alike(theirs, ours, &their_alike, &our_alike);
  ExecutedChoices found;
  const std::optional<bool> our_turned = add_alike(target, ours, our_alike, &found.target);
  const std::optional<bool> their_turned = add_alike(reference, theirs, their_alike, &found.reference);
  if (!our_turned || !their_turned || !(*our_turned || *their_turned)) return {};
  return found;
}

}  // namespace plumbline
