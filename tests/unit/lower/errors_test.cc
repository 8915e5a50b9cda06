// What a contradictory or incomplete trace gives: an error with a place in it, or an opaque operation; never a crash.
#include <gtest/gtest.h>

#include <algorithm>

#include "server/lower/registry.h"
#include "tests/unit/lower/trace_builder.h"

namespace plumbline {
namespace {

using testing::run;
using ::testing::Test;
using testing::TraceBuilder;
using Values = std::vector<double>;

std::string error_of(const Trace& trace) {
  try {
    lower(trace);
  } catch (const LowerError& error) {
    return error.what();
  }
  return "";
}

void expect_in(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
}

TEST(LowerErrors, AnUnknownOperationIsAnAnchor) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2}, {1, 2});
  const TensorRef y = b.op1("custom::thing.default", {{"self", x}}, {2});
  b.observe(0, {5, 6});
  b.tap("z", b.op1("aten::mul.Tensor", {{"self", y}, {"other", 2.0}}, {2}));
  const Graph graph = lower(b.trace);
  EXPECT_EQ(testing::tap_values(graph, "z"), (Values{10, 12}));
  EXPECT_EQ(graph.coverage.operations, 2u);
  EXPECT_EQ(graph.coverage.opaque, 1u);
  EXPECT_EQ(graph.coverage.opaque_names.at("custom::thing.default"), 1u);
  ASSERT_EQ(graph.leaves.size(), 2u);
  EXPECT_TRUE(graph.leaves[1].anchor);
}

TEST(LowerErrors, AnUnmodelledArgumentMakesAnOperationOpaqueAndLeavesNoNodesOfItsOwn) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2, 2}, {1, 2, 3, 4});
  b.op1("aten::gelu.default", {{"self", x}, {"approximate", std::string("cubic")}}, {2, 2});
  b.observe(0, {0, 0, 0, 0});
  const Graph graph = lower(b.trace);
  EXPECT_EQ(graph.coverage.opaque, 1u);
  EXPECT_EQ(graph.nodes.size(), 3u);  // The leaf, the call's window on it, and the anchor.
  ASSERT_EQ(graph.opaque.size(), 1u);
  EXPECT_TRUE(graph.opaque[0].known);
  EXPECT_EQ(graph.opaque[0].inputs.size(), 1u);
  EXPECT_EQ(graph.opaque[0].outputs.size(), 1u);
  EXPECT_EQ(graph.opaque[0].attributes, "approximate=cubic;");
}

TEST(LowerErrors, AnOpaqueResultThatIsNeededAndMissing) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2}, {1, 2});
  const TensorRef y = b.op1("custom::thing.default", {{"self", x}}, {2});
  EXPECT_EQ(error_of(b.trace), "");  // Nobody reads it.
  b.op1("aten::neg.default", {{"self", y}}, {2});
  expect_in(error_of(b.trace), {"operation 1 'aten::neg.default'", "result 0", "custom::thing.default"});
}

std::vector<WantedResult> missing_of(const Trace& trace) {
  try {
    lower(trace);
  } catch (const ResultsMissing& missing) {
    return missing.wanted();
  }
  return {};
}

// Operations that are not modelled, with what reads them: an operation, a tap, nothing, and another operation.
Trace with_unmodelled(bool observed) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2}, {1, 2});
  const auto unmodelled = [&](const std::string& name) {
    const TensorRef made = b.op1(name, {{"self", x}, {"approximate", std::string("cubic")}}, {2});
    if (observed) b.observe(0, {3, 4});
    return made;
  };
  const TensorRef gelu = unmodelled("aten::gelu.default");
  const TensorRef made = unmodelled("custom::thing.default");
  unmodelled("custom::unread.default");
  const TensorRef inside = unmodelled("custom::fused.default");
  b.trace.ops.back().region = "torch.compile::program.forward";
  const TensorRef product = b.op1("aten::mul.Tensor", {{"self", gelu}, {"other", inside}}, {2});
  b.op1("aten::mul.Tensor", {{"self", product}, {"other", gelu}}, {2});
  b.tap("made", made);
  b.tap("product", product);
  return b.trace;
}

TEST(LowerErrors, AllMissingResultsAreFoundAtOnce) {
  const std::vector<WantedResult> expected{
      {"aten::gelu.default", false}, {"custom::fused.default", true}, {"custom::thing.default", false}};
  const Trace trace = with_unmodelled(false);
  EXPECT_EQ(missing_of(trace), expected);
  expect_in(error_of(trace), {"operation 4 'aten::mul.Tensor'", "'aten::gelu.default'", "'custom::thing.default'"});
  EXPECT_EQ(run(with_unmodelled(true), "product"), (Values{9, 16}));
}

// What opaque operations read is wanted, but nothing is lost without it. A write into a part of what is missing leaves
// the rest missing.
TEST(LowerErrors, WhatOpaqueOperationsReadIsWantedAndNotNeeded) {
  TraceBuilder b;
  const std::vector<WantedResult> wanted{{"custom::thing.default", false}};
  const TensorRef x = b.leaf({4}, {1, 2, 3, 4}), half = b.leaf({2}, {5, 6});
  const TensorRef missing = b.op1("custom::thing.default", {{"self", x}}, {4});
  TensorRef part = missing;
  part.view = testing::dense({2});
  TensorRef written = b.write("aten::copy_.default", {{"self", part}, {"src", half}}, {{"self", part}})[0];
  const auto read = [&](const std::string& name) {
    const TensorRef seen = b.op1("custom::reader.default", {{"self", written}}, {2});
    b.observe(0, {1, 1});
    b.tap(name, seen);
    return lower(b.trace);
  };
  EXPECT_TRUE(read("of the part").wanted.empty());
  written.view = testing::dense({4});
  const Graph graph = read("of all");
  EXPECT_EQ(graph.wanted, wanted);
  ASSERT_EQ(graph.opaque.size(), 3u);
  EXPECT_TRUE(graph.opaque[1].known);
  EXPECT_FALSE(graph.opaque[2].known);
  b.tap("needed", b.op1("aten::neg.default", {{"self", written}}, {4}));
  EXPECT_EQ(missing_of(b.trace), wanted);
}

TEST(LowerErrors, AResultWithoutElementsIsKnownWithoutBeingObserved) {
  TraceBuilder b;
  const TensorRef none = b.op("custom::thing.default", {{"self", b.leaf({2}, {1, 2})}}, {{0, 3}, {2}})[0];
  b.observe(1, {3, 4});
  b.tap("none", b.op1("aten::mul.Tensor", {{"self", none}, {"other", 2.0}}, {0, 3}));
  const Graph graph = lower(b.trace);
  EXPECT_TRUE(testing::tap_values(graph, "none").empty());
  ASSERT_EQ(graph.opaque.size(), 1u);
  EXPECT_TRUE(graph.opaque[0].known);
}

// What a user defined an operation to compute goes by that operation's name, its results are no part of any region.
TEST(LowerErrors, ADefinitionGoesByTheNameOfItsOperation) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2}, {1, 2});
  const TensorRef inner = b.op1("aten::mul.Tensor", {{"self", x}, {"other", 2.0}}, {2});
  b.trace.ops.back().region = b.trace.ops.back().defined = "mylib::twice.default";
  const TensorRef result = b.op1("aten::clone.default", {{"self", inner}}, {2});
  b.trace.ops.back().defined = "mylib::twice.default";
  b.observe(0, {2, 4});
  b.tap("y", b.op1("aten::neg.default", {{"self", result}}, {2}));
  const Graph graph = lower(b.trace);
  EXPECT_EQ(testing::tap_values(graph, "y"), (Values{-2, -4}));
  ASSERT_EQ(graph.observed.size(), 1u);
  const Origin& held = graph.origins[graph.nodes[graph.observed.begin()->first].origin];
  EXPECT_EQ(held.op, "mylib::twice.default");
  EXPECT_TRUE(held.defined && !held.fused);
  EXPECT_TRUE(graph.origins[1].defined && graph.origins[1].fused);
  EXPECT_FALSE(graph.origins[3].defined);
  EXPECT_EQ(graph.coverage.opaque, 0u);
}

// The rest of the step is lowered without an operation that its rule cannot follow.
std::string opaque_name(TraceBuilder& b) {
  b.observe(0, Values(6, 1.0));
  b.tap("z", b.op1("aten::mul.Tensor", {{"self", b.trace.ops[0].results[0].tensor}, {"other", 2.0}},
                   b.trace.ops[0].results[0].tensor.view.sizes));
  const Graph graph = lower(b.trace);
  EXPECT_EQ(testing::tap_values(graph, "z"), Values(6, 2.0));
  EXPECT_EQ(graph.coverage.opaque, 1u);
  return graph.coverage.opaque_names.begin()->first;
}

TEST(LowerErrors, ShapesThatDoNotFit) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2, 3}, {1, 2, 3, 4, 5, 6}), y = b.leaf({2, 3}, {1, 2, 3, 4, 5, 6});
  b.op1("aten::mm.default", {{"self", x}, {"mat2", y}}, {2, 3});
  expect_in(opaque_name(b), {"aten::mm.default", "matrices", "[2, 3]"});
}

TEST(LowerErrors, AResultOfAnotherShape) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2, 3}, {1, 2, 3, 4, 5, 6});
  b.op1("aten::neg.default", {{"self", x}}, {3, 2});
  expect_in(opaque_name(b), {"aten::neg.default", "result 0", "[2, 3]", "[3, 2]"});
}

TEST(LowerErrors, AWindowOutsideOfItsValue) {
  TraceBuilder b;
  TensorRef x = b.leaf({2}, {1, 2});
  x.view = {{2}, {5}, 0};
  b.op1("aten::neg.default", {{"self", x}}, {2});
  expect_in(error_of(b.trace), {"argument 'self'", "window"});
}

TEST(LowerErrors, AnUnknownValue) {
  TraceBuilder b;
  TensorRef x = b.leaf({2}, {1, 2});
  x.value = 99;
  b.op1("aten::neg.default", {{"self", x}}, {2});
  expect_in(error_of(b.trace), {"value 99"});
}

TEST(LowerErrors, APayloadOfTheWrongSize) {
  TraceBuilder b;
  b.leaf({2}, {1, 2, 3});
  expect_in(error_of(b.trace), {"payload", "16 bytes", "24"});
}

TEST(LowerErrors, AnUnmodelledElementTypeIsOpaque) {
  TraceBuilder b;
  const TensorRef x{b.leaf({2}, {1, 2}).value, Format::kUnknown, testing::dense({2})};
  b.trace.leaves[0].format = Format::kUnknown;
  b.trace.leaves[0].payload = 0;
  const TensorRef y = b.op1("aten::abs.default", {{"self", x}}, {2});
  b.observe(0, {3, 4});
  b.tap("y", y);
  EXPECT_EQ(run(b.trace, "y"), (Values{3, 4}));
}

TEST(LowerErrors, EveryRowHasAName) {
  const auto names = lowered_operations();
  EXPECT_GT(names.size(), 300u);
  for (const auto& [name, kind] : decision_operations()) {
    EXPECT_TRUE(std::binary_search(names.begin(), names.end(), name)) << name;
    EXPECT_TRUE(kind >= 1 && kind <= 3);
  }
}

// A rule must survive arguments that make no sense: missing, of another kind, of another shape; and results that the
// client left out.
TEST(LowerErrors, NoRuleCrashesOnNonsense) {
  const std::vector<ArgumentValue> kinds{None{},
                                         1.5,
                                         std::int64_t{-3},
                                         true,
                                         std::string("x"),
                                         std::vector<std::int64_t>{-1, 7},
                                         std::vector<double>{0.5},
                                         std::vector<bool>{true},
                                         Format::kFloat32};
  const std::vector<const char*> names{
      "self",   "other",   "input",       "weight",           "bias",        "mat1", "mat2",   "batch1",   "batch2",
      "vec",    "mat",     "tensor",      "indices",          "index",       "src",  "source", "dim",      "target",
      "output", "tensors", "grad_output", "grad_out",         "query",       "key",  "value",  "out",      "logsumexp",
      "mean",   "rstd",    "eps",         "normalized_shape", "input_sizes", "pad",  "grads",  "exp_avgs", "lr"};
  const std::vector<Shape> shapes{{}, {2}, {2, 3}, {1, 2, 3, 4}, {0, 2}};
  std::size_t turn = 0;
  for (const auto& [operation, rule] : all_operations()) {
    ++turn;  // The next rule, often its kin, meets other shapes with an argument of a kind.
    for (std::size_t kind = 0; kind <= kinds.size(); ++kind) {
      for (int pick = 0; pick < 2; ++pick) {
        const Shape& shape = shapes[turn++ % shapes.size()];
        TraceBuilder b;
        const TensorRef x = b.leaf(shape, Values(static_cast<std::size_t>(count(shape)), 1.0));
        std::vector<TraceArgument> arguments;
        for (std::size_t i = 0; i < names.size(); ++i) {
          ArgumentValue value = x;
          if (kind < kinds.size() && i % 2 == 1) value = kinds[kind];
          if (kind == kinds.size() && i % 3 == 0) value = std::vector<TensorRef>{x, x};
          arguments.push_back({names[i], value});
        }
        b.op(operation, arguments, {shape, shape});
        b.trace.ops.back().results[1].argument = "self";
        error_of(b.trace);
        b.trace.ops.back().results.clear();
        error_of(b.trace);
      }
    }
  }
}

}  // namespace
}  // namespace plumbline
