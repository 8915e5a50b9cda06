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
  expect_in(error_of(b.trace), {"operation 1 'aten::neg.default'", "argument 'self'", "custom::thing.default"});
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

// A rule must survive arguments that make no sense: missing, of another kind, of another shape.
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
  for (const auto& [operation, rule] : all_operations()) {
    for (const Shape& shape : {Shape{}, Shape{2}, Shape{2, 3}, Shape{1, 2, 3, 4}, Shape{0, 2}}) {
      for (std::size_t kind = 0; kind <= kinds.size(); ++kind) {
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
        try {
          lower(b.trace);
        } catch (const LowerError&) {
        }
      }
    }
  }
}

}  // namespace
}  // namespace plumbline
