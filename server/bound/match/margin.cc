#include "server/bound/match/margin.h"

#include <algorithm>
#include <cmath>

#include "server/bound/replay/terms.h"

namespace plumbline {
namespace {

bool compares(Primitive primitive) { return primitive >= Primitive::kLess && primitive <= Primitive::kNotEqual; }

bool chooses(Primitive primitive) { return primitive == Primitive::kArgmax || primitive == Primitive::kArgsort; }

bool rounds(Primitive primitive) { return primitive >= Primitive::kFloor && primitive <= Primitive::kTrunc; }

// Whether `b`, seen through windows, is the largest or smallest of `a`: one of its elements, bit by bit.
bool extreme_of(const Graph& graph, NodeId b, NodeId a) {
  const auto seen = [&](NodeId id) {
    while (graph.nodes[id].primitive == Primitive::kWindow) id = graph.nodes[id].inputs[0];
    return id;
  };
  const Node& node = graph.nodes[seen(b)];
  const bool extreme = node.primitive == Primitive::kAmax || node.primitive == Primitive::kAmin;
  return extreme && seen(node.inputs[0]) == seen(a);
}

double root_mean_square(const Array& values) {
  double squares = 0, finite = 0;
  const double* const x = values.data();
#pragma omp simd reduction(+ : squares, finite)
  for (std::int64_t i = 0; i < values.count(); ++i) {
    const bool counts = x[i] - x[i] == 0;
    squares += counts ? x[i] * x[i] : 0;
    finite += counts ? 1 : 0;
  }
  return finite == 0 ? 0 : std::sqrt(squares / finite);
}

bool is_zero(const Graph& graph, NodeId id) {
  return graph.nodes[id].primitive == Primitive::kConstant && graph.nodes[id].attributes.scalar == 0;
}

// What a decision looks at first. Whether a relu's result is positive is whether its argument is, and that is zero only
// at the tie.
NodeId first_operand(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  const NodeId operand = node.inputs[0];
  const Node& relu = graph.nodes[operand];
  if (node.primitive != Primitive::kGreater || relu.primitive != Primitive::kSelect ||
      !is_zero(graph, node.inputs[1]) || !is_zero(graph, relu.inputs[2]))
    return operand;
  const Node& condition = graph.nodes[relu.inputs[0]];
  const bool own = condition.primitive == Primitive::kGreater && condition.inputs[0] == relu.inputs[1] &&
                   is_zero(graph, condition.inputs[1]);
  return own ? relu.inputs[1] : operand;
}

}  // namespace

bool Margins::decides(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  const auto continuous = [&](NodeId input) { return is_float(graph.nodes[input].result); };
  const Primitive p = node.primitive;
  const bool truncates = p == Primitive::kCast && !is_float(node.result);
  if (!compares(p) && !chooses(p) && !rounds(p) && p != Primitive::kSign && !truncates) return false;
  return std::ranges::any_of(node.inputs, continuous);
}

Margins::Margins(const MatchSide& side, NodeId id, const GraphDecision::Choice* choice, double relative,
                 const Array& loose)
    : primitive_(side.graph.nodes[id].primitive), loose_(loose), relative_(relative) {
  const Node& node = side.graph.nodes[id];
  if (primitive_ == Primitive::kCast) {
    to_bool_ = node.result == Format::kBool;
    primitive_ = Primitive::kTrunc;
  }
  outcomes_ = side.replay.value(id).on_host();
  if (chooses(primitive_)) {
    if (choice == nullptr) return;
    table_ = side.replay.value(choice->table).on_host();
    position_ = side.replay.value(choice->position).on_host();
    stride_ = choice->stride;
    size_ = root_mean_square(terms_magnitude(side.graph, side.replay, choice->table).on_host());
    return;
  }
  const NodeId first = first_operand(side.graph, id);
  a_ = side.replay.value(first).expand(node.shape).on_host();
  // What is near zero because its terms cancel is off by what these are. They are no less than the value.
  terms_ = terms_magnitude(side.graph, side.replay, first).expand(node.shape).on_host();
  size_ = root_mean_square(terms_);
  if (node.inputs.size() == 2) {
    selects_ = primitive_ == Primitive::kEqual && (extreme_of(side.graph, node.inputs[1], node.inputs[0]) ||
                                                   extreme_of(side.graph, node.inputs[0], node.inputs[1]));
    b_ = side.replay.value(node.inputs[1]).expand(node.shape).on_host();
    size_ += root_mean_square(b_);
  }
}

double Margins::choice_margin(std::int64_t element, double outcome) const {
  if (!table_) return HUGE_VAL;
  const double row = position_.data()[element];
  const double other = row + (outcome - outcomes_.data()[element]) * static_cast<double>(stride_);
  const auto rows = static_cast<double>(table_.count());
  if (!(row >= 0 && other >= 0 && row < rows && other < rows)) return HUGE_VAL;
  return std::fabs(table_.data()[static_cast<std::int64_t>(row)] - table_.data()[static_cast<std::int64_t>(other)]);
}

double Margins::margin(std::int64_t element, double outcome) const {
  if (outcome == outcomes_.data()[element]) return 0;
  if (chooses(primitive_)) return choice_margin(element, outcome);
  const double a = a_.data()[element], difference = b_ ? a - b_.data()[element] : a;
  if (!std::isfinite(difference)) return HUGE_VAL;
  if (to_bool_) return outcome == 0 ? std::fabs(a) : 0;
  if (rounds(primitive_)) return distance_to_code(primitive_, a, outcome);
  if (primitive_ == Primitive::kSign) return outcome == 0 ? std::fabs(a) : std::fmax(0, -a * outcome);
  // A comparison that is to come out the other way: an equality of floats can always be lost, and is gained by moving
  // onto it; an order turns at equality.
  const bool equality = primitive_ == Primitive::kEqual || primitive_ == Primitive::kNotEqual;
  if (equality && (outcome != 0) == (primitive_ == Primitive::kNotEqual)) return 0;
  return std::fabs(difference);
}

double Margins::slack(std::int64_t element) const {
  double size = size_;
  if (terms_) size += terms_.data()[element];
  if (b_) size += std::fabs(b_.data()[element]);
  return std::isfinite(size) ? relative_ * size : 0;
}

bool Margins::certain(std::int64_t element) const { return relative_ == 0 || (loose_ && loose_.data()[element] == 0); }

bool Margins::legal(std::int64_t element, double outcome) const {
  if (outcome == outcomes_.data()[element]) return true;
  return !certain(element) && margin(element, outcome) <= slack(element);
}

bool Margins::open() const {
  const bool orders = compares(primitive_) && primitive_ != Primitive::kEqual && primitive_ != Primitive::kNotEqual;
  if (orders && !to_bool_ && !loose_) return turns();
  for (std::int64_t i = 0; i < outcomes_.count(); ++i)
    if (jump(i) > 0) return true;
  return false;
}

// As `open` of an order whose operands may be off anywhere: most decisions of a network, at each of its elements.
bool Margins::turns() const {
  if (relative_ == 0) return false;
  constexpr std::int64_t kBlock = 1 << 12;
  const double *const a = a_.data(), *const b = b_.data(), *const terms = terms_.data();
  const double relative = relative_, common = size_;
  for (std::int64_t begin = 0; begin < a_.count(); begin += kBlock) {
    const std::int64_t end = std::min(a_.count(), begin + kBlock);
    int near = 0;
#pragma omp simd reduction(| : near)
    for (std::int64_t i = begin; i < end; ++i) {
      const double size = common + terms[i] + std::fabs(b[i]);
      const double slack = size - size == 0 ? relative * size : 0;
      near |= std::fabs(a[i] - b[i]) <= slack ? 1 : 0;  // Not where the difference is infinite or NaN.
    }
    if (near != 0) return true;
  }
  return false;
}

double Margins::jump(std::int64_t element) const {
  const double own = outcomes_.data()[element];
  double most = 0;
  const auto visit = [&](double outcome) {
    if (legal(element, outcome)) most = std::fmax(most, std::fabs(outcome - own));
  };
  if (chooses(primitive_)) return 0;   // Which of equal elements was chosen: looked at where the choices are compared.
  if (selects_ && own != 0) return 0;  // Alone it stays so; of several equal ones another program may take one.
  if (compares(primitive_) || to_bool_) {
    visit(own == 0 ? 1 : 0);
  } else if (primitive_ == Primitive::kSign) {
    for (double outcome : {-1.0, 0.0, 1.0}) visit(outcome);
  } else {
    visit(own - 1);
    visit(own + 1);
  }
  return most;
}

}  // namespace plumbline
