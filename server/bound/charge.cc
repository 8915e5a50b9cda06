#include "server/bound/charge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "kernels/cpu/parallel.h"
#include "kernels/device.h"
#include "kernels/strided.h"
#include "kernels/sums.h"

namespace plumbline {
namespace {

// Where sharing is not looked for element by element, it may add so much to a node's squares, or to its part of all
// nodes' squares, whichever is more: what draws of 8 sqrt(n) elements leave open where they find no pair. At nodes that
// hardly matter, fewer say enough.
constexpr double kDrawsMin = 0.5, kDrawsMax = 8;
constexpr double kOpen = 2 * 4.6 / (kDrawsMax * kDrawsMax);  // events.h, sharing_drawn
constexpr double kSharingMax = 3;  // Of squares; where draws say more, all elements are looked at.

void add(NodeRounding::Charge& total, const NodeRounding::Charge& part) {
  total.whole += part.whole;
  total.noise.bias += part.noise.bias;
  total.noise.squares += part.noise.squares;
  total.noise.drift += part.noise.drift;
}

// Once the charges of all elements are together.
Noise settled(const Noise& noise) { return {noise.bias + std::fabs(noise.drift), noise.squares}; }

}  // namespace

Pieces::Pieces(const Node& node, std::vector<Array> inputs, const Array& value)
    : value_(value), inputs_(std::move(inputs)), row_(value_.count()) {
  constexpr std::int64_t kPiece = 1 << 14;  // A dozen arrays of them fit the processor's caches.
  constexpr std::size_t kInputsMax = 3;
  if (current_device() != nullptr || !is_elementwise(node.primitive) || !value_.contiguous() ||
      value_.count() < 2 * kPiece)
    return;
  std::array<View, kInputsMax + 1> views;
  std::array<const View*, kInputsMax + 1> operands;
  for (std::size_t i = 0; i <= kInputsMax; ++i) {
    views[i] = view_of(i < inputs_.size() ? inputs_[i] : value_);
    operands[i] = &views[i];
  }
  const auto dims = merged_dimensions<kInputsMax + 1>(value_.shape(), operands);
  if (dims.size() > 2) return;
  const bool flat = dims.size() == 1;
  row_ = flat ? 1 : dims[1].size;
  rows_ = dims[0].size;
  rows_each_ = std::max<std::int64_t>(1, kPiece / row_);
  count_ = (rows_ + rows_each_ - 1) / rows_each_;
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    strides_.emplace_back(dims[0].strides[i], flat ? 0 : dims[1].strides[i]);
}

Array Pieces::part(const Array& whole, std::int64_t row_stride, std::int64_t stride, std::int64_t index) const {
  const std::int64_t first = index * rows_each_, rows = std::min(rows_each_, rows_ - first);
  if (row_ == 1) return whole.restride({{rows}, {row_stride}, first * row_stride});
  return whole.restride({{rows, row_}, {row_stride, stride}, first * row_stride});
}

Array Pieces::of(const Array& whole, std::int64_t index) const {
  return count_ == 1 ? whole : part(whole, row_, 1, index);
}

std::vector<Array> Pieces::inputs(std::int64_t index) const {
  if (count_ == 1) return inputs_;
  std::vector<Array> parts;
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    parts.push_back(part(inputs_[i], strides_[i].first, strides_[i].second, index));
  return parts;
}

NodeRounding::NodeRounding(const Graph& graph, NodeId id, const std::vector<Array>& inputs, const Array& value,
                           const Arithmetic* target, const Arithmetic* own)
    : graph_(graph),
      id_(id),
      primitive_(traits(graph.nodes[id].primitive)),
      inputs_(inputs),
      value_(value),
      pieces_(graph.nodes[id], inputs_, value_),
      target_(target),
      own_(own) {
  // Whether errors are empty depends on formats alone.
  if (target_ != nullptr) first_target_ = error(*target_, 0);
  if (own_ != nullptr) first_own_ = error(*own_, 0);
}

Bound NodeRounding::error(const Arithmetic& arithmetic, std::int64_t piece) const {
  return primitive_.local_error(graph_.nodes[id_].attributes, arithmetic, pieces_.inputs(piece), pieces_.value(piece));
}

Noise NodeRounding::noise(const Arithmetic& arithmetic, std::int64_t piece, const Bound& error,
                          const Array& cotangent) const {
  return primitive_.noise(graph_.nodes[id_].attributes, arithmetic, pieces_.inputs(piece), pieces_.value(piece), error,
                          cotangent);
}

// A functional, as far as the node answers it.
struct NodeRounding::Asked {
  Array cotangent;
  bool target = false, own_by_chance = false;
  double squares = 0;
  std::optional<EventWeights> weights{};  // Of the target's errors, if it asks of those.

  bool by_chance() const { return target || own_by_chance; }
};

// What tells which elements share events, found when it is needed.
struct NodeRounding::Sharing {
  Array errors;  // Of all elements: the target's, if it is asked of.
  std::optional<EventKeys> keys{};
  std::optional<SharedEvents> events{};
  std::optional<EventOrder> order{};  // On a device, in their place.
};

std::vector<NodeRounding::Charges> NodeRounding::charges(const std::vector<Functional>& functionals) const {
  if (functionals.empty()) return {};
  std::vector<Asked> asked;
  asked.reserve(functionals.size());
  for (const Functional& f : functionals)
    asked.push_back({f.cotangent.materialize(), f.target && of_target(), f.own_by_chance && of_own(), f.squares});
  const bool by_chance = std::ranges::any_of(asked, &Asked::by_chance);

  const std::int64_t pieces = pieces_.count();
  const bool whole = pieces == 1;
  Sharing sharing;
  if (by_chance && current_device() == nullptr)
    sharing.errors = whole ? (of_target() ? first_target_ : first_own_).values.expand(value_.shape()).materialize()
                           : Array::uninitialized(value_.shape());
  for (Asked& one : asked)
    if (one.by_chance() && !whole) one.weights.emplace(value_.count(), pieces_.begin(1));
  std::vector<Charges> parts(static_cast<std::size_t>(pieces) * asked.size());
  cpu::parallel_for(pieces, 2, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t piece = first; piece < last; ++piece) {
      const Bound target = whole || !of_target() ? first_target_ : error(*target_, piece);
      const Bound own = whole || !of_own() ? first_own_ : error(*own_, piece);
      const Array drawn = (of_target() ? target : own).values.materialize();
      if (by_chance && !whole)
        std::copy_n(drawn.data(), drawn.count(), sharing.errors.address() + pieces_.begin(piece));
      for (std::size_t i = 0; i < asked.size(); ++i) {
        Asked& one = asked[i];
        Charges& charge = parts[static_cast<std::size_t>(piece) * asked.size() + i];
        const Array a = pieces_.of(one.cotangent, piece);
        double weighed = 0;
        if (one.weights)
          weighed = one.weights->weigh(piece, {a.data(), static_cast<std::size_t>(a.count())}, drawn.data());
        if (one.target)
          charge.target = {one.weights ? weighed : weighted_bound(a, target), noise(*target_, piece, target, a)};
        if (of_own()) charge.own.whole = weighted_bound(a, own);
        if (one.own_by_chance) charge.own.noise = noise(*own_, piece, own, a);
      }
    }
  });

  std::vector<Charges> charges(asked.size());
  for (std::size_t k = 0; k < parts.size(); ++k) {
    add(charges[k % asked.size()].target, parts[k].target);
    add(charges[k % asked.size()].own, parts[k].own);
  }
  for (std::size_t i = 0; i < asked.size(); ++i) share(&asked[i], &sharing, &charges[i]);
  return charges;
}

// Enlarges what is charged by chance by what elements that share an event may add to it.
void NodeRounding::share(Asked* asked, Sharing* sharing, Charges* charges) const {
  Noise &of_target = charges->target.noise, &of_own = charges->own.noise;
  of_target = settled(of_target);
  of_own = settled(of_own);
  const double squares = of_target.squares + of_own.squares;
  if (!(squares > 0) || !std::isfinite(squares)) return;
  const double part = (asked->squares + squares) / static_cast<double>(graph_.nodes.size());
  const double open = kOpen * std::max(squares, part);
  // No rounding moves the functional by more than the whole: one event of that size holds all that elements may share.
  const double target = asked->target ? charges->target.whole : 0, own = asked->own_by_chance ? charges->own.whole : 0;
  if (target * target + own * own - squares <= open) {
    of_target.squares = target * target;
    of_own.squares = own * own;
    return;
  }
  const auto charge_merged = [&](const Array& merged) {
    const auto noise_of_merged = [&](const Arithmetic& arithmetic) {
      const Attributes& attributes = graph_.nodes[id_].attributes;
      const Bound error = primitive_.local_error(attributes, arithmetic, inputs_, value_);
      return settled(primitive_.noise(attributes, arithmetic, inputs_, value_, error, merged));
    };
    if (asked->target) of_target = noise_of_merged(*target_);
    if (asked->own_by_chance) of_own = noise_of_merged(*own_);
  };
  if (!sharing->keys) sharing->keys.emplace(graph_, id_, inputs_, value_);
  if (current_device() != nullptr) {  // It sorts faster than the host draws.
    if (!sharing->order) sharing->order = sharing->keys->order();
    charge_merged(merge_events(*sharing->order, asked->cotangent));
    return;
  }
  if (sharing->keys->drawable()) {
    if (!asked->weights) asked->weights.emplace(asked->cotangent, sharing->errors);
    const auto drawn = [&](double draws) {
      return sharing_drawn(*sharing->keys, *asked->weights, asked->cotangent, sharing->errors, draws);
    };
    const double few = std::clamp(kDrawsMax * std::sqrt(squares / part), kDrawsMin, kDrawsMax);
    double factor = drawn(few);
    if (few < kDrawsMax && (factor - 1) * squares > open) factor = drawn(kDrawsMax);
    if (factor <= kSharingMax || (factor - 1) * squares <= open) {
      of_target.squares *= factor;
      of_own.squares *= factor;
      return;
    }
  }
  if (!sharing->events) sharing->events = shared_events(*sharing->keys);
  if (sharing->events->count > 0) charge_merged(merge_shared(asked->cotangent, *sharing->events));
}

}  // namespace plumbline
