// Values and windows: views, in-place writes, layouts.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/lower/trace_builder.h"

namespace plumbline {
namespace {

using testing::dense;
using testing::run;
using testing::TraceBuilder;
using Values = std::vector<double>;

std::size_t nodes_of(const Graph& graph, Primitive primitive) {
  std::size_t found = 0;
  for (const Node& node : graph.nodes) found += node.primitive == primitive;
  return found;
}

TEST(Storage, AWriteThroughAViewChangesAllOverlappingViews) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2, 3}, {1, 2, 3, 4, 5, 6});
  // x[:, 1] *= 10
  const TensorRef column{x.value, x.format, {{2}, {3}, 1}};
  const TensorRef after = b.write("aten::mul_.Tensor", {{"self", column}, {"other", 10.0}}, {{"self", column}})[0];
  TensorRef whole = x;
  whole.value = after.value;
  b.tap("whole", whole);
  b.tap("column", after);
  b.tap("before", x);
  EXPECT_EQ(run(b.trace, "whole"), (Values{1, 20, 3, 4, 50, 6}));
  EXPECT_EQ(run(b.trace, "column"), (Values{20, 50}));
  EXPECT_EQ(run(b.trace, "before"), (Values{1, 2, 3, 4, 5, 6}));
}

TEST(Storage, AReadOfAPartialWriteNeedsNoAssembly) {
  TraceBuilder b;
  const TensorRef x = b.leaf({6}, {1, 2, 3, 4, 5, 6});
  const TensorRef half{x.value, x.format, {{4}, {1}, 2}};
  const TensorRef after = b.write("aten::neg_.default", {{"self", half}}, {{"self", half}})[0];
  b.tap("part", {after.value, after.format, {{2}, {1}, 3}});
  const Graph graph = lower(b.trace);
  EXPECT_EQ(nodes_of(graph, Primitive::kAssemble), 0u);
  EXPECT_EQ(testing::tap_values(graph, "part"), (Values{-4, -5}));
}

TEST(Storage, APermutedResultIsReadInStorageOrder) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2, 3}, {1, 2, 3, 4, 5, 6});
  const TensorRef y = b.op1("aten::exp.default", {{"self", x}}, {2, 3});
  // The result keeps a transposed layout: element (i, j) at i + 2 j.
  b.trace.ops.back().results[0].tensor.view.strides = {1, 2};
  b.tap("flat", {y.value, y.format, {{6}, {1}, 0}});
  const Values flat = run(b.trace, "flat");
  EXPECT_DOUBLE_EQ(flat[1], std::exp(4.0));
  EXPECT_DOUBLE_EQ(flat[2], std::exp(2.0));
}

TEST(Storage, EqualWindowsAreOneNode) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2, 3}, {1, 2, 3, 4, 5, 6});
  const TensorRef t{x.value, x.format, {{3, 2}, {1, 3}, 0}};
  const TensorRef y = b.op1("aten::mul.Tensor", {{"self", t}, {"other", t}}, {3, 2});
  b.tap("y", y);
  const Graph graph = lower(b.trace);
  EXPECT_EQ(nodes_of(graph, Primitive::kWindow), 1u);
  EXPECT_EQ(testing::tap_values(graph, "y"), (Values{1, 16, 4, 25, 9, 36}));
}

TEST(Storage, ACloneIsItsSource) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2}, {1, 2});
  const TensorRef y = b.op1("aten::exp.default", {{"self", x}}, {2});
  const TensorRef z = b.op1("aten::clone.default", {{"self", y}}, {2});
  b.tap("y", y);
  b.tap("z", z);
  const Graph graph = lower(b.trace);
  EXPECT_EQ(graph.taps[0].terms[0].node, graph.taps[1].terms[0].node);
}

TEST(Storage, EachObservedResultHasANodeOfItsOwn) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2}, {1, 2});
  const TensorRef y = b.op1("aten::neg.default", {{"self", x}}, {2});
  b.observe(0, {-1, -2});
  b.op1("aten::clone.default", {{"self", y}}, {2});
  b.observe(0, {-1, -3});
  const Graph graph = lower(b.trace);
  EXPECT_EQ(graph.observed.size(), 2u);
}

TEST(Storage, TapsOnLeavesTakeTheirBytes) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2, 2}, {1, 2, 3, 4}, Format::kFloat32);
  TraceTap tap;
  tap.name = "row";
  tap.terms.push_back({{x.value, x.format, {{2}, {2}, 1}}, 1, 0});
  b.trace.taps.push_back(tap);
  const Graph graph = lower(b.trace);
  const Bytes bytes = graph.taps[0].terms[0].observed;
  ASSERT_TRUE(bytes);
  Values values(2);
  decode(Format::kFloat32, bytes->data(), 2, values.data());
  EXPECT_EQ(values, (Values{2, 4}));
}

TEST(Storage, AReferencesParametersMayLackTheirContent) {
  TraceBuilder b;
  const TensorRef w = b.hollow({2}, "param:w");
  const TensorRef y = b.op1("aten::neg.default", {{"self", w}}, {2});
  b.tap("y", y);
  TraceTap update;
  update.name = "update";
  update.terms.push_back({w, -1, 0});
  b.trace.taps.push_back(update);
  const Graph graph = lower(b.trace);
  EXPECT_EQ(graph.leaves[0].bytes, nullptr);
  EXPECT_EQ(graph.taps[1].terms[0].observed, nullptr);
}

}  // namespace
}  // namespace plumbline
