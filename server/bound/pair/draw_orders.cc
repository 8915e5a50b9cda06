#include "server/bound/pair/draw_orders.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace plumbline {
namespace {

constexpr std::size_t kDrawsMax = 4;  // So many draws of one distribution have 24 orders.

}  // namespace

std::vector<std::vector<LeafValue>> other_draw_orders(const Graph& reference, const std::vector<LeafValue>& leaves) {
  using Key = std::tuple<std::string, std::vector<double>, std::int64_t>;
  std::map<Key, std::vector<std::size_t>> groups;  // Indices of leaves.
  for (const Draw& draw : reference.draws)
    for (std::size_t i = 0; i < reference.leaves.size(); ++i)
      if (reference.leaves[i].node == draw.leaf && leaves[i])
        groups[{draw.family, draw.numbers, leaves[i].count()}].push_back(i);
  std::vector<std::vector<LeafValue>> orders;
  for (const auto& [key, members] : groups) {
    if (members.size() < 2 || members.size() > kDrawsMax) continue;
    std::vector<std::size_t> order(members.size());
    std::iota(order.begin(), order.end(), 0);
    while (std::ranges::next_permutation(order).found) {
      std::vector<LeafValue> permuted = leaves;
      for (std::size_t i = 0; i < members.size(); ++i)
        permuted[members[i]] =
            leaves[members[order[i]]].reshape(reference.nodes[reference.leaves[members[i]].node].shape);
      orders.push_back(std::move(permuted));
    }
  }
  return orders;
}

}  // namespace plumbline
