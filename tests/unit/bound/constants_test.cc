#include "server/bound/replay/constants.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "server/bound/compute.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

constexpr double kLog2E = 1.4426950408889634, kTyped = 1.44269504;

NodeId number(GraphBuilder* g, double value, Format format = Format::kFloat32) {
  Attributes constant;
  constant.scalar = value;
  const NodeId id = g->op(Primitive::kConstant, {}, {}, format, constant);
  g->graph.arguments.push_back(id);
  return id;
}

// x times each number, one after the other.
Graph times(const std::vector<double>& numbers, Format format = Format::kFloat32) {
  GraphBuilder g;
  NodeId y = g.leaf({3}, {0.7, 0.2, 0.4});
  for (const double value : numbers) y = g.op(Primitive::kMul, {y, number(&g, value, format)}, {3});
  g.tap("y", TapKind::kValue, y, {0, 0, 0});
  return std::move(g.graph);
}

Answer mathematics(Graph target, Graph reference) {
  static const Profile profile;
  settle_constants(&target, &reference);
  for (const Finding& finding : compute_bounds({&target, &reference, &profile, 42}).findings)
    if (finding.name == "y") return finding.mathematics;
  throw std::runtime_error("no finding y");
}

double first_number(const Graph& graph) { return graph.nodes[graph.arguments.at(0)].attributes.scalar; }

TEST(Constants, OneProgramIsReplayedWithWhatItsKernelsTake) {
  Graph graph = times({0.1});
  settle_constants(&graph, nullptr);
  EXPECT_EQ(first_number(graph), static_cast<double>(0.1F));
  Graph narrow = times({0.1}, Format::kBFloat16);  // Computed in fp32.
  settle_constants(&narrow, nullptr);
  EXPECT_EQ(first_number(narrow), static_cast<double>(0.1F));
  Graph wide = times({0.1}, Format::kFloat64);
  settle_constants(&wide, nullptr);
  EXPECT_EQ(first_number(wide), 0.1);
}

TEST(Constants, NumbersThatAreOneAfterRoundingAreOne) {
  EXPECT_TRUE(mathematics(times({kLog2E}), times({kTyped})).passed());
  EXPECT_TRUE(mathematics(times({1e-4}), times({1 - 0.9999})).passed());
  EXPECT_TRUE(mathematics(times({kLog2E}, Format::kFloat64), times({kTyped}, Format::kFloat64)).disproved());
  EXPECT_TRUE(mathematics(times({kLog2E}), times({1.442698})).disproved());
}

TEST(Constants, NotANumberAmongThemLeavesTheOthersAsTheyAre) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Graph graph = times({nan, kLog2E, 3}), other = times({nan, kTyped, 3});
  settle_constants(&graph, &other);
  EXPECT_TRUE(std::isnan(first_number(graph)));
  EXPECT_EQ(graph.nodes[graph.arguments.at(1)].attributes.scalar, kTyped);
  EXPECT_EQ(graph.nodes[graph.arguments.at(2)].attributes.scalar, 3);
  EXPECT_TRUE(graph.rounded_numbers);
  EXPECT_FALSE(other.rounded_numbers) << "it has the number of the fewest digits";
}

TEST(Constants, ALeafOfOneElementIsANumberToo) {
  GraphBuilder g;
  const NodeId x = g.leaf({3}, {0.7, 0.2, 0.4}), by = g.leaf({1}, {static_cast<double>(0.1F)});
  g.tap("y", TapKind::kValue, g.op(Primitive::kMul, {x, by}, {3}), {0, 0, 0});
  Graph graph = times({0.1}), other = std::move(g.graph);
  settle_constants(&graph, &other);
  EXPECT_EQ(first_number(graph), static_cast<double>(0.1F));
}

// In one program only a leaf holds the number too: that makes no difference of what both write alike.
TEST(Constants, WhatBothWriteAlikeStaysAlike) {
  GraphBuilder g;
  const NodeId x = g.leaf({3}, {0.7, 0.2, 0.4}), leaf = g.leaf({1}, {static_cast<double>(0.1F)});
  const NodeId scaled = g.op(Primitive::kMul, {x, number(&g, 0.1)}, {3});
  g.tap("y", TapKind::kValue, scaled, {0, 0, 0});
  g.tap("z", TapKind::kValue, g.op(Primitive::kMul, {scaled, leaf}, {3}), {0, 0, 0});
  const Graph graph = std::move(g.graph);
  EXPECT_TRUE(mathematics(graph, times({0.1})).passed());
  EXPECT_TRUE(mathematics(times({0.1}), graph).passed());
}

TEST(Constants, ProductsOfNumbersMayBeFolded) {
  EXPECT_TRUE(mathematics(times({0.1, 0.2, 1 - 0.9}), times({0.02, 0.1})).passed());
  EXPECT_TRUE(mathematics(times({0.1, 0.2}), times({0.02})).passed());
  EXPECT_TRUE(mathematics(times({0.1, 0.2}), times({0.2, 0.1})).passed());
  EXPECT_TRUE(mathematics(times({0.1, 0.2}), times({0.0201})).disproved());
}

// A formula's own number stays within its rounding of what its kernel has.
TEST(Constants, AFormulasOwnNumberIsChargedWhatItIsMoved) {
  Graph graph = times({kLog2E}), other = times({kTyped});
  const NodeId own = graph.arguments.at(0);
  graph.arguments.clear();
  settle_constants(&graph, &other);
  const Node& node = graph.nodes[own];
  EXPECT_EQ(node.attributes.scalar, kTyped);
  EXPECT_EQ(node.attributes.scalar2, kLog2E - kTyped);
  static const Profile profile;
  const Bound error = traits(Primitive::kConstant)
                          .local_error(node.attributes, {node.compute, node.result, &profile}, {}, Array::full({}, 1));
  ASSERT_TRUE(error);
  EXPECT_GE(error.values.item(), kLog2E - node.attributes.scalar);
}

}  // namespace
}  // namespace plumbline
