// Draws that one program made twice: equal bit by bit, since it went back to a state of its generator (two workers with
// one seed, a mask drawn again). They are one number in its mathematics, so that draws which are not one in the other
// program may not stand for them.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "server/lower/graph.h"

namespace plumbline {

class Repeats {
 public:
  Repeats(const Graph& target, const Graph& reference);

  // That the reference's draw is the target's; leaves of either graph.
  void add(NodeId ours, NodeId theirs);
  // Whether one may stand for the other, beside those that were added.
  bool fit(NodeId ours, NodeId theirs) const;
  // Of the draws that were added, a target's and the reference's of this one's content.
  std::optional<std::pair<NodeId, NodeId>> added_with(NodeId theirs) const;

 private:
  struct Content {
    std::size_t which = 0;
    bool tells = false;  // So many bits that equal ones are no chance.
  };
  using Contents = std::map<NodeId, Content>;  // By leaf.

  static Contents contents_of(const Graph& graph);

  const Contents ours_, theirs_;
  std::map<std::size_t, std::size_t> their_content_, our_content_;  // By the other's, of draws that were added.
  std::map<std::size_t, std::pair<NodeId, NodeId>> added_;          // By the reference's content.
};

}  // namespace plumbline
