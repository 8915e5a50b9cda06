#include "server/bound/envelope/charge.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/device.h"
#include "kernels/operations.h"
#include "kernels/primitive/error_model.h"
#include "kernels/sums.h"
#include "server/bound/envelope/distinct.h"

namespace plumbline {
namespace {

// Where sharing is not looked for element by element, it may add so much to a node's squares, or to its part of all
// nodes' squares, whichever is more: what draws of 8 sqrt(n) elements leave open where they find no pair. At nodes that
// hardly matter, fewer say enough.
constexpr double kDrawsMin = 0.125, kDrawsMax = 8;
constexpr double kOpen = 2 * 4.62 / (kDrawsMax * kDrawsMax);  // events.h, sharing_drawn
// Sharing may enlarge squares so far; where draws say more, all elements are looked at.
constexpr double kSharingMax = 3;

// Once the charges of all elements are together.
Noise settled(const Noise& noise) { return {noise.bias + std::fabs(noise.drift), noise.squares}; }

// A node's squares, its part of all nodes' squares, and what sharing may add to them without being looked for.
struct Squares {
  double own, part, open;

  // `all`: all nodes', as far as they are known.
  Squares(double all, std::size_t nodes, const Charges& charges)
      : own(charges.target.noise.squares + charges.own.noise.squares),
        part((all + own) / static_cast<double>(nodes)),
        open(kOpen * std::max(own, part)) {}
  double draws() const { return std::clamp(kDrawsMax * std::sqrt(own / part), kDrawsMin, kDrawsMax); }
};

// Settles the charges. Empty: whatever elements share adds nothing that has to be looked for. `target`, `own`: whether
// they are asked for.
std::optional<Squares> settle(double all, std::size_t nodes, bool target, bool own, Charges* charges) {
  Noise &of_target = charges->target.noise, &of_own = charges->own.noise;
  of_target = settled(of_target);
  of_own = settled(of_own);
  const Squares squares(all, nodes, *charges);
  if (!(squares.own > 0) || !std::isfinite(squares.own)) return std::nullopt;
  // No rounding moves the functional by more than the whole: one event of that size holds all that elements may share.
  const double whole = target ? charges->target.whole : 0, own_whole = own ? charges->own.whole : 0;
  if (whole * whole + own_whole * own_whole - squares.own <= squares.open) {
    of_target.squares = whole * whole;
    of_own.squares = own_whole * own_whole;
    return std::nullopt;
  }
  return squares;
}

Later<Charge> one_of(const Later<std::vector<Charge>>& all, std::size_t k) {
  return all.then([k](const std::vector<Charge>& charges) { return charges[k]; });
}

}  // namespace

SharedRoundings::SharedRoundings(const Graph& graph, NodeId id, Side target, Side own,
                                 std::function<Operands()> operands)
    : graph_(graph), id_(id), target_(std::move(target)), own_(std::move(own)), find_operands_(std::move(operands)) {}

const Operands& SharedRoundings::operands() {
  if (!operands_) operands_ = find_operands_();
  return *operands_;
}

void SharedRoundings::charge(std::vector<Charged> all) {
  for (Charged& one : all) {
    const std::optional<Array> found = merged(&one);
    if (!found) continue;
    const Merged charged = charge_merged({one.functional}, {*found}).front();
    if (charged.target) one.charges->target.noise = settled(charged.target->get().noise);
    if (charged.own) one.charges->own.noise = settled(charged.own->get().noise);
  }
}

OpenCharges SharedRoundings::open(const std::vector<Functional>& all, std::vector<Later<Charges>> charges) {
  std::vector<Functional> asking;
  std::vector<Array> cotangents;
  std::optional<EventOrder> order;
  for (const Functional& functional : all) {
    if (!asks_target(functional) && !asks_own(functional)) continue;
    if (!order) order = EventKeys(graph_, id_, operands().inputs, operands().value).order();
    cotangents.push_back(merge_events(*order, functional.cotangent));
    asking.push_back(functional);
  }
  const std::vector<Merged> merged = charge_merged(asking, cotangents);
  struct One {
    bool target, own;
    Later<Charges> charges;
    Merged merged;
  };
  std::vector<One> each;
  for (std::size_t i = 0, next = 0; i < all.size(); ++i) {
    One& one = each.emplace_back(asks_target(all[i]), asks_own(all[i]), std::move(charges[i]));
    if (one.target || one.own) one.merged = merged[next++];
  }
  return [each, nodes = graph_.nodes.size()](std::span<const double> squares) {
    std::vector<Charges> found;
    for (std::size_t i = 0; i < each.size(); ++i) {
      const One& one = each[i];
      Charges& charged = found.emplace_back(one.charges.get());
      if (!settle(squares[i], nodes, one.target, one.own, &charged)) continue;
      if (one.merged.target) charged.target.noise = settled(one.merged.target->get().noise);
      if (one.merged.own) charged.own.noise = settled(one.merged.own->get().noise);
    }
    return found;
  };
}

std::vector<SharedRoundings::Merged> SharedRoundings::charge_merged(const std::vector<Functional>& all,
                                                                    const std::vector<Array>& merged) {
  const Node& node = graph_.nodes[id_];
  std::vector<Merged> charged(all.size());
  const auto charge = [&](const Side& rounding, const auto& asks, std::optional<Later<Charge>> Merged::*side) {
    std::vector<std::size_t> of;
    std::vector<Array> cotangents;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!asks(all[i])) continue;
      of.push_back(i);
      cotangents.push_back(merged[i]);
    }
    if (of.empty()) return;
    const auto& [inputs, value] = operands();
    const PrimitiveTraits& primitive = traits(node.primitive);
    const Arithmetic& arithmetic = *rounding.arithmetic;
    const Bound error =
        rounding.error ? rounding.error : primitive.local_error(node.attributes, arithmetic, inputs, value);
    const auto found = primitive.charges(node.attributes, arithmetic, inputs, value, error, cotangents);
    for (std::size_t k = 0; k < of.size(); ++k) charged[of[k]].*side = one_of(found, k);
  };
  charge(
      target_, [this](const Functional& f) { return asks_target(f); }, &Merged::target);
  charge(
      own_, [this](const Functional& f) { return asks_own(f); }, &Merged::own);
  return charged;
}

bool SharedRoundings::distinct() {
  if (distinct_) return *distinct_;
  const Node& node = graph_.nodes[id_];
  distinct_ = false;
  const Arithmetic& rounding = *(target_.arithmetic != nullptr ? target_ : own_).arithmetic;
  // What is held in fewer bits is rounded alike wherever it is equal, whatever its terms are.
  if (node.primitive != Primitive::kMatmul || primitive::storage(rounding).u != 0) return false;
  const std::vector<Array>& inputs = operands().inputs;
  const bool patches = inputs[1].shape().size() > node.shape.size();
  constexpr std::int64_t kCheaper = 2;  // To read an operand takes at most half of what draws take an element.
  if (!patches && inputs[0].count() + inputs[1].count() <= kCheaper * count(node.shape))
    distinct_ = distinct_terms(inputs);
  return *distinct_;
}

std::optional<Array> SharedRoundings::merged(Charged* one) {
  const Functional& functional = one->functional;
  Noise &of_target = one->charges->target.noise, &of_own = one->charges->own.noise;
  const std::optional<Squares> squares =
      settle(functional.squares, graph_.nodes.size(), asks_target(functional), asks_own(functional), one->charges);
  if (!squares) return std::nullopt;
  if (distinct()) return std::nullopt;
  if (!keys_) keys_.emplace(graph_, id_, operands().inputs, operands().value);
  const double few = squares->draws();
  if (keys_->drawable(few)) {
    if (!errors_) {
      const Bound& error = target_.arithmetic != nullptr ? target_.error : own_.error;
      errors_ = error.values.expand(graph_.nodes[id_].shape).materialize();
    }
    if (!one->weights) one->weights.emplace(functional.cotangent, errors_);
    const auto drawn = [&](double draws) {
      return sharing_drawn(*keys_, *one->weights, functional.cotangent, errors_, draws);
    };
    double factor = drawn(few);
    const auto little = [&] { return (factor - 1) * squares->own <= squares->open; };
    if (few < kDrawsMax && !little() && keys_->drawable(kDrawsMax)) factor = drawn(kDrawsMax);
    if (factor <= kSharingMax || little()) {
      of_target.squares *= factor;
      of_own.squares *= factor;
      return std::nullopt;
    }
  }
  if (!events_) events_ = shared_events(*keys_);
  if (events_->count == 0) return std::nullopt;
  return merge_shared(functional.cotangent, *events_);
}

namespace {

// The weight of all elements that a pass draws from, which goes by the target's errors where these are asked for,
// otherwise by our own (kernels/cpu/pullback.h).
double weight(const Functional& functional, const Charges& charges) {
  return functional.target ? charges.target.whole : charges.own.whole;
}

}  // namespace

double draw_every(const Functional& functional, std::size_t nodes, const Charges& about, std::int64_t n) {
  const Squares squares(functional.squares, nodes, about);
  const double whole = weight(functional, about);
  if (!(squares.own > 0) || !std::isfinite(squares.own) || !std::isfinite(whole)) return 0;
  constexpr double kMore = 1.2;  // The charges are an estimate.
  return whole / (kMore * squares.draws() * std::sqrt(static_cast<double>(n)));
}

bool charge_by_draws(const Functional& functional, std::size_t nodes, const Drawn& drawn, double every, std::int64_t n,
                     Charges* charges) {
  const std::optional<Squares> squares =
      settle(functional.squares, nodes, functional.target, functional.own_by_chance, charges);
  if (!squares) return true;
  if (!(every > 0) || drawn.too_many) return false;
  // The whole is raised above the rounding of its sum, which draws are not.
  const double d = weight(functional, *charges) * (1 - 0x1p-18) / (every * std::sqrt(static_cast<double>(n)));
  const double factor = sharing_of(drawn.events, d);
  // As many draws as were meant to be and no pair leave the open part; so do some fewer, nearly.
  constexpr double kNearly = 1.25;
  const bool enough = (factor - 1) * squares->own <= kNearly * squares->open;
  if (!enough && (d < kDrawsMax / kNearly || factor > kSharingMax)) return false;
  charges->target.noise.squares *= factor;
  charges->own.noise.squares *= factor;
  return true;
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
  if (of_target() && own_ != nullptr && node.primitive == Primitive::kMatmul)
    own_share_ = primitive::share_of_product_error(node.attributes, *own_, *target_, operands_.inputs);
  if (!own_share_) own_error_ = error(own_);
}

OpenCharges NodeRounding::charges(std::vector<Functional> functionals) const {
  for (Functional& functional : functionals) functional.cotangent = functional.cotangent.materialize();
  const Node& node = graph_.nodes[id_];
  const std::size_t n = functionals.size();
  std::vector<Later<Charge>> target(n, Charge()), own(n, Charge());
  const auto charge = [&](const Arithmetic& arithmetic, const Bound& error, const auto& asked, bool by_chance,
                          std::vector<Later<Charge>>* side) {
    std::vector<std::size_t> of;
    std::vector<Array> cotangents;
    for (std::size_t i = 0; i < n; ++i) {
      if (!asked(functionals[i])) continue;
      of.push_back(i);
      cotangents.push_back(functionals[i].cotangent);
    }
    if (of.empty()) return;
    const auto whole = [&] {
      return weighted_bounds(cotangents, error).then([](const std::vector<double>& bounds) {
        std::vector<Charge> charges;
        for (const double bound : bounds) charges.push_back({bound, {}});
        return charges;
      });
    };
    const auto found =
        by_chance ? traits(node.primitive)
                        .charges(node.attributes, arithmetic, operands_.inputs, operands_.value, error, cotangents)
                  : whole();
    for (std::size_t k = 0; k < of.size(); ++k) (*side)[of[k]] = one_of(found, k);
  };
  if (of_target())
    charge(
        *target_, target_error_, [](const Functional& f) { return f.target; }, true, &target);
  Bound own_error = own_error_;
  if (own_share_) {
    // What is asked whole is the same share of what the target is charged, where it is.
    const double share = *own_share_;
    const auto elementwise = [](const Functional& f) { return f.own_by_chance || !f.target; };
    for (std::size_t i = 0; i < n; ++i)
      if (!elementwise(functionals[i]))
        own[i] = target[i].then([share](const Charge& charge) { return Charge{charge.whole * share, {}}; });
    if (std::ranges::any_of(functionals, elementwise)) {
      own_error.values = Array::uninitialized(target_error_.values.shape());
      current_operations().scale(own_error.values, share, target_error_.values);
    }
  }
  if (own_error) {
    charge(
        *own_, own_error, [](const Functional& f) { return f.own_by_chance; }, true, &own);
    charge(
        *own_, own_error, [&](const Functional& f) { return !f.own_by_chance && (!own_share_ || !f.target); }, false,
        &own);
  }
  const SharedRoundings::Side target_side{of_target() ? target_ : nullptr, target_error_};
  const SharedRoundings::Side own_side{of_own() ? own_ : nullptr, own_error};
  const auto operands = [this] { return operands_; };
  if (current_device() != nullptr) {
    std::vector<Later<Charges>> charges;
    for (std::size_t i = 0; i < n; ++i)
      charges.push_back(Later<Charges>(std::function<Charges()>([target = target[i], own = own[i]] {
        return Charges{target, own};
      })));
    return SharedRoundings(graph_, id_, target_side, own_side, operands).open(functionals, std::move(charges));
  }
  return [=, this](std::span<const double> squares) {
    std::vector<Functional> asked = functionals;
    std::vector<Charges> charges;
    std::vector<SharedRoundings::Charged> shared_by;
    for (std::size_t i = 0; i < n; ++i) {
      asked[i].squares = squares[i];
      charges.push_back({target[i], own[i]});
    }
    for (std::size_t i = 0; i < n; ++i) shared_by.push_back({asked[i], {}, &charges[i]});
    SharedRoundings(graph_, id_, target_side, own_side, operands).charge(std::move(shared_by));
    return charges;
  };
}

}  // namespace plumbline
