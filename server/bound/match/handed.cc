#include "server/bound/match/handed.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "server/bound/replay/python_numbers.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

// Nearer than a thousandth of itself and of the values' size: what cancels in fp32 loses that much, another formula
// seldom so little.
constexpr double kNear = 0x1p-10;
// A tensor that Python read whole is told by so many of its elements (the client's escapes.py).
constexpr std::size_t kReadsOfWhole = 64;
constexpr std::int64_t kElementsMax = 1 << 22;  // What is larger is fed, not computed by the way.

// Whether so many numbers may have been made of those that were read.
bool may_come_of(const Array& content, std::size_t reads) {
  if (reads >= kReadsOfWhole || content.count() <= static_cast<std::int64_t>(reads)) return reads > 0;
  std::set<double> different;
  for (std::int64_t i = 0; i < content.count() && different.size() <= reads; ++i) different.insert(content.data()[i]);
  return different.size() <= reads;
}

// Whether it is one of the first `reads` numbers, handed on as it was, perhaps in fp32.
bool is_one_that_was_read(const Graph& graph, const Array& content, std::size_t reads) {
  if (content.count() != 1) return false;
  const auto same = [&](const NumberRead& read) {
    return static_cast<float>(read.value) == static_cast<float>(content.item());
  };
  return std::any_of(graph.reads.begin(), graph.reads.begin() + static_cast<std::ptrdiff_t>(reads), same);
}

bool near(const Array& a, const Array& b) {
  double squares = 0;
  for (std::int64_t i = 0; i < a.count(); ++i) squares += a.data()[i] * a.data()[i];
  const double size = std::sqrt(squares / static_cast<double>(a.count()));
  for (std::int64_t i = 0; i < a.count(); ++i) {
    const double x = a.data()[i], y = b.data()[i];
    if (x != y && !(std::fabs(x - y) <= kNear * (std::fabs(x) + size))) return false;
  }
  return true;
}

// How far a number that was read may lie from what the other program reads in its place; 0: it is exact.
double width_of(const NumberRead& read, double exact, Format format) {
  if (!std::isfinite(exact) || read.value == exact || !is_float(format)) return 0;
  return kAmplification * std::fmax(std::fabs(read.value - exact), unit_roundoff(format) * std::fabs(exact));
}

// Looks for the first read that makes a tie, and for the nodes of operations after it. A whole number of the step that
// comes out otherwise is one: a choice before it was turned.
void find_tie(const MatchSide& side, HandedBack* found) {
  constexpr double kRoundedMax = 0.125;  // Of a number that is known no better nobody takes the nearest integer.
  struct Read {
    double value = 0, exact = 0, width = 0;
    NodeId node = 0;
    std::uint32_t origin = 0;
  };
  std::vector<Read> reads;
  std::optional<Read> first;
  const auto tie = [&](const Read& read) {
    if (!first || read.origin < first->origin) first = read;
  };
  for (const NumberRead& each : side.graph.reads) {
    const double exact = side.replay.value(each.node).materialize().item();
    const Read read{each.value, exact, width_of(each, exact, side.graph.nodes[each.node].result), each.node,
                    each.origin};
    if (!is_float(side.graph.nodes[each.node].result) && read.value != read.exact)
      tie({read.value, read.exact, std::fabs(read.value - read.exact), read.node, read.origin});
    reads.push_back(read);
    const double away = std::fabs(2 * read.value - std::nearbyint(2 * read.value)) / 2;
    if (read.width > 0 && read.width < kRoundedMax && std::fabs(read.value) > read.width && away <= read.width)
      tie(read);
  }
  for (const ToldCount& told : side.graph.counts) {
    if (!side.replay.has(told.node)) continue;
    const double exact = side.replay.value(told.node).materialize().item();
    if (exact != told.value) tie({told.value, exact, std::fabs(told.value - exact), told.node, told.origin});
  }
  std::ranges::sort(reads, {}, &Read::value);
  for (std::size_t i = 1; i < reads.size(); ++i) {
    const Read &a = reads[i - 1], &b = reads[i];
    const bool one = a.value == b.value && a.exact == b.exact;  // No rounding parts them.
    if (!one && a.width + b.width > 0 && b.value - a.value <= a.width + b.width)
      tie({b.value, b.exact, a.width + b.width, b.node, std::max(a.origin, b.origin)});
  }
  if (!first) return;
  found->tie = UncertainNumber{first->node, first->value, first->width};
  for (NodeId id = 0; id < side.graph.nodes.size(); ++id)
    if (side.graph.nodes[id].origin > first->origin) found->after_a_tie.push_back(id);
}

class Other {
 public:
  explicit Other(const MatchSide& side) : side_(side) {
    for (NodeId id = 0; id < side.graph.nodes.size(); ++id)
      if (side.replay.has(id)) by_count_[count(side.graph.nodes[id].shape)].push_back(id);
    for (const Node& node : side.graph.nodes)
      if (node.primitive == Primitive::kConstant) constants_.insert(node.attributes.scalar);
  }

  bool was_given(const Array& content) const {
    if (content.count() == 1 && constants_.count(content.item()) != 0) return true;
    return std::ranges::any_of(of(content), [&](NodeId id) {
      return side_.graph.nodes[id].primitive == Primitive::kLeaf &&
             bitwise_equal(side_.replay.value(id).materialize(), content);
    });
  }

  // What is one number all over may have been made of one.
  bool has_near(const Array& content) const {
    if (has_near_of(content)) return true;
    const double first = content.data()[0];
    for (std::int64_t i = 1; i < content.count(); ++i)
      if (content.data()[i] != first) return false;
    return content.count() > 1 && has_near_of(Array::full({1}, first).materialize().on_host());
  }

 private:
  bool has_near_of(const Array& content) const {
    return std::ranges::any_of(of(content), [&](NodeId id) {
      return is_float(side_.graph.nodes[id].result) && near(content, side_.replay.value(id).materialize().on_host());
    });
  }

  const std::vector<NodeId>& of(const Array& content) const {
    static const std::vector<NodeId> none;
    const auto found = by_count_.find(content.count());
    return found == by_count_.end() ? none : found->second;
  }

  const MatchSide& side_;
  std::map<std::int64_t, std::vector<NodeId>> by_count_;
  std::set<double> constants_;
};

}  // namespace

HandedBack handed_back(const MatchSide& own, const MatchSide& other, const Overrides& computed) {
  HandedBack found;
  if (own.graph.reads.empty() && own.graph.counts.empty()) return found;
  find_tie(own, &found);
  const std::vector<double> errors = read_errors(own.graph, own.replay, &other.graph);
  std::optional<Other> theirs;
  for (const GraphLeaf& leaf : own.graph.leaves) {
    // numpy may go on in the format that it hands back.
    const double error = std::fmax(errors[leaf.reads], is_float(leaf.format) ? unit_roundoff(leaf.format) : 0);
    if (leaf.role != LeafRole::kData || leaf.anchor || leaf.reads == 0 || error == 0 || !own.replay.has(leaf.node) ||
        computed.count(leaf.node) != 0 || count(own.graph.nodes[leaf.node].shape) > kElementsMax)
      continue;
    const Array content = own.replay.value(leaf.node).materialize().on_host();
    if (content.count() == 0 || !may_come_of(content, leaf.reads)) continue;
    if (errors[leaf.reads] == 0 && is_one_that_was_read(own.graph, content, leaf.reads)) continue;
    if (!theirs) theirs.emplace(other);
    if (theirs->was_given(content)) continue;
    if (!is_float(leaf.format) || !theirs->has_near(content)) {
      found.unknown.push_back(leaf.node);
      continue;
    }
    Array known = Array::uninitialized(content.shape());
    for (std::int64_t i = 0; i < content.count(); ++i)
      known.data()[i] = kAmplification * error * std::fabs(content.data()[i]);
    found.near[leaf.node] = known;
  }
  return found;
}

}  // namespace plumbline
