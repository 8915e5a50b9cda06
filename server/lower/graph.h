// A step in primitives: what every pass after lowering works on. Nodes are in topological order; a node's inputs come
// before it. Framework names appear only as text in Origin.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/array.h"
#include "kernels/ball/format.h"
#include "kernels/primitive/primitive.h"
#include "server/ingest/trace.h"
#include "server/lower/wanted.h"

namespace plumbline {

using NodeId = std::uint32_t;

// The framework operation that a node came from.
struct Origin {
  std::string op;      // "aten::div.Tensor"
  std::string source;  // "train.py:41"
  std::string module;
  Phase phase = Phase::kUnknown;
  bool fused = false;        // Part of a compiled region, which may have held any value inside of it unrounded.
  bool defined = false;      // Part of what a user defined `op` to compute, whose kernel is the user's own.
  bool convolution = false;  // Or a recurrent layer: a library of its own computes it, under flags of its own.
};

struct Node {
  Primitive primitive = Primitive::kLeaf;
  std::vector<NodeId> inputs;
  Attributes attributes;
  Shape shape;
  Format result = Format::kFloat32;  // In which the device holds it; inner nodes of a fused kernel: its compute format.
  Format compute = Format::kFloat32;  // The arithmetic that made it has this format.
  std::uint32_t origin = 0;           // Index into Graph::origins; 0 for leaves.
};

// A node whose value the step did not compute, or an anchor: one that an opaque operation computed, or from which an
// iteration starts that ends elsewhere.
struct GraphLeaf {
  NodeId node = 0;
  LeafRole role = LeafRole::kData;
  std::string name;
  bool anchor = false;
  Format format = Format::kFloat32;
  Bytes bytes;  // In `format`, row-major, the node's count of elements. Null: a reference's, known by name only.
  std::size_t reads = 0;  // Python had read so many numbers (Graph::reads) when an operation took it first.
};

// A comparison, a rounding to an integer, or a choice among elements, whose outcome the target's execution told us.
struct GraphDecision {
  // Indices count steps of `stride` among the rows of a column `table`; `position` holds the rows that were chosen.
  struct Choice {
    NodeId table = 0, position = 0;
    std::int64_t stride = 1;
  };
  NodeId node = 0;
  Bytes sides;                    // Row-major, of the node's shape. NaN: not told.
  bool overflow = false;          // It asks whether a format overflowed, which exact arithmetic cannot know.
  Format format = Format::kBool;  // The format of `sides`.
  std::optional<Choice> choice = std::nullopt;
};

struct GraphTap {
  struct Term {
    NodeId node = 0;
    double weight = 1;
    Format format = Format::kFloat32;
    Bytes observed;  // Null only for a window on a leaf whose bytes are null.
  };
  std::string name;
  TapKind kind = TapKind::kValue;
  Shape shape;
  std::vector<Term> terms;
  Bytes reference;  // Null: none.
  Format reference_format = Format::kUnknown;
  double scale = 0;
  Guard guard;
};

struct Kept {
  NodeId leaf = 0;
  GraphTap left;
};

// What the framework held in a node, where it was captured (capture="outputs").
struct Observation {
  Format format = Format::kFloat32;
  Bytes bytes;
};

// An operation that lowering does not model: what it gave is anchors.
struct OpaqueCall {
  std::uint32_t origin = 0;
  std::string attributes;       // Its arguments that are no tensors, as text.
  std::vector<NodeId> inputs;   // Its tensors, in the order of its schema.
  std::vector<NodeId> outputs;  // Leaves.
  bool known = true;            // All of its inputs are nodes, and all of its outputs were observed.
};

// Where iterations for a matrix's factors begin: at what was observed of them, which fixes signs, and the basis of what
// belongs to equal values.
struct Start {
  std::uint32_t origin = 0;
  std::vector<NodeId> factors;  // Leaves.
  std::vector<double> values;   // Eigenvalues, or singular ones, as they were observed.
};

// A tensor's element that Python read as a number (`.item()`, float(), ...), and the number.
struct NumberRead {
  NodeId node = 0;
  double value = 0;
  Format computes = Format::kFloat64;  // In which the reader goes on: numpy does in the tensor's own.
  std::uint32_t origin = 0;            // The operation that read it; those after it Python called knowing the number.
};

// A whole number that the trace tells by a shape: one less than there were trues in a mask.
struct ToldCount {
  NodeId node = 0;
  double value = 0;
  std::uint32_t origin = 0;  // The operation that counted; those after it were called with such shapes.
};

// A number that came from Python after such reads, and may have been computed from them: a constant, or an attribute of
// a node that computes.
struct PythonNumber {
  NodeId node = 0;
  std::size_t reads = 0;  // How many came before.
  double value = 0;       // As Python gave it, whatever format the kernel then took it in.
};

// What a random leaf was drawn from.
struct Draw {
  struct Parameter {
    std::optional<NodeId> node;  // Where it is a tensor.
    double number = 0;
  };
  NodeId leaf = 0;
  std::uint32_t origin = 0;
  std::string family;           // "normal", "bernoulli"; otherwise the operation's name.
  std::vector<double> numbers;  // Parameters that are plain numbers, in the family's order.
  std::vector<NodeId> inputs;   // Parameters that are tensors.
  // A normal draw has its mean and deviation, a uniform one its ends: any two of a family are one, moved and scaled.
  // Bernoulli's has the chance of a one.
  std::vector<Parameter> place;
};

struct GraphCoverage {
  std::uint64_t operations = 0;  // All of the trace.
  std::uint64_t opaque = 0;      // Those among them that lowering does not model.
  std::map<std::string, std::uint64_t> opaque_names;
  std::uint64_t untold = 0;  // Those whose way of adding up the trace does not tell (Call::leave_untold).

  struct Module {
    std::uint64_t audited = 0, opaque = 0;
  };
  std::map<std::string, Module> modules;  // The key is the path.
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<Origin> origins;  // [0] is {"leaf"}.
  std::vector<GraphLeaf> leaves;
  std::vector<GraphDecision> decisions;
  std::vector<GraphTap> taps;
  std::map<NodeId, Observation> observed;
  std::vector<OpaqueCall> opaque;
  std::vector<Start> starts;
  std::vector<NumberRead> reads;  // In order.
  std::vector<ToldCount> counts;
  std::vector<PythonNumber> python_numbers;
  // Results that opaque operations read and nobody observed: of these calls it is not known whether they were given the
  // same as their counterparts. Sorted, each once.
  std::vector<WantedResult> wanted;
  std::vector<Draw> draws;
  std::vector<NodeId> parts;      // Windows whose origin is the operation that took them of data.
  std::vector<NodeId> arguments;  // Constants that the program gave to an operation; others are a formula's own.
  // Gradients that the step leaves where the next backward adds to them, by the leaf that the next step has of each,
  // "state:NAME.grad"; and how many nodes, the last ones, are there for these alone.
  std::vector<GraphTap> carried;
  std::size_t carried_nodes = 0;
  // Data that the step wrote and on which only what outlives it depends, and the whole of what it leaves in that
  // memory: terms[0], of the leaf's shape. Among the last nodes, too.
  std::vector<Kept> kept;
  bool rounded_numbers = false;  // Some of them were replaced by what they are one with (replay/constants.h).
  GraphCoverage coverage;
};

// Whether the node is a window that hands on all elements of its input, in their order.
inline bool reshapes(const Graph& graph, const Node& node) {
  const View& view = node.attributes.view;
  return node.primitive == Primitive::kWindow && view.offset == 0 && is_row_major(view) &&
         count(view.sizes) == count(graph.nodes[node.inputs[0]].shape);
}

// Whether it hands on all of its input as a matrix that is read by columns.
inline bool transposes(const Graph& graph, const Node& node) {
  const View& view = node.attributes.view;
  return node.primitive == Primitive::kWindow && view.offset == 0 && view.sizes.size() == 2 &&
         view.strides == Shape{1, view.sizes[0]} && count(view.sizes) == count(graph.nodes[node.inputs[0]].shape);
}

}  // namespace plumbline
