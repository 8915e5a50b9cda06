#include "tests/soundness/order.h"

#include <algorithm>
#include <numeric>

namespace plumbline::soundness {
namespace {

// slots[first] += slots[first + step], ... one after another.
void chain(const std::vector<int>& slots, std::size_t first, std::size_t end, std::size_t step, Order& order) {
  for (std::size_t i = first + step; i < end; i += step) order.merges.push_back({slots[first], slots[i]});
}

void pairwise(const std::vector<int>& slots, Order& order) {
  for (std::size_t step = 1; step < slots.size(); step *= 2) {
    for (std::size_t i = 0; i + step < slots.size(); i += 2 * step) order.merges.push_back({slots[i], slots[i + step]});
  }
}

std::vector<int> all_slots(int n) {
  std::vector<int> slots(static_cast<std::size_t>(n));
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

}  // namespace

void balanced_order(int n, Random& random, Order& order) {
  std::vector<int> slots = all_slots(n);
  if (coin(random)) std::shuffle(slots.begin(), slots.end(), random);
  order.merges.clear();
  order.result = slots[0];
  pairwise(slots, order);
}

void random_order(int n, Random& random, Order& order) {
  std::vector<int> slots = all_slots(n);
  const auto size = static_cast<std::size_t>(n);
  order.merges.clear();
  order.result = 0;
  switch (pick(random, 0, 5)) {
    case 0:
      return chain(slots, 0, size, 1, order);
    case 1:
      std::shuffle(slots.begin(), slots.end(), random);
      order.result = slots[0];
      return chain(slots, 0, size, 1, order);
    case 2:
      while (slots.size() > 1) {
        const auto i = static_cast<std::size_t>(random() % slots.size());
        std::swap(slots[i], slots.back());
        const int from = slots.back();
        slots.pop_back();
        order.merges.push_back({slots[random() % slots.size()], from});
      }
      order.result = slots[0];
      return;
    case 3: {
      const std::size_t lanes = std::min(size, std::size_t{1} << pick(random, 1, 5));
      for (std::size_t lane = 0; lane < lanes; ++lane) chain(slots, lane, size, lanes, order);
      return chain(slots, 0, lanes, 1, order);
    }
    case 4:
      return balanced_order(n, random, order);
    default: {
      const auto chunk = static_cast<std::size_t>(pick(random, 1, n));
      for (std::size_t i = 0; i < size; i += chunk) chain(slots, i, std::min(size, i + chunk), 1, order);
      return chain(slots, 0, size, chunk, order);
    }
  }
}

}  // namespace plumbline::soundness
