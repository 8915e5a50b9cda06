#include "server/bound/match/reached.h"

#include <gtest/gtest.h>

#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

// Four elements that nobody computed, of which `kept` says which an operation leaves as they are.
bool reaches(const std::vector<double>& kept, bool as_condition = false) {
  GraphBuilder b;
  const NodeId unknown = b.leaf({4}, {7, 0, 9, 1}), written = b.leaf({4}, {1, 2, 3, 4});
  const NodeId keep = b.leaf({4}, kept, Format::kBool);
  const NodeId whole = as_condition ? b.op(Primitive::kSelect, {unknown, written, written}, {4})
                                    : b.op(Primitive::kSelect, {keep, unknown, written}, {4});
  Attributes first_two;
  first_two.view = {{2}, {1}, 0};
  const NodeId part = b.op(Primitive::kWindow, {whole}, {2}, Format::kFloat32, first_two);
  b.tap("y", TapKind::kValue, b.op(Primitive::kExp, {part}, {2}), {0, 0});
  OpaqueCall call;
  call.outputs = {unknown};
  b.graph.opaque.push_back(call);
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  return !calls_that_reach_taps(b.graph, exact).empty();
}

TEST(Reached, WhatIsOverwrittenReachesNothing) {
  EXPECT_FALSE(reaches({0, 0, 0, 0}));
  EXPECT_FALSE(reaches({0, 0, 1, 1})) << "a tap reads the first two";
  EXPECT_TRUE(reaches({0, 1, 0, 0}));
}

TEST(Reached, WhatDecidesReaches) { EXPECT_TRUE(reaches({0, 0, 0, 0}, true)); }

}  // namespace
}  // namespace plumbline
