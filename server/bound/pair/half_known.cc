#include "server/bound/pair/half_known.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

// So much may a formula amplify the roundings of what it is made of, as |x|^2 + |y|^2 - 2 x y does, the distance of
// points that lie a hundred times as far away; an element is known to a sixty-fourth all the same. Half of the digits,
// where that is more, may be lost beside the item's largest elements, and beside one: what is smaller may be nothing,
// as sin(pi k) is.
constexpr double kAmplified = 0x1p18, kKnown = 0x1p-6;

// Whether somebody may have written the number: it has two decimal digits less than its format has room for. Few binary
// digits are no sign of that: differences of large numbers have few.
bool writable(Format format, double x) {
  const int digits = std::max(1, static_cast<int>(traits(format).precision * std::log10(2.0)) - 2);
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.begin(), text.end(), x, std::chars_format::scientific, digits - 1).ptr;
  double read = 0;
  std::from_chars(text.begin(), end, read);
  return round_to(format, read) == x;
}

// Whether the other program holds nothing of an item that is known to `rounded` by its roundings (null: it has none);
// `own` is zero at elements that the other holds too. Of an item that it holds but for some elements, these are other
// data.
bool wholly_apart(const Array& own, const Array& rounded) {
  for (std::int64_t i = 0; i < own.count(); ++i)
    if (own.data()[i] == 0 && rounded.data()[i] > 0) return false;
  return true;
}

}  // namespace

Array half_known(Format format, const Array& content, bool amplified) {
  if (!is_float(format)) return {};
  bool all_written = true;
  double squares = 0;
  std::int64_t finite = 0;
  for (std::int64_t i = 0; i < content.count(); ++i) {
    const double x = content.data()[i];
    if (!std::isfinite(x)) continue;
    ++finite;
    squares += x * x;
    all_written = all_written && writable(format, x);
  }
  if (all_written) return {};
  const double size = std::sqrt(squares / static_cast<double>(finite)), unit = unit_roundoff(format);
  const double half = std::sqrt(unit), most = std::fmax(half, amplified ? std::fmin(kAmplified * unit, kKnown) : 0);
  Array wide = Array::uninitialized({content.count()});
  for (std::int64_t i = 0; i < content.count(); ++i) {
    const double x = std::fabs(content.data()[i]);
    const double lost = amplified && x <= half ? x : most * x;
    wide.data()[i] = std::isfinite(x) ? (lost + half * size) / 2 : 0;
  }
  return wide;
}

Freedoms half_known(const Graph& graph, const Correspondence& match, bool of_reference) {
  const Freedoms& freedoms = of_reference ? match.reference_freedoms : match.target_freedoms;
  const std::vector<LeafValue>& values = of_reference ? match.reference_values : match.target_values;
  const std::vector<LeafValue>& others = of_reference ? match.target_values : match.reference_values;
  const Overrides& computed = of_reference ? match.reference_computed : match.target_computed;
  Freedoms found;
  for (std::size_t i = 0; i < graph.leaves.size(); ++i) {
    const GraphLeaf& leaf = graph.leaves[i];
    if ((leaf.role != LeafRole::kData && leaf.role != LeafRole::kBuffer) || leaf.anchor || !values[i] ||
        computed.contains(leaf.node))
      continue;
    if (std::ranges::any_of(others, [&](const LeafValue& other) { return other && bitwise_equal(other, values[i]); }))
      continue;
    const Array content = static_cast<Array>(values[i]).materialize().on_host();
    const auto own = freedoms.find(leaf.node);
    if (own != freedoms.end() && !wholly_apart(own->second.materialize().on_host(), freedom_of(leaf.format, content)))
      continue;
    if (const Array wide = half_known(leaf.format, content, /*amplified=*/true))
      found[leaf.node] = wide.reshape(graph.nodes[leaf.node].shape);
  }
  return found;
}

}  // namespace plumbline
