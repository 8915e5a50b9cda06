// Values and windows: views, in-place writes, layouts.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>

#include "server/lower/view.h"
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

TEST(Storage, WhatAStepLeavesInDataThatItWroteIsToldWhole) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2, 3}, {1, 2, 3, 4, 5, 6}), read = b.leaf({2}, {7, 8});
  const TensorRef column{x.value, x.format, {{2}, {3}, 1}};
  const TensorRef after = b.write("aten::mul_.Tensor", {{"self", column}, {"other", read}}, {{"self", column}})[0];
  b.tap("update:w", after);
  EXPECT_TRUE(lower(b.trace).kept.empty());
  b.trace.taps.back().kind = TapKind::kUpdate;
  Graph graph = lower(b.trace);
  ASSERT_EQ(graph.kept.size(), 1u);
  EXPECT_EQ(graph.kept[0].leaf, graph.leaves[0].node);
  graph.taps = {graph.kept[0].left};
  graph.taps[0].name = "left";
  EXPECT_EQ(testing::tap_values(graph, "left"), (Values{1, 14, 3, 4, 40, 6}));
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

// Elements [offset, offset + length) of a tensor.
TensorRef part(const TensorRef& of, std::int64_t offset, std::int64_t length) {
  return {of.value, of.format, {{length}, {1}, offset}};
}

TEST(Storage, AHundredThousandWritesOfOneTensorAreOneAssembly) {
  constexpr std::int64_t kWrites = 100'000;
  TraceBuilder b;
  TensorRef x = b.leaf({kWrites}, Values(kWrites, 1));
  for (std::int64_t i = 0; i < kWrites; ++i)
    x.value =
        b.write("aten::mul_.Tensor", {{"self", part(x, i, 1)}, {"other", 2.0}}, {{"self", part(x, i, 1)}})[0].value;
  b.tap("x", x);
  const Graph graph = lower(b.trace);
  EXPECT_LT(nodes_of(graph, Primitive::kAssemble), 200u);
  EXPECT_EQ(testing::tap_values(graph, "x"), Values(kWrites, 2));
}

TEST(Storage, ReadsBehindWritesGoToWhatTheyRead) {
  TraceBuilder b;
  TensorRef x = b.leaf({4, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  // Columns, which interleave in memory, one after the other from the one before: x[:, t] += x[:, t - 1].
  for (std::int64_t t = 1; t < 3; ++t) {
    const TensorRef column{x.value, x.format, {{4}, {3}, t}}, before{x.value, x.format, {{4}, {3}, t - 1}};
    x.value = b.write("aten::add_.Tensor", {{"self", column}, {"other", before}}, {{"self", column}})[0].value;
  }
  b.tap("first", {x.value, x.format, {{4}, {3}, 0}});
  b.tap("last", {x.value, x.format, {{4}, {3}, 2}});
  const Graph graph = lower(b.trace);
  EXPECT_EQ(nodes_of(graph, Primitive::kAssemble), 0u);
  EXPECT_EQ(testing::tap_values(graph, "first"), (Values{1, 4, 7, 10}));
  EXPECT_EQ(testing::tap_values(graph, "last"), (Values{6, 15, 24, 33}));
}

TEST(Storage, AWindowAcrossWritesIsPutTogetherAlone) {
  TraceBuilder b;
  const TensorRef before = b.leaf({100}, Values(100, 1));
  TensorRef x = before;
  const auto write = [&](std::int64_t offset, std::int64_t length, double factor) {
    const TensorRef at = part(x, offset, length);
    x.value = b.write("aten::mul_.Tensor", {{"self", at}, {"other", factor}}, {{"self", at}})[0].value;
  };
  write(10, 4, 2);
  write(12, 4, 3);
  write(20, 1, 5);
  b.tap("across", part(x, 8, 9));
  b.tap("spread", {x.value, x.format, {{3}, {5}, 10}});
  const Graph graph = lower(b.trace);
  EXPECT_EQ(testing::tap_values(graph, "across"), (Values{1, 1, 2, 2, 6, 6, 3, 3, 1}));
  EXPECT_EQ(testing::tap_values(graph, "spread"), (Values{2, 3, 5}));
  for (const Node& node : graph.nodes) EXPECT_TRUE(node.primitive != Primitive::kAssemble || count(node.shape) < 100);
}

TEST(Storage, EveryReadOfManyWritesIsRight) {
  constexpr std::int64_t kElements = 100;  // More than any window below reaches.
  std::mt19937 random(7);
  TraceBuilder b;
  Values expected(kElements);
  for (std::int64_t i = 0; i < kElements; ++i) expected[i] = static_cast<double>(i);
  TensorRef x = b.leaf({kElements}, expected);
  std::map<std::string, Values> taps;
  const auto view_of = [&] {
    const std::int64_t rows = 1 + random() % 4, columns = 1 + random() % 5, step = 1 + random() % 3;
    const std::int64_t row = columns * step + random() % 4;
    const std::int64_t reach = (rows - 1) * row + (columns - 1) * step;
    return View{{rows, columns}, {row, step}, static_cast<std::int64_t>(random() % (kElements - reach))};
  };
  for (int i = 0; i < 400; ++i) {
    const TensorRef read{x.value, x.format, view_of()};
    const std::string name = std::to_string(i);
    b.tap(name, read);
    for_each_address(read.view, [&](std::int64_t at) { taps[name].push_back(expected[at]); });
    const TensorRef at{x.value, x.format, view_of()};
    x.value = b.write("aten::add_.Scalar", {{"self", at}, {"other", 1.0 + i}}, {{"self", at}})[0].value;
    for_each_address(at.view, [&](std::int64_t address) { expected[address] += 1.0 + i; });
  }
  const Graph graph = lower(b.trace);
  const std::vector<Array> found = testing::evaluate(graph);
  ASSERT_EQ(graph.taps.size(), taps.size());
  for (const GraphTap& tap : graph.taps)
    EXPECT_EQ(testing::elements(found[tap.terms[0].node]), taps.at(tap.name)) << "before write " << tap.name;
}

}  // namespace
}  // namespace plumbline
