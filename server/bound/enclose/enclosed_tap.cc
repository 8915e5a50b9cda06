#include "server/bound/enclose/enclosed_tap.h"

namespace plumbline {

std::optional<EnclosedTap> enclosed_tap(const GraphTap& tap, const Replay& replay, Enclosures* enclosures) {
  EnclosedTap enclosed;
  for (const GraphTap::Term& term : tap.terms) {
    enclosed.values.push_back(replay.computed(term.node));  // Before its enclosure is taken, which may give it up.
    const Enclosure enclosure = enclosures->take(term.node);
    if (enclosure.exploded) return std::nullopt;
    enclosed.radii.push_back(enclosure.radius);
  }
  return enclosed;
}

EnclosedTap ChainEnds::tap(const GraphTap& tap, const Tile& tile) {
  EnclosedTap enclosed;
  for (std::size_t k = 0; k < tap.terms.size(); ++k, ++next_) {
    enclosed.values.push_back(tile.ends[next_]);
    enclosed.radii.push_back(tile.radii[next_]);
  }
  return enclosed;
}

bool ChainEnds::lost(const GraphTap& tap, const std::vector<bool>& exploded) {
  bool any = false;
  for (std::size_t k = 0; k < tap.terms.size(); ++k) any = any || exploded[chain_.ends[next_++]];
  return any;
}

}  // namespace plumbline
