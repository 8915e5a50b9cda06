#include "server/bound/replay/wide_replay.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "kernels/primitive/element.h"
#include "kernels/wide/compare.h"
#include "kernels/wide/evaluate.h"
#include "kernels/wide/integers.h"

namespace plumbline {
namespace {

constexpr std::int64_t kElement = sizeof(Wide);
constexpr std::int64_t kPanel = 16;  // Columns of a panel of a product (kernels/wide/product.cc).
constexpr std::int64_t kKeptMax = std::int64_t{1} << 30;

// `read`: the nodes whose value is read; `computed`: those whose own result is computed, not those that were kept;
// `readers`: how many computations read each value.
struct Cone {
  Cone(const Graph& graph, const Overrides& given, const std::vector<NodeId>& wanted, const WideValues& kept)
      : read(graph.nodes.size(), false), computed(graph.nodes.size(), false), readers(graph.nodes.size(), 0) {
    for (NodeId id : wanted) {
      read[id] = computed[id] = true;
      ++readers[id];  // For ever.
    }
    for (std::size_t i = graph.nodes.size(); i-- > 0;) {
      const auto id = static_cast<NodeId>(i);
      if (read[id] && given.count(id) == 0) computed[id] = true;
      if (kept.find(id) != nullptr) computed[id] = false;
      if (!computed[id]) continue;
      for (NodeId input : graph.nodes[id].inputs) {
        read[input] = true;
        ++readers[input];
      }
    }
  }

  std::vector<bool> read, computed;
  std::vector<int> readers;
};

// Whether arithmetic in the format wraps.
bool wraps(Format format) { return format != Format::kUnknown && format != Format::kBool && !is_float(format); }

bool dense(const Shape& sizes, const Shape& strides) {
  const Shape row_major = row_major_strides(sizes);
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] != 1 && strides[d] != row_major[d]) return false;
  return true;
}

// The memory that the evaluation takes, by its own rules: windows and casts share the buffer that they read.
class Memory {
 public:
  explicit Memory(const Graph& graph)
      : graph_(graph),
        owner_(graph.nodes.size()),
        dense_(graph.nodes.size(), true),
        holders_(graph.nodes.size(), 0),
        bytes_(graph.nodes.size(), 0) {}

  // Adds the value of a node, its own or the given one.
  void make(NodeId id, bool given) {
    const Node& node = graph_.nodes[id];
    const NodeId source = node.inputs.empty() ? id : node.inputs[0];
    owner_[id] = id;
    bytes_[id] = kElement * count(node.shape);
    if (given || node.primitive == Primitive::kLeaf) {
    } else if (node.primitive == Primitive::kConstant) {
      bytes_[id] = kElement;
      dense_[id] = count(node.shape) == 1;
    } else if (node.primitive == Primitive::kCast) {
      share(id, source);
      dense_[id] = dense_[source] && node.shape == graph_.nodes[source].shape;
    } else if (node.primitive == Primitive::kWindow) {
      if (dense_[source])
        share(id, source);
      else
        bytes_[id] = kElement * count(graph_.nodes[source].shape);
      dense_[id] = dense(node.attributes.view.sizes, node.attributes.view.strides);
    }
    ++holders_[owner_[id]];
    if (owner_[id] == id) live_ += bytes_[id];
    most_ = std::max(most_, live_ + scratch(node, given));
  }

  void release(NodeId id) {
    if (--holders_[owner_[id]] == 0) live_ -= bytes_[owner_[id]];
  }

  std::int64_t most() const { return most_; }

 private:
  void share(NodeId id, NodeId source) {
    owner_[id] = owner_[source];
    bytes_[id] = 0;
  }

  // Decoded content, row-major copies of operands, places and values of a line that is sorted, and a product's pairs of
  // doubles.
  std::int64_t scratch(const Node& node, bool given) const {
    std::int64_t of_inputs = 0;
    for (NodeId input : node.inputs) of_inputs += kElement * count(graph_.nodes[input].shape);
    if (given || node.primitive == Primitive::kLeaf) return kElement * count(node.shape);
    if (node.primitive == Primitive::kArgsort) return 3 * of_inputs;
    if (wraps(node.result)) of_inputs += kElement * count(node.shape);  // Before it wraps.
    if (node.primitive != Primitive::kMatmul)
      return is_elementwise(node.primitive) && !wraps(node.result) ? 0 : of_inputs;
    std::int64_t of_product = kElement * count(node.shape);
    for (NodeId input : node.inputs) of_product += 3 * kElement * distinct(graph_.nodes[input]);
    const Node& right = graph_.nodes[node.inputs[1]];
    if (right.shape.back() > 0) of_product += distinct(right) / right.shape.back() * kElement * kPanel;
    return of_product;
  }

  // Elements of a product's operand, without leading dimensions that repeat the same matrices.
  static std::int64_t distinct(const Node& node) {
    Shape sizes = node.shape;
    for (std::size_t d = 0; d + 2 < sizes.size(); ++d)
      if (node.primitive == Primitive::kWindow && node.attributes.view.strides[d] == 0) sizes[d] = 1;
    return count(sizes);
  }

  const Graph& graph_;
  std::vector<NodeId> owner_;  // The node that owns the buffer of each node.
  std::vector<bool> dense_;
  std::vector<int> holders_;         // There is one for each owner.
  std::vector<std::int64_t> bytes_;  // There is one for each owner.
  std::int64_t live_ = 0, most_ = 0;
};

double work_of(const Graph& graph, const Node& node) {
  std::vector<Shape> shapes;
  for (NodeId input : node.inputs) shapes.push_back(graph.nodes[input].shape);
  return wide::work(node.primitive, node.attributes, node.shape, shapes);
}

// Walks the cone in order. Calls given(id) where the node's value was given or kept, computed(id) where its own result
// is computed, and freed(id) when its last reader is done. `computed` returns whether to go on.
template <class Given, class Computed, class Freed>
bool walk(const Graph& graph, const Overrides& overrides, Cone cone, const Given& given, const Computed& computed,
          const Freed& freed) {
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (cone.read[id] && (overrides.count(id) != 0 || !cone.computed[id])) given(id);
    if (!cone.computed[id]) continue;
    if (!computed(id)) return false;
    for (NodeId input : graph.nodes[id].inputs)
      if (--cone.readers[input] == 0) freed(input);
  }
  return true;
}

WideCost cost_of(const Graph& graph, const Overrides& given, const Cone& cone) {
  WideCost cost;
  Memory memory(graph);
  std::int64_t own = 0;  // Results of wanted nodes whose readers see something else.
  const auto count_given = [&](NodeId id) { memory.make(id, true); };
  const auto count_computed = [&](NodeId id) {
    ++cost.nodes;
    cost.work += work_of(graph, graph.nodes[id]);
    if (given.count(id) == 0)
      memory.make(id, false);
    else
      own += kElement * count(graph.nodes[id].shape);
    return true;
  };
  walk(graph, given, cone, count_given, count_computed, [&](NodeId id) { memory.release(id); });
  cost.bytes = memory.most() + own;
  return cost;
}

bool is_ring_operation(Primitive primitive) {
  using enum Primitive;
  return primitive == kNeg || primitive == kAbs || primitive == kAdd || primitive == kSub || primitive == kMul ||
         primitive == kSum || primitive == kCumsum || primitive == kMatmul || primitive == kScatterAdd;
}

// The result of a node whose format is an integer, and whose operands are integers.
WideArray integer_result(const Node& node, std::span<const WideArray> in) {
  if (node.primitive == Primitive::kMul) return wide::wrapped(node.result, wide::multiplied(in[0], in[1], node.shape));
  return wide::wrapped(node.result, wide::evaluate(node.primitive, node.attributes, node.shape, in));
}

WideArray result_of(const Graph& graph, const Node& node, std::span<const WideArray> in) {
  const bool from_integer = node.primitive == Primitive::kCast && wraps(graph.nodes[node.inputs[0]].result);
  if (wraps(node.result) && (from_integer || is_ring_operation(node.primitive)) &&
      std::all_of(in.begin(), in.end(), wide::integral))
    return integer_result(node, in);
  return wide::evaluate(node.primitive, node.attributes, node.shape, in);
}

WideArray content(const LeafValue& value, const Shape& shape) {
  return WideArray::of(static_cast<Array>(value)).reshape(shape);
}

}  // namespace

WideCost wide_cost(const Graph& graph, const Overrides& given, const std::vector<NodeId>& wanted) {
  return cost_of(graph, given, Cone(graph, given, wanted, {}));
}

const WideArray* WideValues::find(NodeId id) const {
  const auto found = values_.find(id);
  return found == values_.end() ? nullptr : &found->second;
}

void WideValues::keep(NodeId id, const WideArray& value) {
  const std::int64_t bytes = kElement * value.count();
  if (bytes > kKeptMax - bytes_) {
    bytes_ = kKeptMax;  // A later window would hold all of a value that is not counted.
    return;
  }
  if (values_.emplace(id, value).second) bytes_ += bytes;
}

WideArray WideReplay::value(NodeId id) const {
  const auto found = given_.find(id);
  return found == given_.end() ? computed(id) : found->second;
}

WideArray WideReplay::computed(NodeId id) const {
  const auto found = computed_.find(id);
  return found == computed_.end() ? WideArray() : found->second;
}

WideReplay wide_replay(const Graph& graph, const std::vector<LeafValue>& leaves, const Overrides& given,
                       const std::vector<NodeId>& wanted, const WideLimits& limits, WideValues* kept) {
  const WideValues none;
  const WideValues& before = kept != nullptr ? *kept : none;
  const Cone cone(graph, given, wanted, before);
  WideReplay replay;
  replay.cost_ = cost_of(graph, given, cone);
  if (!(replay.cost_.work <= limits.work) || replay.cost_.bytes > limits.bytes) return replay;

  std::map<NodeId, const LeafValue*> contents;
  for (std::size_t i = 0; i < graph.leaves.size(); ++i) {
    const GraphLeaf& leaf = graph.leaves[i];
    contents[leaf.node] = &leaves[i];
    if (cone.computed[leaf.node] && !leaves[i])
      throw std::runtime_error("leaf '" + leaf.name + "': expected its content, found none");
  }
  std::vector<bool> is_wanted(graph.nodes.size(), false);
  for (NodeId id : wanted) is_wanted[id] = true;
  std::vector<WideArray> values(graph.nodes.size());
  std::map<NodeId, WideArray> own, seen;
  double done = 0;
  const auto take = [&](NodeId id) {
    const WideArray* own_before = before.find(id);
    const auto replaced = given.find(id);
    values[id] = replaced != given.end() ? content(replaced->second, graph.nodes[id].shape) : *own_before;
    if (!is_wanted[id]) return;
    if (replaced != given.end()) seen[id] = values[id];
    if (own_before != nullptr) own[id] = *own_before;
  };
  const auto compute = [&](NodeId id) {
    if (limits.progress && !limits.progress(replay.cost_.work == 0 ? 0 : done / replay.cost_.work)) return false;
    const Node& node = graph.nodes[id];
    WideArray result;
    if (node.primitive == Primitive::kLeaf) {
      const auto leaf = contents.find(id);
      if (leaf == contents.end()) throw std::runtime_error("leaf '?': expected its content, found none");
      result = content(*leaf->second, node.shape);
    } else {
      std::vector<WideArray> inputs;
      for (NodeId input : node.inputs) inputs.push_back(values[input]);
      result = result_of(graph, node, inputs);
    }
    if (is_wanted[id]) own[id] = result;
    if (kept != nullptr) kept->keep(id, result);
    if (given.count(id) == 0) values[id] = std::move(result);
    done += work_of(graph, node);
    return true;
  };
  const bool finished = walk(graph, given, cone, take, compute, [&](NodeId id) { values[id] = WideArray(); });
  replay.outcome_ = finished ? WideReplay::Outcome::kDone : WideReplay::Outcome::kStopped;
  if (!finished) return replay;
  replay.computed_ = std::move(own);
  replay.given_ = std::move(seen);
  return replay;
}

Overrides shared_decisions(const Graph& graph, const Replay& replay, const std::vector<NodeId>& wanted) {
  const auto jumps = [](Primitive primitive) {
    return primitive::element::flat(primitive) || primitive == Primitive::kArgmax || primitive == Primitive::kArgsort;
  };
  Overrides decisions;
  std::vector<bool> read(graph.nodes.size(), false);
  for (NodeId id : wanted) read[id] = true;
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const auto id = static_cast<NodeId>(i);
    if (!read[id]) continue;
    if (jumps(graph.nodes[id].primitive) && replay.has(id)) {
      decisions[id] = replay.value(id);
    } else {
      for (NodeId input : graph.nodes[id].inputs) read[input] = true;
    }
  }
  return decisions;
}

WideArray replayed_value(const GraphTap& tap, const WideReplay& replay) {
  WideArray sum = WideArray::full(tap.shape, 0);
  for (const GraphTap::Term& term : tap.terms) sum = wide::plus(sum, term.weight, replay.value(term.node));
  return sum;
}

}  // namespace plumbline
