#include "server/lower/lower.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "server/lower/foreach.h"
#include "server/lower/infinite.h"
#include "server/lower/integer.h"
#include "server/lower/kept.h"
#include "server/lower/registry.h"
#include "server/lower/view.h"

namespace plumbline {
namespace {

bool of_a_convolution(std::string_view op) {
  return op.starts_with("aten::convolution") || op.find("_conv") != op.npos || op.starts_with("aten::_cudnn_rnn");
}

std::vector<std::size_t> results_where(const TraceOp& op, bool written) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < op.results.size(); ++i)
    if (op.results[i].argument.empty() != written) indices.push_back(i);
  return indices;
}

std::vector<TensorRef> tensors_of(const TraceOp& op) {
  std::vector<TensorRef> tensors;
  for (const TraceArgument& argument : op.arguments) {
    if (const auto* tensor = std::get_if<TensorRef>(&argument.value)) tensors.push_back(*tensor);
    if (const auto* list = std::get_if<std::vector<TensorRef>>(&argument.value))
      tensors.insert(tensors.end(), list->begin(), list->end());
  }
  return tensors;
}

// Kernels compute in the format that arguments and a floating result promote to, 16-bit ones in fp32.
Format default_compute(const TraceOp& op) {
  for (const TraceResult& result : op.results)
    if (result.tensor.value != 0 && is_float(result.tensor.format)) return compute_format(result.tensor.format);
  // A one-element tensor of another category does not widen the others; exactness is all that is asked here.
  Format promoted = Format::kUnknown;
  for (const TensorRef& tensor : tensors_of(op))
    if (tensor.value != 0) promoted = promote(promoted, tensor.format);
  return promoted == Format::kUnknown ? Format::kInt64 : compute_format(promoted);
}

// An attribute as text; equal attributes have equal texts.
std::string to_string(const ArgumentValue& value) {
  const auto joined = [](const auto& values) {
    std::string text;
    for (const auto& item : values) text += std::to_string(item) + ",";
    return text;
  };
  struct Visitor {
    decltype(joined) join;
    std::string operator()(double x) const {
      char text[32];
      std::snprintf(text, sizeof text, "%a", x);
      return text;
    }
    std::string operator()(std::int64_t x) const { return std::to_string(x); }
    std::string operator()(bool x) const { return x ? "true" : "false"; }
    std::string operator()(const std::string& x) const { return x; }
    std::string operator()(const std::vector<std::int64_t>& x) const { return join(x); }
    std::string operator()(const std::vector<double>& x) const {
      std::string text;
      for (const double item : x) text += (*this)(item) + ",";
      return text;
    }
    std::string operator()(const std::vector<bool>& x) const {
      std::string text;
      for (const bool item : x) text += item ? "1" : "0";
      return text;
    }
    std::string operator()(Format x) const { return std::string(traits(x).name); }
    std::string operator()(None) const { return "none"; }
    std::string operator()(const TensorRef&) const { return ""; }
    std::string operator()(const std::vector<TensorRef>&) const { return ""; }
    std::string operator()(const ScalarEdge&) const { return ""; }
  };
  return std::visit(Visitor{joined}, value);
}

class Lowering {
 public:
  explicit Lowering(const Trace& trace) : trace_(trace), emitter_(graph_), storage_(emitter_) {}

  Graph run() {
    graph_.origins.push_back({"leaf", "", "", Phase::kUnknown, false});
    emitter_.begin(0, Format::kFloat64);
    for (const TraceLeaf& leaf : trace_.leaves) lower_leaf(leaf);
    for (std::size_t i = 0; i < trace_.ops.size(); ++i) {
      const std::string place = "operation " + std::to_string(i) + " '" + trace_.ops[i].name + "': ";
      named(place, [&] { lower_op(trace_.ops[i]); });
      note_missing(place);
    }
    emitter_.begin(0, Format::kFloat64);
    std::size_t judged = 0;  // Nodes of all but what is carried.
    for (const bool carried : {false, true}) {
      judged = graph_.nodes.size();
      for (const TraceTap& tap : trace_.taps) {
        if ((tap.kind == TapKind::kCarried) != carried) continue;
        const std::string place = "tap '" + tap.name + "': ";
        named(place, [&] { lower_tap(tap); });
        note_missing(place);
      }
    }
    note_kept(trace_, &storage_, &graph_);
    graph_.carried_nodes = graph_.nodes.size() - judged;
    if (!missing_.empty()) throw missing();
    graph_.wanted.assign(wanted_.begin(), wanted_.end());
    return std::move(graph_);
  }

 private:
  // Puts `place` before the message of whatever goes wrong in `action`.
  template <class Action>
  static void named(const std::string& place, Action action) {
    try {
      action();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      throw LowerError(place + error.what());
    }
  }

  // The missing results that were read just now, at `place`.
  void note_missing(const std::string& place) {
    for (const MissingResult& result : storage_.take_missing()) {
      wanted_.insert(result.wanted);
      missing_.insert(result.wanted.op);
      if (first_missing_.empty()) first_missing_ = place + result.what;
    }
  }

  ResultsMissing missing() const {
    std::string message = first_missing_;
    if (missing_.size() > 1) {
      message += "; the operations whose results are missing are ";
      for (const std::string& name : missing_) message += (name == *missing_.begin() ? "'" : ", '") + name + "'";
    }
    return {message, {wanted_.begin(), wanted_.end()}};
  }

  // The payload, null for id 0; its size must be that of `elements` of `format`.
  Bytes payload(PayloadId id, Format format, std::int64_t elements, const char* what) const {
    const auto found = trace_.payloads.find(id);
    if (id == 0 || found == trace_.payloads.end() || !found->second) return nullptr;
    const auto expected = static_cast<std::uint64_t>(elements) * static_cast<std::uint64_t>(traits(format).bytes);
    if (found->second->size() != expected)
      throw LowerError(std::string(what) + ": " + std::to_string(expected) + " bytes were expected, found " +
                       std::to_string(found->second->size()));
    return found->second;
  }

  NodeId add_leaf(const Shape& shape, Format format, LeafRole role, std::string name, bool anchor, Bytes bytes) {
    const NodeId node = emitter_.movement(Primitive::kLeaf, {}, shape, {}, format).id;
    graph_.leaves.push_back({node, role, std::move(name), anchor, format, std::move(bytes)});
    return node;
  }

  void lower_leaf(const TraceLeaf& leaf) {
    const std::string place = "leaf '" + leaf.name + "' (value " + std::to_string(leaf.value) + "): ";
    if (leaf.format == Format::kUnknown) {
      storage_.define_unknown(leaf.value, place + "its element type is not modelled");
      return;
    }
    named(place, [&] {
      if (leaf.count < 0) throw LowerError("count: at least 0 was expected, found " + std::to_string(leaf.count));
      Bytes bytes = payload(leaf.payload, leaf.format, leaf.count, "payload");
      if (!bytes && leaf.count == 0) bytes = std::make_shared<const std::vector<std::uint8_t>>();
      const bool by_name =
          leaf.role == LeafRole::kParameter || leaf.role == LeafRole::kBuffer || leaf.role == LeafRole::kState;
      if (!bytes && !by_name) throw LowerError("payload: one was expected, found none");
      const NodeId node = add_leaf({leaf.count}, leaf.format, leaf.role, leaf.name, false, bytes);
      if (const auto words = words_of_leaf(emitter_, graph_.leaves.back())) emitter_.set_words(node, *words);
      if (!by_name && stands_for_infinity(graph_.leaves.back())) emitter_.set_infinite(node);
      storage_.define_flat(leaf.value, {&emitter_, node}, leaf.count);
      leaves_[leaf.value] = {leaf.format, bytes};
      untaken_[leaf.value] = graph_.leaves.size() - 1;
    });
  }

  // The leaves that the operation is the first to take.
  void note_taken(const TraceOp& op) {
    for (const TensorRef& tensor : tensors_of(op)) {
      const auto leaf = untaken_.find(tensor.value);
      if (leaf == untaken_.end()) continue;
      graph_.leaves[leaf->second].reads = graph_.reads.size();
      untaken_.erase(leaf);
    }
  }

  void lower_op(const TraceOp& op) {
    note_taken(op);
    const bool defined = !op.defined.empty();
    const std::string& name = defined ? op.defined : op.name;
    graph_.origins.push_back(
        {name, op.source, op.module, op.phase, !op.region.empty(), defined, of_a_convolution(name)});
    emitter_.begin(static_cast<std::uint32_t>(graph_.origins.size() - 1), default_compute(op));
    std::map<std::size_t, NodeId> made;  // The key is the index of the result.
    std::optional<NodeId> decided;
    const Match match = find_rule(op.name);
    bool modelled = match.rule != nullptr;
    std::string contradiction;  // What its rule found, of arguments that do not fit together.
    reason_.clear();
    if (gives_nothing(op)) {
      modelled = true;
      for (std::size_t i = 0; i < op.results.size(); ++i) {
        const TensorRef& empty = op.results[i].tensor;
        if (empty.value != 0) made[i] = assemble(emitter_, empty.view.sizes, std::nullopt, {}, {}, empty.format).id;
      }
    } else if (modelled) {
      try {
        decided = apply(match, op, made);
      } catch (const TraceError&) {
        throw;
      } catch (const Unsupported& error) {
        modelled = false;
        reason_ = error.what();
      } catch (const LowerError& error) {
        modelled = false;
        contradiction = std::string(" (") + error.what() + ")";
      }
      if (!modelled) {
        while (!graph_.leaves.empty() && emitter_.fresh(graph_.leaves.back().node)) graph_.leaves.pop_back();
        storage_.roll_back();
        emitter_.roll_back();
        storage_.take_missing();
        made.clear();
      }
    }
    ++graph_.coverage.operations;
    ++(modelled ? graph_.coverage.modules[op.module].audited : graph_.coverage.modules[op.module].opaque);
    if (!modelled) {
      ++graph_.coverage.opaque;
      ++graph_.coverage.opaque_names[op.name + contradiction];
    }
    if (!modelled) note_opaque(op);
    for (std::size_t i = 0; i < op.results.size(); ++i) bind(op, i, made);
    if (!modelled) note_outputs(op);
    if (match.rule && modelled && !gives_nothing(op)) note_decision(*match.rule, op, decided, made);
    if (modelled) note_numbers(op);
    grid_.reset();
    choice_.reset();
  }

  // Whether all of its results are known and without elements.
  static bool gives_nothing(const TraceOp& op) {
    const auto empty = [](const TraceResult& result) {
      return result.tensor.value == 0 ||
             (result.tensor.format != Format::kUnknown && count(result.tensor.view.sizes) == 0);
    };
    return !op.results.empty() && std::ranges::all_of(op.results, empty);
  }

  // Those of the operation's constants that are its arguments, not its formula's own.
  void note_numbers(const TraceOp& op) {
    std::vector<double> numbers;
    for (const TraceArgument& argument : op.arguments) {
      if (const auto* real = std::get_if<double>(&argument.value)) numbers.push_back(*real);
      if (const auto* reals = std::get_if<std::vector<double>>(&argument.value))
        numbers.insert(numbers.end(), reals->begin(), reals->end());
    }
    if (numbers.empty()) return;
    for (NodeId id = static_cast<NodeId>(graph_.nodes.size()); id-- > 0 && emitter_.fresh(id);) {
      const Node& node = graph_.nodes[id];
      const bool number = node.primitive == Primitive::kConstant || node.primitive == Primitive::kVarianceRsqrt;
      const double value = node.attributes.scalar;
      if (!number || std::ranges::find(numbers, value) == numbers.end()) continue;
      graph_.arguments.push_back(id);
      if (!graph_.reads.empty()) graph_.python_numbers.push_back({id, graph_.reads.size(), value});
    }
  }

  void note_opaque(const TraceOp& op) {
    OpaqueCall call;
    call.origin = static_cast<std::uint32_t>(graph_.origins.size() - 1);
    const auto read = [&](const TensorRef& tensor) {
      if (tensor.value == 0) return;
      if (const MissingResult* result = storage_.missing(tensor)) {
        wanted_.insert(result->wanted);
        call.known = false;
        return;
      }
      try {
        call.inputs.push_back(storage_.read(tensor).id);
      } catch (const Unsupported&) {
        call.known = false;
      } catch (const LowerError&) {
        call.known = false;
      }
    };
    for (const TraceArgument& argument : op.arguments) {
      if (const auto* tensor = std::get_if<TensorRef>(&argument.value)) {
        read(*tensor);
      } else if (const auto* tensors = std::get_if<std::vector<TensorRef>>(&argument.value)) {
        for (const TensorRef& tensor : *tensors) read(tensor);
      } else if (const auto* edge = std::get_if<ScalarEdge>(&argument.value)) {
        read(edge->source);
      } else {
        call.attributes += argument.name + "=" + to_string(argument.value) + ";";
      }
    }
    graph_.opaque.push_back(std::move(call));
  }

  void note_outputs(const TraceOp& op) {
    OpaqueCall& call = graph_.opaque.back();
    for (auto leaf = graph_.leaves.rbegin(); leaf != graph_.leaves.rend() && emitter_.fresh(leaf->node); ++leaf)
      if (leaf->anchor) call.outputs.push_back(leaf->node);
    std::ranges::reverse(call.outputs);
    std::size_t results = 0;
    for (const TraceResult& result : op.results) results += result.tensor.value != 0 ? 1 : 0;
    call.known = call.known && call.outputs.size() == results;
  }

  // Whether two results lie in the same memory, as tied tensors of a list do: kernels read for the second what they
  // wrote for the first, in their own order. What lies within the other's span counts, too.
  static bool share_memory(const TraceOp& op) {
    std::map<ValueId, ValueId> first;                                   // What a result's storage held before all.
    std::map<ValueId, std::map<std::int64_t, std::int64_t>> intervals;  // Of it: begins and ends.
    for (const TraceResult& result : op.results) {
      if (result.tensor.value == 0 || result.base == 0 || count(result.tensor.view.sizes) == 0) continue;
      const auto earlier = first.find(result.base);
      const ValueId of = earlier == first.end() ? result.base : earlier->second;
      first[result.tensor.value] = of;
      const std::int64_t begin = result.tensor.view.offset, end = extent(result.tensor.view).value_or(INT64_MAX);
      const auto after = intervals[of].upper_bound(begin);
      if (after != intervals[of].end() && after->first < end) return true;
      if (after != intervals[of].begin() && std::prev(after)->second > begin) return true;
      intervals[of][begin] = end;
    }
    return false;
  }

  std::optional<NodeId> apply(const Match& match, const TraceOp& op, std::map<std::size_t, NodeId>& made) {
    for (const TraceResult& result : op.results)
      if (result.tensor.value != 0 && result.tensor.format == Format::kUnknown)
        throw Unsupported("a result whose element type is not modelled");
    if (share_memory(op)) throw Unsupported(op.name + ": two of its results lie in the same memory");
    std::vector<std::size_t> outputs = results_where(op, match.writes_arguments);
    if (!match.foreach) {
      const auto observe = [&](std::size_t i) {
        const TensorRef& tensor = op.results[i].tensor;
        Bytes content = payload(op.results[i].observed, tensor.format, count(tensor.view.sizes), "observed result");
        if (!content) throw Unsupported(op.name + ": result " + std::to_string(i) + " was not observed");
        const std::string name = op.name + " result " + std::to_string(i);
        return Expr{&emitter_, add_leaf(tensor.view.sizes, tensor.format, LeafRole::kData, name, true, content)};
      };
      Call call(emitter_, storage_, op, match.rule->name, match.overload, op.arguments, std::move(outputs), made,
                observe);
      match.rule->lower(call);
      grid_ = call.grid();
      choice_ = call.choice();
      graph_.coverage.untold += call.untold() ? 1 : 0;
      return call.decided();
    }
    const Format compute = emitter_.compute();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Format result = op.results[outputs[i]].tensor.format;
      emitter_.set_compute(is_float(result) ? compute_format(result) : compute);
      Call call(emitter_, storage_, op, match.rule->name, match.overload, element_arguments(op, match.rule->name, i),
                {outputs[i]}, made);
      match.rule->lower(call);
    }
    return std::nullopt;
  }

  // Makes result i known to later readers: as the node that its rule gave, as an anchor, or as unknown.
  void bind(const TraceOp& op, std::size_t i, const std::map<std::size_t, NodeId>& made) {
    const TraceResult& result = op.results[i];
    const TensorRef& tensor = result.tensor;
    if (tensor.value == 0) return;
    const std::string what = "result " + std::to_string(i);
    if (storage_.known(tensor.value))
      throw LowerError(what + ": a fresh value was expected, found value " + std::to_string(tensor.value) + " again");
    const auto reach = extent(tensor.view);
    if (!reach || *reach > result.count)
      throw LowerError(what + ": a window within " + std::to_string(result.count) +
                       " elements was expected, found sizes " + to_string(tensor.view.sizes) + ", strides " +
                       to_string(tensor.view.strides) + ", offset " + std::to_string(tensor.view.offset));
    Bytes observed;
    if (tensor.format != Format::kUnknown)
      observed = payload(result.observed, tensor.format, count(tensor.view.sizes), "observed result");

    NodeId node = 0;
    if (const auto given = made.find(i); given != made.end()) {
      node = given->second;
      if (observed && (!emitter_.fresh(node) || graph_.observed.count(node))) node = copy_of(node);
      if (observed) graph_.observed[node] = {tensor.format, observed};
    } else if (observed || (tensor.format != Format::kUnknown && count(tensor.view.sizes) == 0)) {
      if (!observed) observed = std::make_shared<const std::vector<std::uint8_t>>();
      node = add_leaf(tensor.view.sizes, tensor.format, LeafRole::kData, op.name + " " + what, true, observed);
    } else {
      const std::string named = what + " of '" + op.name + "' (" + op.source + ")";
      const std::string reason = reason_.empty() ? "" : " (" + reason_ + ")";
      if (tensor.format == Format::kUnknown)
        storage_.define_unknown(tensor.value, named + ": its element type is not modelled" + reason);
      else
        storage_.define_missing(tensor.value, tensor.format, result.count,
                                {{op.name, !op.region.empty()},
                                 named + " is needed: it is not modelled" + reason +
                                     ", and its observed content was expected, found none"});
      return;
    }
    storage_.define(tensor.value, {&emitter_, node}, tensor.view, result.count, result.base);
  }

  // A node of its own for a result that an operation passed on unchanged, so that both can be observed.
  NodeId copy_of(NodeId source) {
    const Node& node = emitter_.node(source);
    Attributes attributes;
    attributes.view = row_major_view(node.shape);
    const Shape shape = node.shape;
    const Format format = node.result;
    return emitter_.movement(Primitive::kWindow, {{&emitter_, source}}, shape, std::move(attributes), format).id;
  }

  // Whether its result is an outcome, and no number.
  static bool decides(Primitive primitive) {
    return primitive == Primitive::kSign || (primitive >= Primitive::kFloor && primitive <= Primitive::kLogicalNot) ||
           (primitive >= Primitive::kLess && primitive <= Primitive::kLogicalOr);
  }

  void note_decision(const Rule& rule, const TraceOp& op, std::optional<NodeId> decided,
                     const std::map<std::size_t, NodeId>& made) {
    if (op.results.empty()) return;  // A client may leave them out, and then nobody reads what was decided.
    if (rule.decision == DecisionKind::kPositiveSide && decided && op.decision != 0) {
      const std::int64_t elements = count(emitter_.node(*decided).shape);
      if (Bytes sides = payload(op.decision, Format::kBool, elements, "decision"))
        graph_.decisions.push_back({*decided, std::move(sides), false});
    }
    if (rule.decision == DecisionKind::kLastResult && decided) note_overflow(op, *decided, made);
    if (rule.decision == DecisionKind::kLastIndex && decided && choice_) note_choice(op, *decided, made);
    if (rule.decision != DecisionKind::kResult) return;
    for (const auto& [index, node] : made) {
      const auto observed = graph_.observed.find(node);
      if (observed == graph_.observed.end() || !is_float(emitter_.node(node).compute)) continue;
      if (!grid_ && !decides(emitter_.node(node).primitive)) continue;
      if (grid_ && index == 0) {
        graph_.decisions.push_back({*decided, codes(*grid_, observed->second), false, Format::kFloat64});
      } else if (!grid_) {
        graph_.decisions.push_back({node, observed->second.bytes, false, observed->second.format});
      }
    }
  }

  // The last result, not zero where the decision came out true. Where nothing else was observed it is no observation
  // of its own: the exact replay cannot reproduce it.
  void note_overflow(const TraceOp& op, NodeId decided, const std::map<std::size_t, NodeId>& made) {
    const std::size_t last = op.results.size() - 1;
    const auto node = made.find(last);
    const TensorRef& tensor = op.results[last].tensor;
    const Bytes observed = payload(op.results[last].observed, tensor.format, count(tensor.view.sizes), "decision");
    if (node == made.end() || !observed) return;
    std::vector<double> values(static_cast<std::size_t>(count(tensor.view.sizes)));
    decode(tensor.format, observed->data(), static_cast<std::int64_t>(values.size()), values.data());
    auto sides = std::make_shared<std::vector<std::uint8_t>>();
    for (double value : values) sides->push_back(value != 0);
    graph_.decisions.push_back({decided, std::move(sides), true});
    if (!trace_.outputs) graph_.observed.erase(node->second);
  }

  // The last result: which elements were chosen. Among equal ones it is free, so that it is no observation.
  void note_choice(const TraceOp& op, NodeId decided, const std::map<std::size_t, NodeId>& made) {
    const std::size_t last = op.results.size() - 1;
    const TensorRef& tensor = op.results[last].tensor;
    const std::int64_t elements = count(tensor.view.sizes);
    const Bytes observed = payload(op.results[last].observed, tensor.format, elements, "decision");
    if (!observed || count(emitter_.node(decided).shape) != elements) return;
    std::vector<double> indices(static_cast<std::size_t>(elements));
    decode(tensor.format, observed->data(), elements, indices.data());
    for (const double index : indices)
      if (!(index >= 0 && index < static_cast<double>(choice_->size)))
        throw LowerError("result " + std::to_string(last) + ": indices below " + std::to_string(choice_->size) +
                         " were expected, found " + std::to_string(index));
    graph_.decisions.push_back({decided, observed, false, tensor.format,
                                GraphDecision::Choice{choice_->table.id, choice_->position.id, choice_->stride}});
    if (const auto node = made.find(last); node != made.end()) graph_.observed.erase(node->second);
  }

  // The integers that an output on a grid tells.
  static Bytes codes(const Call::Grid& grid, const Observation& output) {
    const std::size_t elements = output.bytes->size() / static_cast<std::size_t>(traits(output.format).bytes);
    std::vector<double> values(elements);
    decode(output.format, output.bytes->data(), static_cast<std::int64_t>(elements), values.data());
    for (double& value : values) {
      const double code = std::nearbyint(value / grid.step);
      value = code > grid.low && code < grid.high ? code : std::numeric_limits<double>::quiet_NaN();
    }
    auto bytes = std::make_shared<std::vector<std::uint8_t>>(elements * sizeof(double));
    std::memcpy(bytes->data(), values.data(), bytes->size());
    return bytes;
  }

  void lower_tap(const TraceTap& tap) {
    GraphTap made;
    made.name = tap.name;
    made.kind = tap.kind;
    made.scale = tap.scale;
    made.guard = tap.guard;
    made.reference_format = tap.reference_format;
    if (tap.terms.empty()) throw LowerError("terms: at least one was expected, found none");
    made.shape = tap.terms[0].tensor.view.sizes;
    for (std::size_t i = 0; i < tap.terms.size(); ++i) {
      const TraceTap::Term& term = tap.terms[i];
      const std::string what = "term " + std::to_string(i);
      if (term.tensor.view.sizes != made.shape)
        throw LowerError(what + ": shape " + to_string(made.shape) + " was expected, found " +
                         to_string(term.tensor.view.sizes));
      GraphTap::Term lowered;
      lowered.node = storage_.read(term.tensor).id;
      lowered.weight = term.weight;
      lowered.format = term.tensor.format;
      lowered.observed = payload(term.observed, term.tensor.format, count(made.shape), "observed content");
      if (!lowered.observed && tap.kind != TapKind::kCarried)
        lowered.observed = observed_elsewhere(term, lowered.node, what);
      made.terms.push_back(std::move(lowered));
    }
    if (tap.reference != 0)
      made.reference = payload(tap.reference, tap.reference_format, count(made.shape), "reference");
    (tap.kind == TapKind::kCarried ? graph_.carried : graph_.taps).push_back(std::move(made));
  }

  // What a term's tensor held, when the tap does not say: a window on a leaf (null if its content was not kept), or an
  // observed result.
  Bytes observed_elsewhere(const TraceTap::Term& term, NodeId node, const std::string& what) const {
    if (const auto leaf = leaves_.find(term.tensor.value); leaf != leaves_.end())
      return leaf->second.bytes ? gather(leaf->second, term.tensor.view) : nullptr;
    if (const auto observed = graph_.observed.find(node); observed != graph_.observed.end())
      return observed->second.bytes;
    if (count(term.tensor.view.sizes) == 0) return std::make_shared<const std::vector<std::uint8_t>>();
    throw LowerError(what + ": observed content was expected, found none");
  }

  // The window's elements of a leaf, row-major. Storage::read has checked that the window lies in the leaf.
  static Bytes gather(const Observation& leaf, const View& view) {
    const auto width = static_cast<std::size_t>(traits(leaf.format).bytes);
    const std::int64_t elements = count(view.sizes);
    const std::size_t size = static_cast<std::size_t>(elements) * width;
    if (size == leaf.bytes->size() && view.strides == row_major_strides(view.sizes)) return leaf.bytes;
    auto bytes = std::make_shared<std::vector<std::uint8_t>>(size);
    std::vector<std::int64_t> at(view.sizes.size(), 0);
    for (std::int64_t i = 0; i < elements; ++i) {
      std::int64_t element = view.offset;
      for (std::size_t d = 0; d < at.size(); ++d) element += at[d] * view.strides[d];
      std::memcpy(bytes->data() + static_cast<std::size_t>(i) * width,
                  leaf.bytes->data() + static_cast<std::size_t>(element) * width, width);
      for (std::size_t d = at.size(); d-- > 0;) {
        if (++at[d] < view.sizes[d]) break;
        at[d] = 0;
      }
    }
    return bytes;
  }

  const Trace& trace_;
  Graph graph_;
  Emitter emitter_;
  Storage storage_;
  std::map<ValueId, Observation> leaves_;
  std::map<ValueId, std::size_t> untaken_;  // Leaves that no operation has taken so far, by index.
  std::set<WantedResult> wanted_;
  std::set<std::string> missing_;  // Names of the operations without whose results nothing can be lowered.
  std::string first_missing_;
  // It belongs to the operation at hand.
  std::optional<Call::Grid> grid_;
  std::optional<Call::Choice> choice_;
  std::string reason_;  // Why its rule does not model it.
};

}  // namespace

Graph lower(const Trace& trace) { return Lowering(trace).run(); }

std::vector<std::string> lowered_operations() {
  std::vector<std::string> names;
  for (const auto& [name, rule] : all_operations())
    if (!(rule->variants & kObserved)) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

std::map<std::string, int> decision_operations() {
  std::map<std::string, int> names;
  for (const auto& [name, rule] : all_operations())
    // To the client an index is a last result.
    if (rule->decision != DecisionKind::kNone)
      names[name] =
          static_cast<int>(rule->decision == DecisionKind::kLastIndex ? DecisionKind::kLastResult : rule->decision);
  return names;
}

}  // namespace plumbline
