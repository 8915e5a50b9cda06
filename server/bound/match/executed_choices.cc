#include "server/bound/match/executed_choices.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>

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

// What is known of one program's choices: of each number of elements that one of either program has, all parts.
class Parts {
 public:
  Parts(const std::vector<Choice>& own, const std::vector<Choice>& other) {
    for (const std::vector<Choice>* choices : {&own, &other})
      for (const Choice& choice : *choices) lengths_.insert(choice.count());
    for (const Choice& choice : own)
      for (const std::size_t length : lengths_)
        for (std::size_t begin = 0; choice.count() % length == 0 && begin < choice.count(); begin += length)
          keys_.insert(choice.key(begin, length));
  }

  // Whether a choice is among them: whole, as a part of one, or each of its parts.
  bool hold(const Choice& choice) const {
    for (const std::size_t length : lengths_) {
      if (choice.count() % length != 0) continue;
      bool all = true;
      for (std::size_t begin = 0; all && begin < choice.count(); begin += length)
        all = keys_.contains(choice.key(begin, length));
      if (all) return true;
    }
    return false;
  }

 private:
  std::set<std::size_t> lengths_;
  std::set<std::uint64_t> keys_;
};

// The outcomes of the choices that the other program made, too. Whether exact arithmetic makes one otherwise; nothing
// where it does so to one that the other did not make.
std::optional<bool> add_shared(const MatchSide& side, const std::vector<Choice>& choices, const Parts& others,
                               Overrides* found) {
  bool otherwise = false;
  for (const Choice& choice : choices) {
    const bool turned = count_differing(side.replay.value(choice.node), choice.outcomes) > 0;
    if (others.hold(choice))
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
  if (ours.empty() || theirs.empty()) return {};
  ExecutedChoices found;
  const std::optional<bool> target_turned = add_shared(target, ours, Parts(theirs, ours), &found.target);
  if (!target_turned) return {};
  const std::optional<bool> reference_turned = add_shared(reference, theirs, Parts(ours, theirs), &found.reference);
  if (!reference_turned || !(*target_turned || *reference_turned)) return {};
  return found;
}

}  // namespace plumbline
