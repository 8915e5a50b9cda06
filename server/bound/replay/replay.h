// Re-execution of a graph: in exact arithmetic (fp64, whose own error the adjoint pass bounds) or rounded to each
// node's declared format, which is one legal execution of our own and carries the range lane (overflow to infinity,
// flush, NaN by IEEE 754, since every format rounds as IEEE 754 says).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/profile.h"
#include "server/bound/replay/patches.h"
#include "server/lower/graph.h"

namespace plumbline {

// Content of a leaf, or of what else was told: values, or bytes in its own format, which take half the memory or less
// and are decoded whenever they are asked for.
class LeafValue {
 public:
  LeafValue() = default;  // None.
  LeafValue(Array values) : shape_(values.shape()), values_(std::move(values)) {}
  // Small ones are decoded at once.
  LeafValue(Format format, Bytes bytes, Shape shape);

  explicit operator bool() const { return values_ || bytes_ != nullptr; }
  bool packed() const { return bytes_ != nullptr; }
  std::int64_t count() const { return plumbline::count(shape_); }
  operator Array() const;
  // The elements are counted row-major.
  Array part(std::int64_t begin, std::int64_t length) const;
  // Where it is packed: its elements from `begin` on, as they are held in `format`.
  Format format() const { return format_; }
  const std::uint8_t* bytes(std::int64_t begin) const { return bytes_->data() + begin * traits(format_).bytes; }
  LeafValue reshape(Shape shape) const;
  // They hold the same bytes, whatever their shape. Otherwise they may still be equal.
  bool same_bytes(const LeafValue& other) const;

 private:
  Format format_ = Format::kUnknown;
  Bytes bytes_;
  Shape shape_;
  Array values_;
};

using Overrides = std::map<NodeId, LeafValue>;  // What the consumers of each node see instead.
class Replay;
// What the consumers of some nodes see is decided once a replay has come to them.
struct Deciding {
  std::vector<bool> at;  // By node.
  // `so_far`: the replay, which has what lies before the node. Empty: they see what is computed there.
  std::function<Array(NodeId id, const Replay& so_far)> seen;
};
// Nodes whose consumers see the value of an earlier node instead, which has as many elements.
using Passes = std::map<NodeId, NodeId>;

class Congruence;

// What else a replay is told. `unrounded` and `later` are by node.
struct ReplayOptions {
  Passes passes = {};
  const Deciding* deciding = nullptr;            // May add to the overrides on the way.
  const std::vector<NodeId>* only = nullptr;     // These, and what they depend on, are all that is needed.
  const std::vector<bool>* unrounded = nullptr;  // Stay exact in a rounded replay.
  // Computed when they are asked for. None depends on another.
  const std::vector<bool>* later = nullptr;
  // Products of a quarter of the terms are kept, too: sweeps would compute them again. Takes a tenth more memory. What
  // is based on such a replay is another.
  bool for_sweeps = false;
  // Each value is read about once: what few operations make is computed then.
  bool read_once = false;
  Congruence* congruence = nullptr;  // What it holds of a node is not computed, and shares its memory.
};

// kJittered: as kExact, with operands and results of arithmetic moved at random by up to two units in their last place,
// and the decisions of the base: what a replay's own roundings make of its values, sampled once.
enum class Precision { kExact, kRounded, kJittered };

// Values of the needed nodes. Results of large products, reductions and the like are kept; elementwise results and
// copies are computed again when they are asked for, but for those used last, so that a step needs little more memory
// than what its training keeps. A handle: copies share everything. It refers to the graph. Not thread-safe.
class Replay {
 public:
  Replay() = default;
  explicit operator bool() const { return static_cast<bool>(state_); }
  bool is(const Replay& other) const { return state_ == other.state_; }  // They are handles of one.
  // Some tap, decision or observation depends on the node: it has a value.
  bool has(NodeId id) const;
  // Its value is held, or was given: nothing is computed when it is asked for.
  bool at_hand(NodeId id) const;
  // It is `later` (below) and has not been computed yet: who asks for it waits.
  bool waits(NodeId id) const;
  // Its consumers saw another value than was computed.
  bool overridden(NodeId id) const;
  // The earlier node whose value its consumers saw.
  std::optional<NodeId> passed(NodeId id) const;
  // What consumers see of a node whose content is held packed; otherwise empty.
  LeafValue packed(NodeId id) const;
  // What the node's consumers saw. Empty: not needed.
  Array value(NodeId id) const;
  // What the replay computed at the node itself; differs from `value` where that was overridden.
  Array computed(NodeId id) const;
  // The values of the node's inputs, as its primitive takes them: patches of an image are not copied out of it
  // (patches.h), but stand there as a window with more dimensions than the product has.
  std::vector<Array> operands(NodeId id) const;
  // The product's second operand is read from an image like that.
  std::optional<PatchOperand> patches(NodeId id) const;
  // Gives up what is held of the node, for all handles. Neither it nor its consumers may be asked for afterwards.
  void give_up(NodeId id) const;
  // Gives up, for all handles, what was computed at a node whose consumers saw another value: who asks for it again
  // waits for it again.
  void forget_computed(NodeId id) const;
  // What somebody has computed of the node as the replay would: it is held as if it had been asked for.
  void hold(NodeId id, const Array& value) const;
  // Gives up, for all handles, what was computed last and is cheap to compute again: for a replay that nobody reads for
  // a while.
  void rest() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  friend Replay replay(const Graph& graph, const std::vector<LeafValue>& leaves, Precision precision,
                       const Overrides& overrides, const Replay* base, const ReplayOptions& options);
};

// Content of the graph's leaves. Parallel to graph.leaves. An entry is empty where the trace lacks it.
std::vector<LeafValue> leaf_values(const Graph& graph);

// Nodes that decisions, draws, opaque calls and reads of numbers ask for.
std::vector<NodeId> asked_by_program(const Graph& graph);

// Nodes that some tap, decision or observation depends on.
std::vector<bool> needed_nodes(const Graph& graph);

// Tells of each node whether it is in `of`, or something in `of` depends on it.
std::vector<bool> ancestors(const Graph& graph, const std::vector<NodeId>& of);

// Replays the needed nodes from `leaves`. With `base` (a replay of the same graph and leaves in the same precision)
// only what depends on an override or a pass is computed again, and what the base has no value of; a jittered replay
// computes everything again, and takes from its base what is no number. Throws std::runtime_error if a leaf that is
// needed is empty.
Replay replay(const Graph& graph, const std::vector<LeafValue>& leaves, Precision precision,
              const Overrides& overrides = {}, const Replay* base = nullptr, const ReplayOptions& options = {});

}  // namespace plumbline
