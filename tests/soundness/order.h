// Orders of summation that a kernel may use, as merges of slots: slot[into] += slot[from]. What is left stands in the
// slot named `result`.
#pragma once

#include <vector>

#include "tests/soundness/random.h"

namespace plumbline::soundness {

struct Merge {
  int into, from;
};

struct Order {
  std::vector<Merge> merges;
  int result = 0;
};

// Orders n >= 1 slots: as a chain, a shuffled chain, a random tree, the lanes of a vector unit, a balanced tree, or
// split chunks.
void random_order(int n, Random& random, Order& order);
// A tree of height ceil(log2 n) over shuffled slots.
void balanced_order(int n, Random& random, Order& order);

}  // namespace plumbline::soundness
