#include "server/pipeline/reproduce.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>
#include <type_traits>

#include "server/bound/enclose/interval.h"
#include "server/bound/match/correspondence.h"
#include "server/bound/replay/arithmetic.h"
#include "server/bound/replay/decided.h"
#include "server/lower/lower.h"
#include "server/lower/view.h"

namespace plumbline {
namespace {

constexpr double kNothingPromised = std::numeric_limits<double>::quiet_NaN();

// Calls `visit` with every tensor of an argument that can be changed in place.
template <class Visit>
void each_tensor(ArgumentValue& value, Visit visit) {
  if (auto* tensor = std::get_if<TensorRef>(&value)) {
    if (tensor->value != 0) visit(*tensor);
  } else if (auto* list = std::get_if<std::vector<TensorRef>>(&value)) {
    for (TensorRef& tensor : *list)
      if (tensor.value != 0) visit(tensor);
  } else if (auto* edge = std::get_if<ScalarEdge>(&value)) {
    visit(edge->source);
  }
}

Bytes zeros(const TensorRef& tensor) {
  return std::make_shared<std::vector<std::uint8_t>>(static_cast<std::size_t>(count(tensor.view.sizes)) *
                                                     static_cast<std::size_t>(traits(tensor.format).bytes));
}

// Adds a tap of one tensor; what it observed is not asked for.
void tap(const TensorRef& tensor, Trace* trace) {
  const PayloadId payload = trace->payloads.empty() ? 1 : trace->payloads.rbegin()->first + 1;
  trace->payloads[payload] = zeros(tensor);
  TraceTap tap;
  tap.name = std::to_string(trace->taps.size());
  tap.terms.push_back({tensor, 1, payload});
  trace->taps.push_back(std::move(tap));
}

std::set<ValueId> values_before(const Trace& trace, std::size_t operation) {
  std::set<ValueId> values;
  for (const TraceLeaf& leaf : trace.leaves) values.insert(leaf.value);
  for (std::size_t i = 0; i < operation; ++i)
    for (const TraceResult& result : trace.ops[i].results) values.insert(result.tensor.value);
  return values;
}

// Nodes whose bits in the step are known: observed, or made from such without rounding but by a cast.
std::vector<bool> known_bits(const Graph& graph) {
  std::vector<bool> known(graph.nodes.size(), false);
  for (const GraphLeaf& leaf : graph.leaves) known[leaf.node] = leaf.bytes != nullptr;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.primitive == Primitive::kLeaf) continue;
    known[id] = graph.observed.count(id) > 0 ||
                (traits(node.primitive).bitwise &&
                 std::all_of(node.inputs.begin(), node.inputs.end(), [&](NodeId input) { return known[input]; }));
  }
  return known;
}

// Contents of the leaves; those that a reference lacks are the target's.
std::vector<LeafValue> contents(const Graph& graph, const Trace* target) {
  std::vector<LeafValue> leaves = leaf_values(graph);
  if (target == nullptr) return leaves;
  const Graph other = lower(*target);
  return correspond(other, leaf_values(other), graph, leaves).reference_values;
}

// The tensors of the trace's taps as the step held them, or as our own rounded replay has them. `target`: of the trace
// whose leaves are to be taken for those that `trace` lacks; null: itself.
std::vector<Reproducer::Operand> read_taps(const Trace& trace, const Trace* target) {
  const Graph graph = lower(trace);
  const std::vector<LeafValue> leaves = contents(graph, target);
  Overrides observed = follow_decisions(graph, leaves, Profile()).decisions.overrides;
  for (const auto& [node, observation] : graph.observed)
    observed[node] = LeafValue(observation.format, observation.bytes, graph.nodes[node].shape);
  const Replay rounded = replay(graph, leaves, Precision::kRounded, observed);
  const std::vector<bool> known = known_bits(graph);
  std::vector<Reproducer::Operand> operands;
  for (std::size_t i = 0; i < trace.taps.size(); ++i) {
    const TensorRef& tensor = trace.taps[i].terms.front().tensor;
    const NodeId node = graph.taps[i].terms.front().node;
    const Array values = rounded.value(node).expand(tensor.view.sizes).on_host();
    auto bytes = std::make_shared<std::vector<std::uint8_t>>(*zeros(tensor));
    encode(tensor.format, values.data(), values.count(), bytes->data());
    operands.push_back({tensor, std::move(bytes), known[node]});
  }
  return operands;
}

// Makes operands of the operation's tensors, and numbers of its scalars that were tensors.
void take_operands(const Trace& trace, const Trace* target, std::size_t operation, Reproducer* result) {
  const std::set<ValueId> known = values_before(trace, operation);
  Trace before = trace;
  before.ops.resize(operation);
  before.taps.clear();
  std::vector<TensorRef> tensors;
  const auto place_of = [&tensors](const TensorRef& tensor) {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].value == tensor.value && tensors[i].view == tensor.view) return i;
    tensors.push_back(tensor);
    return tensors.size() - 1;
  };
  for (TraceArgument& argument : result->op.arguments)
    each_tensor(argument.value, [&](TensorRef& tensor) {
      if (tensor.format == Format::kUnknown)
        throw std::runtime_error("argument " + argument.name + " is of an element type that is not modelled");
      place_of(tensor);
    });
  std::vector<std::size_t> read;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    result->operands.push_back({tensors[i], zeros(tensors[i]), true});  // It is overwritten, if it was never written.
    if (known.count(tensors[i].value) == 0) continue;
    read.push_back(i);
    tap(tensors[i], &before);
  }
  if (!read.empty()) {
    std::vector<Reproducer::Operand> contents = read_taps(before, target);
    for (std::size_t k = 0; k < read.size(); ++k) result->operands[read[k]] = std::move(contents[k]);
  }
  for (TraceArgument& argument : result->op.arguments) {
    if (const auto* edge = std::get_if<ScalarEdge>(&argument.value)) {
      const Reproducer::Operand& operand = result->operands[place_of(edge->source)];
      double value = 0;
      decode(operand.tensor.format, operand.content->data(), 1, &value);
      if (is_float(operand.tensor.format)) {
        argument.value = value;
      } else {
        argument.value = static_cast<std::int64_t>(value);
      }
      continue;
    }
    each_tensor(argument.value, [&](TensorRef& tensor) { tensor.value = place_of(tensor) + 1; });
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) result->operands[i].tensor.value = i + 1;
}

// The operation as a step of its own, every operand a leaf. Nothing is tapped.
Trace step_of(const Reproducer& reproducer) {
  Trace step;
  step.ops.push_back(reproducer.op);
  TraceOp& op = step.ops.front();
  const auto contiguous = [](TensorRef& tensor) { tensor.view = row_major_view(tensor.view.sizes); };
  for (TraceArgument& argument : op.arguments) each_tensor(argument.value, contiguous);
  for (const Reproducer::Operand& operand : reproducer.operands) {
    const std::int64_t elements = count(operand.tensor.view.sizes);
    step.leaves.push_back({operand.tensor.value, operand.tensor.format, elements, LeafRole::kData, "",
                           elements > 0 ? operand.tensor.value : 0});
    step.payloads[operand.tensor.value] = operand.content;
  }
  ValueId fresh = reproducer.operands.size() + 1;
  for (TraceResult& result : op.results) {
    result.observed = 0;
    result.base = 0;  // An operand fills its storage, so that a write to it leaves nothing of it.
    if (result.tensor.value == 0) continue;
    contiguous(result.tensor);
    result.tensor.value = fresh++;
    result.count = count(result.tensor.view.sizes);
  }
  op.decision = 0;
  return step;
}

// Whether the lowering computes a result of the step's operation: not what a generator of random numbers holds.
bool computes(const Trace& step, const TraceResult& result) {
  if (result.tensor.format == Format::kUnknown) return false;
  Trace tapped = step;
  tap(result.tensor, &tapped);
  try {
    lower(tapped);
  } catch (const ResultsMissing&) {
    return false;
  }
  return true;
}

// [low, high] of a value whose exact one is m, within r of it: what rounds to infinity may be infinite.
void enclose_value(double m, double r, Format format, const PromisedRange& promised, double* low, double* high) {
  *low = *high = kNothingPromised;
  if (!std::isfinite(m)) return;
  *low = m - r;
  *high = m + r;
  if (is_float(format)) {
    if (std::isinf(round_to(format, *low))) *low = -HUGE_VAL;
    if (std::isinf(round_to(format, *high))) *high = HUGE_VAL;
  }
  *low = std::fmax(*low, promised.low);
  *high = std::fmin(*high, promised.high);
}

void enclose_results(const Profile& profile, Reproducer* reproducer) {
  Trace step = step_of(*reproducer);
  const std::vector<TraceResult>& results = step.ops.front().results;
  std::vector<bool> computed;
  for (const TraceResult& result : results) computed.push_back(result.tensor.value != 0 && computes(step, result));
  for (std::size_t i = 0; i < results.size(); ++i)
    if (computed[i]) tap(results[i].tensor, &step);
  const Graph graph = lower(step);
  if (graph.coverage.opaque > 0) throw std::runtime_error(reproducer->op.name + " is not modelled: nothing bounds it");
  const Replay exact = replay(graph, leaf_values(graph), Precision::kExact);
  std::vector<NodeId> wanted;
  for (const GraphTap& tap : graph.taps) wanted.push_back(tap.terms.front().node);
  const Overrides no_anchors;
  Enclosures enclosures(graph, exact, wanted, &profile, no_anchors);
  bool any = false;
  std::size_t next = 0;
  for (std::size_t place = 0; place < results.size(); ++place) {
    const TraceResult& result = reproducer->op.results[place];
    if (result.tensor.value == 0) continue;
    if (!computed[place]) {
      const std::vector<double> nothing(static_cast<std::size_t>(count(result.tensor.view.sizes)), kNothingPromised);
      reproducer->results.push_back({result.tensor, result.argument, nothing, nothing});
      continue;
    }
    const NodeId id = wanted[next++];
    const Node& node = graph.nodes[id];
    const Array values = exact.value(id).on_host();
    const Enclosure enclosure = enclosures.take(id);
    const Array radius = enclosure.radius ? enclosure.radius.values.on_host() : Array();
    // Our own replay's error is some 2^-53 of the same terms: 2^-20 of an fp32 radius, all of an fp64 one.
    const double own = node.compute == Format::kFloat64 ? 3 : 1 + 0x1p-20;
    const PromisedRange promised = promised_range(node, profile);
    Reproducer::Expected expected{result.tensor, result.argument, {}, {}};
    for (std::int64_t i = 0; i < values.count(); ++i) {
      double low = kNothingPromised, high = kNothingPromised;
      if (!enclosure.exploded)
        enclose_value(values.data()[i], radius ? radius.data()[i] * own : 0, node.result, promised, &low, &high);
      any = any || !std::isnan(low);
      expected.low.push_back(low);
      expected.high.push_back(high);
    }
    reproducer->results.push_back(std::move(expected));
  }
  if (!any) throw std::runtime_error("nothing bounds the results of " + reproducer->op.name + " on these operands");
}

}  // namespace

Reproducer reproduce(const TraceRecord& record, const Verdict& verdict, const Profile& profile) {
  if (verdict.outcome != Outcome::kTypeII) throw std::runtime_error("the step is not TYPE_II: nothing is at fault");
  if (!verdict.suspect) throw std::runtime_error("no operation is suspected: " + verdict.sentence);
  const Trace& trace = verdict.suspect_in_reference ? *record.reference : *record.trace;
  const std::int64_t operation = verdict.suspect->operation;
  if (operation < 0 || operation >= static_cast<std::int64_t>(trace.ops.size()))
    throw std::runtime_error("suspected is " + verdict.suspect->op + ", which no operation of the step computed");
  Reproducer reproducer;
  reproducer.op = trace.ops[static_cast<std::size_t>(operation)];
  if (!reproducer.op.defined.empty())
    throw std::runtime_error("suspected is " + reproducer.op.defined +
                             ", whose kernel is no part of PyTorch: no script could call it");
  take_operands(trace, verdict.suspect_in_reference ? record.trace.get() : nullptr, static_cast<std::size_t>(operation),
                &reproducer);
  enclose_results(profile, &reproducer);
  return reproducer;
}

}  // namespace plumbline
