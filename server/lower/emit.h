// Writing a graph as formulas: Expr is a node under construction, and the operators and functions below append nodes.
//
//   Expr inner = kBeta * (x + kKappa * (x * x * x));
//   call.returns(0, 0.5 * x * (1.0 + tanh(inner)));
//
// Every arithmetic node is emitted in the emitter's current compute format; Call::returns rounds the last one to the
// format of the result. Shapes are checked here: a mismatch throws LowerError.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "server/lower/error.h"
#include "server/lower/graph.h"
#include "server/lower/integer_range.h"

namespace plumbline {

class Emitter;

struct Expr {
  Emitter* emitter = nullptr;
  NodeId id = 0;

  // It returns a copy, since the graph's nodes move while it grows.
  Shape shape() const;
  std::int64_t size(std::size_t dim) const;
  std::int64_t count() const;
  std::size_t rank() const;
  Format format() const;
};

// A 64-bit integer modulo 2^64, as two nodes in [0, 2^32).
struct Words {
  NodeId low = 0, high = 0;
};

class Emitter {
 public:
  explicit Emitter(Graph& graph) : graph_(graph), ranges_(graph) {}

  // Starts an operation: what follows has this origin and compute format.
  void begin(std::uint32_t origin, Format compute);
  // Takes back every node since begin().
  void roll_back();

  Format compute() const { return compute_; }
  void set_compute(Format compute) { compute_ = compute; }

  Graph& graph() { return graph_; }
  const Node& node(NodeId id) const { return graph_.nodes[id]; }
  // Whether the node was made since begin().
  bool fresh(NodeId id) const { return id >= begin_; }

  NodeId add(Node node);

  // An arithmetic node in the current compute format. Floating inputs of a wider format are cast to it first, as
  // kernels do with wider scalars.
  Expr arithmetic(Primitive primitive, std::vector<Expr> inputs, Shape shape, Attributes attributes = {});
  // A node that moves elements: result and compute are the format of `like`.
  Expr movement(Primitive primitive, std::vector<Expr> inputs, Shape shape, Attributes attributes, Format format);

  // What integer nodes can hold, and the words of those that go beyond 2^53; null: not known (server/lower/integer.h).
  IntegerRanges& ranges() { return ranges_; }
  const Words* words(NodeId id) const;
  void set_words(NodeId id, Words words) { words_[id] = words; }

  // Whether some element may stand for infinity in a sum (infinite.h): of leaves by their content.
  bool infinite(Expr x) const { return infinite_[x.id]; }
  void set_infinite(NodeId leaf) { infinite_[leaf] = true; }

  // A scalar in `format`, one node an operation.
  Expr constant(double value, Format format);
  Expr constant(double value) { return constant(value, compute_); }
  // A scalar for which the kernel may take another, at most `off` away from it or from its rounding.
  Expr inexact_constant(double value, double off, Format format);
  Expr inexact_constant(double value, double off) { return inexact_constant(value, off, compute_); }
  // The same where the profile has narrow_numbers; elsewhere it is `value`.
  Expr narrowed_constant(double value, double off);
  // x as a kernel rounds it that contracts products into sums, where the profile has narrow_numbers; elsewhere x.
  Expr contracted(Expr x);
  // x rounded to `format` where the profile has narrow_numbers; elsewhere x.
  Expr narrowed_factor(Expr x, Format format);

  // The elements that `view` reads from x's row-major elements. Nothing is emitted when that is x itself; windows of
  // windows become one window where strides can say it; equal windows are one node.
  Expr window(Expr x, const View& view);

  // The same values in `format`: rounds where the node was made, if this operation made it and nothing read it yet;
  // otherwise a cast. An exact operation on elements that `format` holds rounds nothing.
  Expr rounded(Expr x, Format format);

  // Whether every number that the node can hold is one of the format's.
  bool holds_exactly(Format format, NodeId id);

 private:
  bool round_in_place(NodeId id, Format format);
  bool free_to_change(NodeId id, std::uint32_t readers) const { return fresh(id) && readers_[id] == readers; }

  using WindowKey = std::pair<NodeId, std::vector<std::int64_t>>;

  Graph& graph_;
  NodeId begin_ = 0;
  std::uint32_t origin_ = 0;
  Format compute_ = Format::kFloat32;
  std::vector<std::uint32_t> readers_;
  std::vector<bool> infinite_;  // By node.
  std::map<WindowKey, NodeId> windows_;
  std::vector<WindowKey> windows_since_begin_;
  std::map<std::pair<std::uint64_t, Format>, NodeId> constants_;
  IntegerRanges ranges_;
  std::map<NodeId, Words> words_;
};

// The format in which CPU kernels compute on elements of `format`: fp32 for formats narrower than it, otherwise itself.
Format compute_format(Format format);
// Integer or boolean.
bool is_integer(Format format);
// PyTorch's promotion of two element types (fp16 with bf16: fp32).
Format promote(Format a, Format b);

// Arithmetic in another format until the end of the scope.
class ComputeIn {
 public:
  ComputeIn(Emitter& emitter, Format format) : emitter_(emitter), outer_(emitter.compute()) {
    emitter.set_compute(format);
  }
  ~ComputeIn() { emitter_.set_compute(outer_); }
  ComputeIn(const ComputeIn&) = delete;

 private:
  Emitter& emitter_;
  Format outer_;
};

// f(x) in fp32 or wider, then held in the compute format: functions of 16-bit numbers, where these are rounded at once.
Expr held(Expr (*f)(Expr), Expr x);

// Elementwise; shapes broadcast.
Expr binary(Primitive primitive, Expr a, Expr b);
Expr unary(Primitive primitive, Expr x);
// Of sums and differences the second term is the one that may stand for infinity (primitive.h, kAdd).
Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator/(Expr a, Expr b);
Expr operator+(Expr a, double b);
Expr operator-(Expr a, double b);
Expr operator*(Expr a, double b);
Expr operator/(Expr a, double b);
Expr operator+(double a, Expr b);
Expr operator-(double a, Expr b);
Expr operator*(double a, Expr b);
Expr operator/(double a, Expr b);
Expr operator-(Expr x);
Expr exp(Expr x);
Expr log(Expr x);
Expr log1p(Expr x);
Expr sqrt(Expr x);
Expr tanh(Expr x);
Expr erf(Expr x);
Expr sigmoid(Expr x);
Expr abs(Expr x);
Expr square(Expr x);
Expr maximum(Expr a, Expr b);
Expr minimum(Expr a, Expr b);
// Comparisons give BOOL nodes.
Expr compare(Primitive primitive, Expr a, Expr b);
Expr operator>(Expr a, double b);
Expr operator<(Expr a, double b);
Expr equal(Expr a, double b);
Expr not_equal(Expr a, double b);
Expr logical_not(Expr x);
Expr logical_and(Expr a, Expr b);
Expr logical_or(Expr a, Expr b);
// a where condition, otherwise b.
Expr select(Expr condition, Expr a, Expr b);
Expr cast(Expr x, Format format);
// As a copy into another format converts: to integers it truncates, to booleans it asks for what is not zero.
Expr converted(Expr x, Format format);

// Reductions; the reduced dimensions stay as size 1. Empty dims: x itself (in the compute format).
Expr reduce(Primitive primitive, Expr x, const std::vector<std::int64_t>& dims, double scalar = 0);
Expr sum(Expr x, const std::vector<std::int64_t>& dims);
// The mean over n elements of a kernel that keeps it while it goes on: m += (x - m) / k. Even of whole numbers it is
// not exact. (ATen: native/cpu/moments_utils.h, native/SharedReduceOps.h)
Expr running_mean(Expr x, const std::vector<std::int64_t>& dims, double n);
// sum(x, dims); where the profile has narrow_numbers, of a kernel that rounds terms and parts of their sum to `narrow`,
// each term in at most `times` of these.
Expr narrowed_sum(Expr x, const std::vector<std::int64_t>& dims, Format narrow, int times);
Expr amax(Expr x, const std::vector<std::int64_t>& dims);
std::vector<std::int64_t> all_dims(const Expr& x);
std::vector<std::int64_t> last_dim(const Expr& x);

// alpha a b + c, one accumulation: [..., m, k] x [..., k, n], a c that expands to [..., m, n], a scalar alpha.
Expr matmul(Expr a, Expr b, std::optional<Expr> c = std::nullopt, std::optional<Expr> alpha = std::nullopt);

// Movement.
Expr reshape(Expr x, const Shape& shape);
Expr expand(Expr x, const Shape& shape);
Expr permute(Expr x, const std::vector<std::size_t>& order);
// Exchanges the last two dimensions.
Expr transposed(Expr x);
Expr exchanged(Expr x, std::size_t a, std::size_t b);
// [start, start + length) along a dimension.
Expr narrow(Expr x, std::size_t dim, std::int64_t start, std::int64_t length);
// Row-major array of `shape`: `base` (or zeros), then each piece written through its view.
Expr assemble(Emitter& emitter, const Shape& shape, std::optional<Expr> base, const std::vector<Expr>& pieces,
              std::vector<View> views, Format format);
// start + i * step, i the row-major index.
Expr iota(Emitter& emitter, const Shape& shape, double start, double step, Format format);
// table [r, d], index [n] -> [n, d]
Expr gather_rows(Expr table, Expr index);
// source [n, d], index [n] -> [rows, d]; negative indices are dropped. Adds in `format`.
Expr scatter_add(Expr source, Expr index, std::int64_t rows, Format format);

}  // namespace plumbline
