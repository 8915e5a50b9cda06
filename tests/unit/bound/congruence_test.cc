#include "server/bound/replay/congruence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;
using enum Primitive;

struct Shared {
  Replay whole, part;
  std::vector<bool> common, common_of_whole;
};

Shared shared(const Graph& whole, const Graph& part) {
  Shared found;
  const std::vector<LeafValue> leaves = leaf_values(whole), others = leaf_values(part);
  found.whole = replay(whole, leaves, Precision::kExact);
  Congruence congruence(whole, leaves, found.whole, part, others);
  found.part = replay(part, others, Precision::kExact, {}, nullptr, {.congruence = &congruence});
  found.common = congruence.common();
  found.common_of_whole = congruence.common_of_known();
  return found;
}

bool near(const Array& a, const Array& b) {
  const Array x = a.materialize(), y = b.materialize();
  double scale = 0;
  for (std::int64_t i = 0; i < x.count(); ++i) scale = std::fmax(scale, std::fabs(x.data()[i]));
  for (std::int64_t i = 0; i < x.count(); ++i)
    if (!(std::fabs(x.data()[i] - y.data()[i]) <= 1e-13 * scale)) return false;
  return x.count() == y.count();
}

// Whether the part's replay that shares is what it is by itself.
bool same_as_alone(const Graph& part, const Shared& found) {
  const Replay alone = replay(part, leaf_values(part), Precision::kExact);
  for (NodeId id = 0; id < part.nodes.size(); ++id)
    if (alone.has(id) && !near(alone.value(id), found.part.value(id))) return false;
  return true;
}

void tap(GraphBuilder* b, NodeId node) {
  const std::vector<double> nothing(static_cast<std::size_t>(count(b->graph.nodes[node].shape)), 0.0);
  b->tap("tap" + std::to_string(b->graph.taps.size()), TapKind::kValue, node, nothing);
}

Attributes over(std::int64_t dim) {
  Attributes attributes;
  attributes.dims = {dim};
  return attributes;
}

Attributes viewed(View view) {
  Attributes attributes;
  attributes.view = std::move(view);
  return attributes;
}

NodeId window(GraphBuilder* b, NodeId of, const View& view) {
  return b->op(kWindow, {of}, view.sizes, Format::kFloat32, viewed(view));
}

NodeId reshape(GraphBuilder* b, NodeId of, const Shape& shape) {
  return window(b, of, {shape, row_major_strides(shape), 0});
}

NodeId constant(GraphBuilder* b, double value, const Shape& shape = {}) {
  Attributes attributes;
  attributes.scalar = value;
  return b->op(kConstant, {}, shape, Format::kFloat32, attributes);
}

NodeId assemble(GraphBuilder* b, const std::vector<NodeId>& pieces, const std::vector<View>& views, std::int64_t size) {
  Attributes attributes;
  attributes.views = views;
  attributes.size = size;
  return b->op(kAssemble, pieces, {size}, Format::kFloat32, attributes);
}

constexpr std::int64_t kRows = 6, kA = 3, kB = 4;

// One program over a batch of kRows rows of kA x kB numbers, or over `rows` of them from `first` on.
class Program {
 public:
  Program(std::mt19937* rng, const std::vector<double>& batch, std::int64_t first, std::int64_t rows, bool given_alone)
      : rng_(*rng), rows_(rows) {
    std::mt19937 weights(7);
    if (given_alone) {
      const auto begin = batch.begin() + first * kA * kB;
      values_.push_back(b.leaf({rows, kA, kB}, {begin, begin + rows * kA * kB}));
    } else {
      const NodeId all = b.leaf({kRows, kA, kB}, batch);
      values_.push_back(window(&b, all, {{rows, kA, kB}, {kA * kB, kB, 1}, first * kA * kB}));
    }
    for (int i = 0; i < 2; ++i) {
      square_.push_back(b.leaf({kB, kB}, test::normal(weights, kB * kB)));
      row_.push_back(b.leaf({kA, kB}, test::normal(weights, kA * kB)));
    }
    index_ = b.leaf({2}, {1, 0}, Format::kInt64);
  }

  // The kind of the next operation, and what it is of, as the programs' own generators draw them.
  void step() {
    const NodeId x = any(), y = any();
    const int which = draw(2);
    const Shape shape = {rows_, kA, kB};
    switch (draw(16)) {
      case 0:
        return add(b.op(kTanh, {x}, shape));
      case 1:
        return add(b.op(kSub, {x, y}, shape));
      case 2:
        return add(b.op(kMul, {x, row_[which]}, shape));
      case 3:
        return add(b.op(kMul, {constant(&b, 0.5 + which), x}, shape));
      case 4:
        return add(b.op(kMatmul, {x, square_[which]}, shape));
      case 5:
        return add(
            reshape(&b, b.op(kMatmul, {reshape(&b, x, {rows_ * kA, kB}), square_[which]}, {rows_ * kA, kB}), shape));
      case 6: {
        const NodeId across = window(&b, y, {{rows_, kB, kA}, {kA * kB, 1, kB}, 0});
        return add(b.op(kMatmul, {b.op(kMatmul, {x, across}, {rows_, kA, kA}), x}, shape));
      }
      case 7:
        return add(b.op(kSub, {x, b.op(kSum, {x}, {rows_, kA, 1}, Format::kFloat32, over(2))}, shape));
      case 8:
        return add(b.op(kMul, {x, b.op(kSum, {y}, {1, kA, kB}, Format::kFloat32, over(0))}, shape));
      case 9:
        return add(b.op(kSub, {x, b.op(kAmax, {x}, {rows_, 1, kB}, Format::kFloat32, over(1))}, shape));
      case 10:
        return add(b.op(kSoftmax, {x}, shape));
      case 11:
        return add(b.op(kCumsum, {x}, shape, Format::kFloat32, over(draw(2))));
      case 12: {  // Padded, and cut again.
        const std::int64_t padded = (kA + 2) * kB;
        const NodeId flat = assemble(&b, {x}, {{shape, {padded, kB, 1}, draw(3) * kB}}, rows_ * padded);
        return add(window(&b, flat, {shape, {padded, kB, 1}, which == 0 ? 0 : kB}));
      }
      case 13: {  // One part after the other.
        const std::int64_t some = 1 + draw(static_cast<int>(rows_) - 1), n = kA * kB;
        const View one{{some, kA, kB}, {n, kB, 1}, 0}, other{{rows_ - some, kA, kB}, {n, kB, 1}, some * n};
        const NodeId first = b.op(kNeg, {window(&b, x, one)}, one.sizes),
                     second = b.op(kNeg, {window(&b, x, other)}, other.sizes);
        return add(reshape(&b, assemble(&b, {first, second}, {one, other}, rows_ * n), shape));
      }
      case 14: {
        const NodeId rows = b.op(kGatherRows, {reshape(&b, x, {rows_, kA * kB}), index_}, {2, kA * kB});
        return add(b.op(kMul, {x, window(&b, rows, {{1, kA, kB}, {kA * kB, kB, 1}, 0})}, shape));
      }
      default: {
        const NodeId spread = window(&b, row_[which], {shape, {0, kB, 1}, 0});
        return add(b.op(kSelect, {b.op(kLess, {x, spread}, shape, Format::kBool), spread, y}, shape));
      }
    }
  }

  void finish() {
    for (const NodeId value : values_) tap(&b, value);
  }

  GraphBuilder b;

 private:
  int draw(int n) { return std::uniform_int_distribution(0, n - 1)(rng_); }
  NodeId any() { return values_[static_cast<std::size_t>(draw(static_cast<int>(values_.size())))]; }
  void add(NodeId node) { values_.push_back(node); }

  std::mt19937& rng_;
  const std::int64_t rows_;
  std::vector<NodeId> values_;
  std::vector<NodeId> square_, row_;
  NodeId index_ = 0;
};

// Programs that part somewhere, over some rows of what the other is over.
TEST(Congruence, ReplaysAreWhatTheyAreAlone) {
  std::mt19937 seeds(11);
  std::size_t held = 0, own = 0;
  for (int round = 0; round < 400; ++round) {
    std::mt19937 one(seeds()), other = one;
    const std::vector<double> batch = test::normal(seeds, kRows * kA * kB);
    const std::int64_t rows = 2 + static_cast<std::int64_t>(seeds() % (kRows - 1));
    const std::int64_t first = static_cast<std::int64_t>(seeds() % static_cast<unsigned>(kRows - rows + 1));
    Program whole(&one, batch, 0, kRows, false), part(&other, batch, first, rows, seeds() % 2 == 0);
    const int parting = static_cast<int>(seeds() % 14);
    for (int step = 0; step < 12; ++step) {
      if (step == parting) other.discard(1);
      whole.step();
      part.step();
    }
    whole.finish();
    part.finish();
    const Shared found = shared(whole.b.graph, part.b.graph);
    ASSERT_TRUE(same_as_alone(part.b.graph, found)) << round;
    for (const bool common : found.common) ++(common ? held : own);
  }
  EXPECT_GT(held, own / 2);
  EXPECT_GT(own, held / 4);
}

NodeId rows_of(GraphBuilder* b, NodeId of, std::int64_t first, std::int64_t rows) {
  const std::int64_t n = b->graph.nodes[of].shape[1];
  return window(b, of, {{rows, n}, {n, 1}, first * n});
}

const std::vector<double> kBatch = {0.5, -1, 2, 0.25, 3, -0.75, 1.5, 4};

NodeId layer(GraphBuilder* b, NodeId x, double weight = 0.3) {
  const std::int64_t rows = b->graph.nodes[x].shape[0];
  const NodeId w = b->leaf({2, 2}, {weight, -0.7, 1.1, 0.2});
  return b->op(kTanh, {b->op(kMatmul, {x, w}, {rows, 2})}, {rows, 2});
}

TEST(Congruence, HalvesOfABatchShareTheMemoryOfTheWhole) {
  GraphBuilder whole, halves;
  const NodeId of_whole = layer(&whole, whole.leaf({4, 2}, kBatch));
  tap(&whole, of_whole);
  const NodeId x = halves.leaf({4, 2}, kBatch);
  for (const std::int64_t first : {0, 2}) tap(&halves, layer(&halves, rows_of(&halves, x, first, 2)));
  const Shared found = shared(whole.graph, halves.graph);
  const Array all = found.whole.value(of_whole);
  for (std::size_t half = 0; half < 2; ++half) {
    const NodeId node = halves.graph.taps[half].terms.front().node;
    EXPECT_TRUE(found.common[node]);
    EXPECT_TRUE(found.part.value(node).same_place(all.window({{2, 2}, {2, 1}, static_cast<std::int64_t>(half) * 4})));
  }
  EXPECT_TRUE(found.common_of_whole[of_whole]);
}

TEST(Congruence, WhatHasHalfOfItsRowsInTheOtherIsNotCommon) {
  GraphBuilder whole, half;
  const NodeId of_whole = layer(&whole, whole.leaf({4, 2}, kBatch));
  tap(&whole, of_whole);
  const NodeId of_half = layer(&half, rows_of(&half, half.leaf({4, 2}, kBatch), 2, 2));
  tap(&half, of_half);
  const Shared found = shared(whole.graph, half.graph);
  EXPECT_TRUE(found.common[of_half]);
  EXPECT_FALSE(found.common_of_whole[of_whole]);
}

TEST(Congruence, AnotherWeightIsAnotherValue) {
  GraphBuilder whole, other;
  tap(&whole, layer(&whole, whole.leaf({4, 2}, kBatch)));
  const NodeId of_other = layer(&other, other.leaf({4, 2}, kBatch), 0.31);
  tap(&other, of_other);
  const Shared found = shared(whole.graph, other.graph);
  EXPECT_FALSE(found.common[of_other]);
  EXPECT_TRUE(same_as_alone(other.graph, found));
}

// Rows that do not go together, or that one program takes of other ones.
TEST(Congruence, OtherRowsAreOtherValues) {
  const Shape all = {4, 2}, some = {2, 2};
  const std::vector<double> other = {1, -2, 0.5, 3, -4, 7, 0.1, -0.6};
  const auto table = [](GraphBuilder* b) { return b->leaf({4}, {1, 0, 1, 0}, Format::kInt64); };
  const auto first_row = [](std::int64_t rows, std::int64_t row) { return View{{rows, 2}, {0, 1}, row * 2}; };
  GraphBuilder whole, part;
  const NodeId x = whole.leaf(all, kBatch), y = whole.leaf(all, other), rows = table(&whole);
  tap(&whole, whole.op(kMul, {x, y}, all));
  tap(&whole, whole.op(kGatherRows, {x, rows}, all));
  tap(&whole, whole.op(kTanh, {window(&whole, x, first_row(4, 0))}, all));
  tap(&whole, whole.op(kMatmul, {x, window(&whole, y, {{2, 4}, {1, 2}, 0})}, {4, 4}));
  const NodeId u = part.leaf(all, kBatch), v = part.leaf(all, other);
  const NodeId index = window(&part, table(&part), {{2}, {1}, 2});
  tap(&part, part.op(kMul, {rows_of(&part, u, 0, 2), rows_of(&part, v, 2, 2)}, some));
  tap(&part, part.op(kGatherRows, {rows_of(&part, u, 2, 2), index}, some));
  tap(&part, part.op(kTanh, {window(&part, u, first_row(2, 1))}, some));
  tap(&part, part.op(kMatmul, {rows_of(&part, u, 2, 2), window(&part, v, {{2, 2}, {1, 2}, 4})}, some));
  const Shared found = shared(whole.graph, part.graph);
  for (const GraphTap& one : part.graph.taps) EXPECT_FALSE(found.common[one.terms.front().node]) << one.name;
  EXPECT_TRUE(same_as_alone(part.graph, found));
}

// What a mean over half of a batch hands back, halved, is what that over the whole does, by its bits.
TEST(Congruence, EqualBitsAreOneValue) {
  GraphBuilder whole, half;
  const NodeId x = whole.leaf({4, 2}, kBatch), y = half.leaf({4, 2}, kBatch);
  const NodeId eighth = whole.op(kDiv, {constant(&whole, 1), constant(&whole, 8)}, {});
  const NodeId of_whole = whole.op(kMul, {x, eighth}, {4, 2});
  tap(&whole, of_whole);
  const NodeId quarter = half.op(kDiv, {constant(&half, 0.5), constant(&half, 4)}, {});
  const NodeId of_half = half.op(kMul, {rows_of(&half, y, 2, 2), quarter}, {2, 2});
  tap(&half, of_half);
  const Shared found = shared(whole.graph, half.graph);
  EXPECT_TRUE(found.common[quarter]);
  EXPECT_TRUE(found.common[of_half]);
}

TEST(Congruence, CastsOfFloatingPointNumbersAreNone) {
  GraphBuilder wide, narrow;
  tap(&wide, layer(&wide, wide.leaf({4, 2}, kBatch)));
  const NodeId cast = narrow.op(kCast, {narrow.leaf({4, 2}, kBatch)}, {4, 2}, Format::kBFloat16);
  const NodeId result = layer(&narrow, cast);
  tap(&narrow, result);
  EXPECT_TRUE(shared(wide.graph, narrow.graph).common[result]);
}

}  // namespace
}  // namespace plumbline
