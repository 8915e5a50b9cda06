// A tap between its radii, by term: as a whole, or a tile of the chain that its nodes are ends of.
#pragma once

#include <optional>
#include <vector>

#include "kernels/comparison.h"
#include "server/bound/enclose/interval.h"

namespace plumbline {

struct EnclosedTap {
  std::vector<Array> values;  // As computed.
  std::vector<Bound> radii;

  ComparedTerm term(std::size_t k, double weight) const {
    const Bound& radius = radii[k];
    return {{.values = values[k].materialize(), .radii = radius ? Bound{radius.values.materialize()} : Bound{}},
            weight};
  }
};

// Empty: a term's enclosure exploded.
std::optional<EnclosedTap> enclosed_tap(const GraphTap& tap, const Replay& replay, Enclosures* enclosures);

// The ends of a chain, which are those of some taps one after the other: every call is of the next tap.
class ChainEnds {
 public:
  explicit ChainEnds(const TiledChain& chain) : chain_(chain) {}

  EnclosedTap tap(const GraphTap& tap, const Tile& tile);
  bool lost(const GraphTap& tap, const std::vector<bool>& exploded);  // Some term's enclosure exploded.

 private:
  const TiledChain& chain_;
  std::size_t next_ = 0;
};

}  // namespace plumbline
