#include "server/bound/charge.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/device.h"
#include "kernels/sums.h"

namespace plumbline {
namespace {

// Where sharing is not looked for element by element, it may add so much to a node's squares, or to its part of all
// nodes' squares, whichever is more: what draws of 8 sqrt(n) elements leave open where they find no pair. At nodes that
// hardly matter, fewer say enough.
constexpr double kDrawsMin = 0.5, kDrawsMax = 8;
constexpr double kOpen = 2 * 4.6 / (kDrawsMax * kDrawsMax);  // events.h, sharing_drawn
constexpr double kSharingMax = 3;  // Of squares; where draws say more, all elements are looked at.

// Once the charges of all elements are together.
Noise settled(const Noise& noise) { return {noise.bias + std::fabs(noise.drift), noise.squares}; }

}  // namespace

SharedRoundings::SharedRoundings(const Graph& graph, NodeId id, const Arithmetic* target, const Arithmetic* own,
                                 Array errors, std::function<Operands()> operands)
    : graph_(graph),
      id_(id),
      target_(target),
      own_(own),
      errors_(std::move(errors)),
      find_operands_(std::move(operands)) {}

const Operands& SharedRoundings::operands() {
  if (!operands_) operands_ = find_operands_();
  return *operands_;
}

Noise SharedRoundings::noise_of(const Arithmetic& arithmetic, const Array& merged) {
  const Node& node = graph_.nodes[id_];
  const PrimitiveTraits& primitive = traits(node.primitive);
  const auto& [inputs, value] = operands();
  const Bound error = primitive.local_error(node.attributes, arithmetic, inputs, value);
  return settled(primitive.noise(node.attributes, arithmetic, inputs, value, error, merged));
}

void SharedRoundings::charge(const Functional& functional, std::optional<EventWeights> weights, Charges* charges) {
  Noise &of_target = charges->target.noise, &of_own = charges->own.noise;
  of_target = settled(of_target);
  of_own = settled(of_own);
  const double squares = of_target.squares + of_own.squares;
  if (!(squares > 0) || !std::isfinite(squares)) return;
  const double part = (functional.squares + squares) / static_cast<double>(graph_.nodes.size());
  const double open = kOpen * std::max(squares, part);
  const bool asked = functional.target && target_ != nullptr, own_asked = functional.own_by_chance && own_ != nullptr;
  // No rounding moves the functional by more than the whole: one event of that size holds all that elements may share.
  const double target = asked ? charges->target.whole : 0, own = own_asked ? charges->own.whole : 0;
  if (target * target + own * own - squares <= open) {
    of_target.squares = target * target;
    of_own.squares = own * own;
    return;
  }
  const auto charge_merged = [&](const Array& merged) {
    if (asked) of_target = noise_of(*target_, merged);
    if (own_asked) of_own = noise_of(*own_, merged);
  };
  if (!keys_) keys_.emplace(graph_, id_, operands().inputs, operands().value);
  if (current_device() != nullptr) {  // It sorts faster than the host draws.
    if (!order_) order_ = keys_->order();
    charge_merged(merge_events(*order_, functional.cotangent));
    return;
  }
  if (keys_->drawable()) {
    if (!weights) weights.emplace(functional.cotangent, errors_);
    const auto drawn = [&](double draws) {
      return sharing_drawn(*keys_, *weights, functional.cotangent, errors_, draws);
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
  if (!events_) events_ = shared_events(*keys_);
  if (events_->count > 0) charge_merged(merge_shared(functional.cotangent, *events_));
}

NodeRounding::NodeRounding(const Graph& graph, NodeId id, Operands operands, const Arithmetic* target,
                           const Arithmetic* own)
    : graph_(graph), id_(id), operands_(std::move(operands)), target_(target), own_(own) {
  const Node& node = graph_.nodes[id_];
  const auto error = [&](const Arithmetic* arithmetic) {
    if (arithmetic == nullptr) return Bound{};
    return traits(node.primitive).local_error(node.attributes, *arithmetic, operands_.inputs, operands_.value);
  };
  target_error_ = error(target_);
  own_error_ = error(own_);
}

std::vector<Charges> NodeRounding::charges(const std::vector<Functional>& functionals) const {
  const Node& node = graph_.nodes[id_];
  Array errors;  // Read where events are drawn: on the host.
  if (current_device() == nullptr && (of_target() || of_own()))
    errors = (of_target() ? target_error_ : own_error_).values.expand(node.shape).materialize();
  SharedRoundings shared(graph_, id_, of_target() ? target_ : nullptr, of_own() ? own_ : nullptr, errors,
                         [this] { return operands_; });
  std::vector<Charges> charges;
  for (Functional functional : functionals) {
    functional.cotangent = functional.cotangent.materialize();
    const auto charge = [&](const Arithmetic& arithmetic, const Bound& error, bool by_chance) {
      Charge charge{weighted_bound(functional.cotangent, error), {}};
      if (by_chance)
        charge.noise =
            traits(node.primitive)
                .noise(node.attributes, arithmetic, operands_.inputs, operands_.value, error, functional.cotangent);
      return charge;
    };
    Charges& both = charges.emplace_back();
    if (functional.target && of_target()) both.target = charge(*target_, target_error_, true);
    if (of_own()) both.own = charge(*own_, own_error_, functional.own_by_chance);
    shared.charge(functional, {}, &both);
  }
  return charges;
}

}  // namespace plumbline
