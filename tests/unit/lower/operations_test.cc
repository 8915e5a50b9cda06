// Each family against numbers from its definition.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/unit/lower/trace_builder.h"

namespace plumbline {
namespace {

using testing::run;
using testing::TraceBuilder;
using Values = std::vector<double>;
using Integers = std::vector<std::int64_t>;
constexpr auto kInt = Format::kInt64;

void expect_near(const Values& found, const Values& expected, double tolerance = 1e-14) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], tolerance * (1 + std::fabs(expected[i]))) << "element " << i;
}

TEST(Operations, AddMultipliesByAlphaAndBroadcasts) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2, 2}, {1, 2, 3, 4}), y = b.leaf({2}, {10, 20});
  b.tap("y", b.op1("aten::add.Tensor", {{"self", x}, {"other", y}, {"alpha", -0.5}}, {2, 2}));
  expect_near(run(b.trace, "y"), {-4, -8, -2, -6});
}

TEST(Operations, AnOutArgumentTakesTheResult) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2}, {1, 2}), out = b.leaf({2}, {0, 0});
  const TensorRef after = b.write("aten::mul.out", {{"self", x}, {"other", x}, {"out", out}}, {{"out", out}})[0];
  b.tap("y", after);
  expect_near(run(b.trace, "y"), {1, 4});
}

TEST(Operations, APartOfDataHasTheLineWhereItWasTaken) {
  TraceBuilder b;
  TensorRef x = b.leaf({3}, {1, 2, 3});
  x.view = {{2}, {1}, 0};
  b.write("plumbline::slice.default", {{"self", x}, {"operation", std::string("aten::slice.Tensor")}}, {});
  b.tap("y", b.op1("aten::neg.default", {{"self", x}}, {2}));
  const Graph graph = lower(b.trace);
  ASSERT_EQ(graph.parts.size(), 1U);
  EXPECT_EQ(graph.origins[graph.nodes[graph.parts[0]].origin].op, "aten::slice.Tensor");
  EXPECT_EQ(graph.nodes[graph.taps[0].terms[0].node].inputs[0], graph.parts[0]) << "what reads it reads that window";
}

TEST(Operations, ForeachTakesListsElementByElement) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2}, {1, 2}), y = b.leaf({3}, {3, 4, 5});
  const std::vector<TensorRef> list{x, y};
  const auto after = b.write("aten::_foreach_addcdiv_.ScalarList",
                             {{"self", list}, {"tensor1", list}, {"tensor2", list}, {"scalars", Values{10, 100}}},
                             {{"self", x}, {"self", y}});
  b.tap("x", after[0]);
  b.tap("y", after[1]);
  expect_near(run(b.trace, "x"), {11, 12});
  expect_near(run(b.trace, "y"), {103, 104, 105});
}

// Kernels read for one what they wrote for the other.
TEST(Operations, TensorsOfAListThatLieInTheSameMemoryAreNotModelled) {
  for (const std::int64_t begin : {2, 1, 0}) {
    TraceBuilder b;
    const TensorRef whole = b.leaf({4}, {1, 2, 3, 4});
    TensorRef x = whole, y = whole;
    x.view = {{2}, {1}, 0};
    y.view = {{2}, {1}, begin};
    const std::vector<TensorRef> list{x, y};
    b.write("aten::_foreach_mul_.Scalar", {{"self", list}, {"scalar", 2.0}}, {{"self", x}, {"self", y}});
    EXPECT_EQ(lower(b.trace).coverage.opaque, begin == 2 ? 0U : 1U) << begin;
  }
}

TEST(Operations, AScalarEdgeReadsItsTensor) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2}, {6, 8}), n = b.leaf({3}, {1, 2, 4});
  const ScalarEdge edge{{n.value, n.format, {{}, {}, 2}}};
  b.tap("y", b.op1("aten::div.Tensor", {{"self", x}, {"other", edge}}, {2}));
  expect_near(run(b.trace, "y"), {1.5, 2});
}

TEST(Operations, ANumberThatPythonReadIsNotedAndTheArgumentsAfterIt) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2}, {6, 8}), n = b.leaf({1}, {2.5});
  b.tap("before", b.op1("aten::mul.Tensor", {{"self", x}, {"other", 0.3}}, {2}));
  b.write("aten::_local_scalar_dense.default", {{"self", n}, {"value", 2.5}}, {});
  b.tap("after", b.op1("aten::add.Tensor", {{"self", x}, {"other", 0.4}, {"alpha", std::int64_t{1}}}, {2}));
  const Graph graph = lower(b.trace);
  EXPECT_EQ(graph.coverage.opaque, 0u);
  ASSERT_EQ(graph.reads.size(), 1u);
  EXPECT_EQ(graph.reads[0].value, 2.5);
  ASSERT_EQ(graph.python_numbers.size(), 1u);
  EXPECT_EQ(graph.python_numbers[0].reads, 1u);
  EXPECT_EQ(graph.nodes[graph.python_numbers[0].node].attributes.scalar, 0.4);
}

TEST(Operations, FormatsOfAFusedKernel) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2}, {1, 2}, Format::kBFloat16);
  b.tap("y", b.op1("aten::gelu.default", {{"self", x}, {"approximate", std::string("tanh")}}, {2}, Format::kBFloat16));
  const Graph graph = lower(b.trace);
  std::size_t rounded = 0;
  for (const Node& node : graph.nodes) {
    if (node.primitive == Primitive::kLeaf) continue;
    EXPECT_EQ(node.compute, Format::kFloat32);
    rounded += node.result == Format::kBFloat16;
  }
  EXPECT_EQ(rounded, 1u);
  EXPECT_EQ(graph.nodes[graph.taps[0].terms[0].node].result, Format::kBFloat16);
}

TEST(Operations, ReluKeepsItsFormatAndItsGradientFollowsItsDecision) {
  TraceBuilder b;
  const TensorRef x = b.leaf({4}, {-1, 2, 0, 3}, Format::kBFloat16), dy = b.leaf({4}, {1, 1, 1, 1}, Format::kBFloat16);
  const TensorRef y = b.op1("aten::relu.default", {{"self", x}}, {4}, Format::kBFloat16);
  b.decide({0, 1, 0, 1});
  // The gradient reads the result through another view.
  const TensorRef square{y.value, y.format, {{2, 2}, {2, 1}, 0}}, dsquare{dy.value, dy.format, {{2, 2}, {2, 1}, 0}};
  const TensorRef dx =
      b.op1("aten::threshold_backward.default",
            {{"grad_output", dsquare}, {"self", square}, {"threshold", std::int64_t{0}}}, {2, 2}, Format::kBFloat16);
  b.tap("dx", dx);
  const Graph graph = lower(b.trace);
  ASSERT_EQ(graph.decisions.size(), 1u);
  std::size_t comparisons = 0;
  for (const Node& node : graph.nodes) {
    comparisons += node.primitive == Primitive::kGreater;
    if (node.primitive == Primitive::kSelect) {
      EXPECT_EQ(node.compute, Format::kBFloat16);
    }
  }
  EXPECT_EQ(comparisons, 1u);
  expect_near(testing::tap_values(graph, "dx"), {0, 1, 0, 1});
}

TEST(Operations, ComparisonsAreDecisions) {
  TraceBuilder b;
  const TensorRef x = b.leaf({3}, {-1, 0.5, 2}, Format::kFloat32);
  b.op1("aten::gt.Scalar", {{"self", x}, {"other", 0.5}}, {3}, Format::kBool);
  b.observe(0, {0, 0, 1});
  EXPECT_EQ(lower(b.trace).decisions.size(), 1u);
}

TEST(Operations, RoundingsToIntegersAreDecisions) {
  TraceBuilder b;
  const TensorRef x = b.leaf({3}, {-1, 0.5, 2.2}, Format::kFloat32);
  b.op1("aten::round.default", {{"self", x}}, {3}, Format::kFloat32);
  b.observe(0, {-1, 1, 2});
  const Graph graph = lower(b.trace);
  ASSERT_EQ(graph.decisions.size(), 1u);
  EXPECT_EQ(graph.decisions[0].format, Format::kFloat32);
}

// Codes round(x / 0.5) between -2 - 1 and 3 - 1; the output tells those that it did not clamp.
TEST(Operations, FakeQuantizeWithItsMaskAndCodes) {
  TraceBuilder b;
  const TensorRef x = b.leaf({4}, {0.6, -2, 5, 0.74});
  const auto out = b.op("aten::fake_quantize_per_tensor_affine_cachemask.default",
                        {{"self", x},
                         {"scale", 0.5},
                         {"zero_point", std::int64_t{1}},
                         {"quant_min", std::int64_t{-2}},
                         {"quant_max", std::int64_t{3}}},
                        {{4}, {4}});
  b.tap("y", out[0]);
  b.tap("mask", out[1]);
  b.observe(0, {0.5, -1.5, 1, 0.5});
  expect_near(run(b.trace, "y"), {0.5, -1.5, 1, 0.5});
  expect_near(run(b.trace, "mask"), {1, 0, 0, 1});
  const Graph graph = lower(b.trace);
  ASSERT_EQ(graph.decisions.size(), 1u);
  ASSERT_EQ(graph.decisions[0].sides->size(), 4 * sizeof(double));
  std::vector<double> codes(4);
  std::memcpy(codes.data(), graph.decisions[0].sides->data(), 4 * sizeof(double));
  EXPECT_EQ(codes[0], 1);
  EXPECT_EQ(codes[3], 1);
  EXPECT_TRUE(std::isnan(codes[1]) && std::isnan(codes[2]));
}

TEST(Operations, GeluAndItsGradient) {
  for (const bool tanh_form : {false, true}) {
    const auto gelu = [&](double x) {
      if (tanh_form) return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    };
    TraceBuilder b;
    const std::string approximate = tanh_form ? "tanh" : "none";
    const Values at{-2, -0.3, 0, 1.7};
    const TensorRef x = b.leaf({4}, at), dy = b.leaf({4}, {1, 2, 3, 4});
    b.tap("y", b.op1("aten::gelu.default", {{"self", x}, {"approximate", approximate}}, {4}));
    b.tap("dx",
          b.op1("aten::gelu_backward.default", {{"grad_output", dy}, {"self", x}, {"approximate", approximate}}, {4}));
    Values y, dx;
    for (std::size_t i = 0; i < at.size(); ++i) {
      y.push_back(gelu(at[i]));
      const double h = 1e-5;
      dx.push_back((static_cast<double>(i) + 1) * (gelu(at[i] + h) - gelu(at[i] - h)) / (2 * h));
    }
    expect_near(run(b.trace, "y"), y);
    expect_near(run(b.trace, "dx"), dx, 1e-9);
  }
}

TEST(Operations, LayerNormAndItsGradients) {
  const Values x{1, 2, 4, -1, 0, 3}, gamma{1, 2, 3}, beta{0.5, 0, -1}, dy{1, -1, 2, 0.5, 1, 1};
  TraceBuilder b;
  const TensorRef input = b.leaf({2, 3}, x), weight = b.leaf({3}, gamma), bias = b.leaf({3}, beta);
  const TensorRef gradient = b.leaf({2, 3}, dy);
  const auto out =
      b.op("aten::native_layer_norm.default",
           {{"input", input}, {"normalized_shape", Integers{3}}, {"weight", weight}, {"bias", bias}, {"eps", 0.1}},
           {{2, 3}, {2, 1}, {2, 1}});
  b.tap("y", out[0]);
  const auto back = b.op("aten::native_layer_norm_backward.default",
                         {{"grad_out", gradient},
                          {"input", input},
                          {"normalized_shape", Integers{3}},
                          {"mean", out[1]},
                          {"rstd", out[2]},
                          {"weight", weight},
                          {"bias", bias},
                          {"output_mask", std::vector<bool>{true, true, true}}},
                         {{2, 3}, {3}, {3}});
  b.tap("dx", back[0]);
  b.tap("dgamma", back[1]);
  b.tap("dbeta", back[2]);

  const auto norm = [&](const Values& at, Values* normal) {
    Values y(6), n(6);
    for (std::size_t r = 0; r < 2; ++r) {
      double mean = 0, variance = 0;
      for (std::size_t c = 0; c < 3; ++c) mean += at[3 * r + c] / 3;
      for (std::size_t c = 0; c < 3; ++c) variance += (at[3 * r + c] - mean) * (at[3 * r + c] - mean) / 3;
      for (std::size_t c = 0; c < 3; ++c) {
        n[3 * r + c] = (at[3 * r + c] - mean) / std::sqrt(variance + 0.1);
        y[3 * r + c] = n[3 * r + c] * gamma[c] + beta[c];
      }
    }
    if (normal) *normal = n;
    return y;
  };
  Values normal;
  expect_near(run(b.trace, "y"), norm(x, &normal));
  Values dx, dgamma(3), dbeta(3);
  for (std::size_t i = 0; i < 6; ++i) {
    const double h = 1e-5;
    Values up = x, down = x;
    up[i] += h;
    down[i] -= h;
    const Values yu = norm(up, nullptr), yd = norm(down, nullptr);
    double d = 0;
    for (std::size_t j = 0; j < 6; ++j) d += dy[j] * (yu[j] - yd[j]) / (2 * h);
    dx.push_back(d);
    dgamma[i % 3] += dy[i] * normal[i];
    dbeta[i % 3] += dy[i];
  }
  expect_near(run(b.trace, "dx"), dx, 1e-8);
  expect_near(run(b.trace, "dgamma"), dgamma);
  expect_near(run(b.trace, "dbeta"), dbeta);
}

TEST(Operations, CrossEntropyWithAnIgnoredTarget) {
  const Values x{1, 2, 0, 3, -1, 1};
  TraceBuilder b;
  const TensorRef scores = b.leaf({2, 3}, x), target = b.leaf({2}, {-100, 1}, kInt), dy = b.leaf({}, {2});
  const TensorRef p = b.op1("aten::_log_softmax.default",
                            {{"self", scores}, {"dim", std::int64_t{1}}, {"half_to_float", false}}, {2, 3});
  std::vector<TraceArgument> arguments{{"self", p},
                                       {"target", target},
                                       {"weight", None{}},
                                       {"reduction", std::int64_t{1}},
                                       {"ignore_index", std::int64_t{-100}}};
  const auto loss = b.op("aten::nll_loss_forward.default", arguments, {{}, {}});
  b.tap("loss", loss[0]);
  b.tap("weight", loss[1]);
  arguments.push_back({"grad_output", dy});
  arguments.push_back({"total_weight", loss[1]});
  const TensorRef dp = b.op1("aten::nll_loss_backward.default", arguments, {2, 3});
  b.tap("dx", b.op1("aten::_log_softmax_backward_data.default",
                    {{"grad_output", dp}, {"output", p}, {"dim", std::int64_t{1}}, {"input_dtype", Format::kFloat64}},
                    {2, 3}));
  const double total = std::exp(3.0) + std::exp(-1.0) + std::exp(1.0);
  expect_near(run(b.trace, "loss"), {std::log(total) + 1});
  expect_near(run(b.trace, "weight"), {1});
  expect_near(run(b.trace, "dx"),
              {0, 0, 0, 2 * std::exp(3.0) / total, 2 * (std::exp(-1.0) / total - 1), 2 * std::exp(1.0) / total});
}

TEST(Operations, SoftmaxOverAnInnerDimension) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2, 2}, {0, 1, std::log(3.0), 1});
  b.tap("y",
        b.op1("aten::_softmax.default", {{"self", x}, {"dim", std::int64_t{0}}, {"half_to_float", false}}, {2, 2}));
  expect_near(run(b.trace, "y"), {0.25, 0.5, 0.75, 0.5});
}

TEST(Operations, CausalAttention) {
  // One head, two positions, width 1: the first attends to itself only.
  TraceBuilder b;
  const TensorRef q = b.leaf({1, 1, 2, 1}, {1, 2}), k = b.leaf({1, 1, 2, 1}, {0.5, -1}),
                  v = b.leaf({1, 1, 2, 1}, {3, 5});
  const auto out = b.op("aten::_scaled_dot_product_flash_attention_for_cpu.default",
                        {{"query", q},
                         {"key", k},
                         {"value", v},
                         {"dropout_p", 0.0},
                         {"is_causal", true},
                         {"attn_mask", None{}},
                         {"scale", None{}}},
                        {{1, 1, 2, 1}, {1, 1, 2}});
  b.tap("out", out[0]);
  b.tap("logsumexp", out[1]);
  const double e1 = std::exp(1.0), e2 = std::exp(-2.0);
  expect_near(run(b.trace, "out"), {3, (3 * e1 + 5 * e2) / (e1 + e2)});
  expect_near(run(b.trace, "logsumexp"), {0.5, std::log(e1 + e2)});
}

TEST(Operations, EmbeddingAndItsGradient) {
  TraceBuilder b;
  const TensorRef table = b.leaf({3, 2}, {1, 2, 3, 4, 5, 6}), index = b.leaf({2, 2}, {2, 0, 2, 1}, kInt);
  const TensorRef dy = b.leaf({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  b.tap("y", b.op1("aten::embedding.default", {{"weight", table}, {"indices", index}}, {2, 2, 2}));
  b.tap("d", b.op1("aten::embedding_dense_backward.default",
                   {{"grad_output", dy},
                    {"indices", index},
                    {"num_weights", std::int64_t{3}},
                    {"padding_idx", std::int64_t{1}},
                    {"scale_grad_by_freq", false}},
                   {3, 2}));
  expect_near(run(b.trace, "y"), {5, 6, 1, 2, 5, 6, 3, 4});
  expect_near(run(b.trace, "d"), {3, 4, 0, 0, 6, 8});
}

TEST(Operations, GatherAndScatterAdd) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2, 3}, {1, 2, 3, 4, 5, 6}), index = b.leaf({2, 2}, {2, 0, 1, 1}, kInt);
  const TensorRef chosen =
      b.op1("aten::gather.default", {{"self", x}, {"dim", std::int64_t{1}}, {"index", index}}, {2, 2});
  b.tap("y", chosen);
  b.tap("z", b.op1("aten::scatter_add.default",
                   {{"self", x}, {"dim", std::int64_t{-1}}, {"index", index}, {"src", chosen}}, {2, 3}));
  expect_near(run(b.trace, "y"), {3, 1, 5, 5});
  expect_near(run(b.trace, "z"), {2, 2, 6, 4, 15, 6});
}

TEST(Operations, MovementKeepsElements) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2, 2}, {1, 2, 3, 4}), y = b.leaf({2, 1}, {5, 6});
  b.tap("cat",
        b.op1("aten::cat.default", {{"tensors", std::vector<TensorRef>{x, y}}, {"dim", std::int64_t{-1}}}, {2, 3}));
  b.tap("pad", b.op1("aten::constant_pad_nd.default", {{"self", y}, {"pad", Integers{1, 0}}, {"value", 9.0}}, {2, 2}));
  b.tap("slice", b.op1("aten::slice_backward.default",
                       {{"grad_output", y},
                        {"input_sizes", Integers{2, 3}},
                        {"dim", std::int64_t{1}},
                        {"start", std::int64_t{1}},
                        {"end", std::int64_t{2}},
                        {"step", std::int64_t{1}}},
                       {2, 3}));
  b.tap("repeat", b.op1("aten::repeat.default", {{"self", y}, {"repeats", Integers{1, 2}}}, {2, 2}));
  b.tap("tril", b.op1("aten::tril.default", {{"self", x}, {"diagonal", std::int64_t{0}}}, {2, 2}));
  expect_near(run(b.trace, "cat"), {1, 2, 5, 3, 4, 6});
  expect_near(run(b.trace, "pad"), {9, 5, 9, 6});
  expect_near(run(b.trace, "slice"), {0, 5, 0, 0, 6, 0});
  expect_near(run(b.trace, "repeat"), {5, 5, 6, 6});
  expect_near(run(b.trace, "tril"), {1, 0, 3, 4});
}

TEST(Operations, ReductionsDropOrKeepDimensions) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2, 3}, {1, 2, 3, 4, 5, 9});
  b.tap("sum", b.op1("aten::sum.dim_IntList", {{"self", x}, {"dim", Integers{-1}}, {"keepdim", false}}, {2}));
  b.tap("kept", b.op1("aten::mean.dim", {{"self", x}, {"dim", Integers{0}}, {"keepdim", true}}, {1, 3}));
  b.tap("var", b.op1("aten::var.correction",
                     {{"self", x}, {"dim", Integers{1}}, {"correction", 1.0}, {"keepdim", false}}, {2}));
  b.tap("norm", b.op1("aten::linalg_vector_norm.default", {{"self", x}, {"ord", 2.0}}, {}));
  const auto best = b.op("aten::max.dim", {{"self", x}, {"dim", std::int64_t{1}}, {"keepdim", false}}, {{2}, {2}});
  b.trace.ops.back().results[1].tensor.format = kInt;
  b.tap("max", best[0]);
  b.tap("index", {best[1].value, kInt, best[1].view});
  expect_near(run(b.trace, "sum"), {6, 18});
  expect_near(run(b.trace, "kept"), {2.5, 3.5, 6});
  expect_near(run(b.trace, "var"), {1, 7});
  expect_near(run(b.trace, "norm"), {std::sqrt(136.0)});
  expect_near(run(b.trace, "max"), {3, 9});
  expect_near(run(b.trace, "index"), {2, 2});
}

TEST(Operations, MaskedFillAndWhere) {
  TraceBuilder b;
  const TensorRef x = b.leaf({2}, {1, 2}), mask = b.leaf({2}, {1, 0}, Format::kBool);
  const double infinity = std::numeric_limits<double>::infinity();
  b.tap("y", b.op1("aten::masked_fill.Scalar", {{"self", x}, {"mask", mask}, {"value", -infinity}}, {2}));
  b.tap("z", b.op1("aten::where.ScalarOther", {{"condition", mask}, {"self", x}, {"other", 7.0}}, {2}));
  EXPECT_EQ(run(b.trace, "y"), (Values{-infinity, 2}));
  expect_near(run(b.trace, "z"), {1, 7});
}

// Rows [[1, 2], [3, 4], [5, 6]] under a mask; a replay whose mask takes another number of rows knows none of them.
TEST(Operations, MasksAsIndices) {
  const auto taken = [](const Values& mask) {
    TraceBuilder b;
    const TensorRef x = b.leaf({3, 2}, {1, 2, 3, 4, 5, 6}), rows = b.leaf({3}, mask, Format::kBool);
    b.tap("y", b.op1("aten::index.Tensor", {{"self", x}, {"indices", std::vector<TensorRef>{rows}}}, {2, 2}));
    EXPECT_EQ(lower(b.trace).coverage.opaque, 0u);
    return run(b.trace, "y");
  };
  EXPECT_EQ(taken({1, 0, 1}), (Values{1, 2, 5, 6}));
  EXPECT_EQ(taken({0, 1, 1}), (Values{3, 4, 5, 6}));
  for (const Values& other : {Values{0, 1, 0}, Values{1, 1, 1}, Values{0, 0, 0}})
    for (const double x : taken(other)) EXPECT_TRUE(std::isnan(x));
}

// The same rows become 7, 8 and 9, 10, or these are added to them.
TEST(Operations, RowsPutUnderAMask) {
  for (const bool accumulate : {false, true}) {
    TraceBuilder b;
    const TensorRef x = b.leaf({3, 2}, {1, 2, 3, 4, 5, 6}), rows = b.leaf({3}, {1, 0, 1}, Format::kBool);
    const TensorRef values = b.leaf({2, 2}, {7, 8, 9, 10}), one = b.leaf({}, {7});
    const auto put = [&](const TensorRef& what) {
      return b.op1(
          "aten::index_put.default",
          {{"self", x}, {"indices", std::vector<TensorRef>{rows}}, {"values", what}, {"accumulate", accumulate}},
          {3, 2});
    };
    b.tap("rows", put(values));
    b.tap("one", put(one));
    EXPECT_EQ(lower(b.trace).coverage.opaque, 0u);
    EXPECT_EQ(run(b.trace, "rows"), accumulate ? (Values{8, 10, 3, 4, 14, 16}) : (Values{7, 8, 3, 4, 9, 10}));
    EXPECT_EQ(run(b.trace, "one"), accumulate ? (Values{8, 9, 3, 4, 12, 13}) : (Values{7, 7, 3, 4, 7, 7}));
  }
}

TEST(Operations, MatrixProductsWithBias) {
  TraceBuilder b;
  const TensorRef bias = b.leaf({2}, {1, -1}), x = b.leaf({2, 2}, {1, 2, 3, 4});
  const TensorRef transposed{x.value, x.format, {{2, 2}, {1, 2}, 0}};
  b.tap("y",
        b.op1("aten::addmm.default",
              {{"self", bias}, {"mat1", x}, {"mat2", transposed}, {"beta", 2.0}, {"alpha", std::int64_t{1}}}, {2, 2}));
  expect_near(run(b.trace, "y"), {7, 9, 13, 23});
}

}  // namespace
}  // namespace plumbline
