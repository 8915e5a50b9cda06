#include "server/bound/match/executed_choices.h"

#include <cmath>
#include <map>
#include <set>

#include "kernels/ball/key.h"
#include "kernels/operations.h"

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
  std::map<NodeId, Choice> found;  // Of several decisions for one node the last counts.
  for (const GraphDecision& decision : side.graph.decisions) {
    if (!decision.choice || !decision.sides || !side.replay.has(decision.node)) continue;
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

// Adds the outcomes of those that the other program made, too. Returns whether the replay made some otherwise.
bool add_shared(const MatchSide& side, const std::vector<Choice>& choices, const Parts& others, Overrides* shared) {
  bool otherwise = false;
  for (const Choice& choice : choices) {
    if (!others.hold(choice)) continue;
    otherwise = otherwise || count_differing(side.replay.value(choice.node), choice.outcomes) > 0;
    (*shared)[choice.node] = choice.outcomes;
  }
  return otherwise;
}

}  // namespace

ExecutedChoices executed_choices(const MatchSide& target, const MatchSide& reference) {
  const std::vector<Choice> ours = choices_of(target), theirs = choices_of(reference);
  if (ours.empty() || theirs.empty()) return {};
  ExecutedChoices found;
  const bool target_turned = add_shared(target, ours, Parts(theirs, ours), &found.target);
  const bool reference_turned = add_shared(reference, theirs, Parts(ours, theirs), &found.reference);
  return target_turned || reference_turned ? std::move(found) : ExecutedChoices();
}

}  // namespace plumbline
