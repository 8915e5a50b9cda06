#include "server/bound/replay/python_numbers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "server/bound/compute.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

constexpr double kRead = 0.7 + 0.2 + 0.4;  // In fp64; its terms are of fp32.

// x * number, after Python read sum(x) as `read`, if it did.
Graph scaled(double number, std::optional<double> read, Format read_format = Format::kFloat32) {
  GraphBuilder g;
  const NodeId x = g.leaf({3}, {0.7, 0.2, 0.4});
  const NodeId total = g.sum_all(x);
  g.graph.nodes[total].result = read_format;
  if (read) g.graph.reads.push_back({total, *read});
  Attributes constant;
  constant.scalar = number;
  const NodeId by = g.op(Primitive::kConstant, {}, {}, Format::kFloat32, constant);
  g.graph.python_numbers.push_back({by, g.graph.reads.size(), number});
  const NodeId y = g.op(Primitive::kMul, {x, by}, {3});
  g.tap("y", TapKind::kValue, y, {0.7 * number, 0.2 * number, 0.4 * number});
  return std::move(g.graph);
}

Answer mathematics(const Graph& target, const Graph& reference) {
  static const Profile profile;
  for (const Finding& finding : compute_bounds({&target, &reference, &profile, 42}).findings)
    if (finding.name == "y") return finding.mathematics;
  throw std::runtime_error("no finding y");
}

const double kOneRead = kRead * (1 + 0x1p-23), kOtherRead = kRead * (1 - 0x1p-23);

TEST(PythonNumbers, WhatWasComputedFromOtherRoundingsIsNoDifference) {
  const Graph target = scaled(std::sqrt(2) / kOneRead, kOneRead),
              reference = scaled(std::sqrt(2) / kOtherRead, kOtherRead);
  const Answer answer = mathematics(target, reference);
  EXPECT_TRUE(answer.passed());
  EXPECT_GT(answer.deviation, 1e-8);
  EXPECT_GE(answer.python, 3 * answer.deviation);  // Four times the reads' errors.
  EXPECT_LE(answer.python, 5 * answer.deviation);
  EXPECT_GE(answer.envelope, answer.python);
}

TEST(PythonNumbers, BeyondThatNothingIsProven) {
  const Answer answer =
      mathematics(scaled(std::sqrt(2) / kOneRead, kOneRead), scaled(std::sqrt(3) / kOtherRead, kOtherRead));
  EXPECT_TRUE(answer.failed());
  EXPECT_FALSE(answer.disproved());
}

TEST(PythonNumbers, WithoutAReadOrAfterOneOfTheSameBitsEveryDifferenceIsMathematics) {
  const double a = std::sqrt(2), b = a * (1 + 1e-7);
  EXPECT_TRUE(mathematics(scaled(a, std::nullopt), scaled(b, std::nullopt)).disproved());
  EXPECT_TRUE(mathematics(scaled(a, kOneRead), scaled(b, kOneRead)).disproved());
}

TEST(PythonNumbers, WhatNumpyComputesIsRoundedAsItsArrayIs) {
  const auto by = [](double number, Format computes) {
    Graph graph = scaled(number, kOneRead);
    graph.reads[0].computes = computes;
    return graph;
  };
  const double a = std::sqrt(2), b = a * (1 + 1e-7);
  EXPECT_TRUE(mathematics(by(a, Format::kFloat64), by(b, Format::kFloat64)).disproved());
  EXPECT_TRUE(mathematics(by(a, Format::kFloat32), by(b, Format::kFloat32)).passed());
}

TEST(PythonNumbers, AfterExactReadsWhatHasNoMoreDigitsThanFp32MayBeNumpys) {
  const double a = static_cast<float>(std::sqrt(2)), b = static_cast<float>(a * 1.00123456);
  EXPECT_FALSE(mathematics(scaled(a, kRead), scaled(b, kRead)).disproved());
  EXPECT_TRUE(mathematics(scaled(std::sqrt(2), kRead), scaled(std::sqrt(2) * 1.00123456, kRead)).disproved());
}

TEST(PythonNumbers, ANumberThatWasReadIsKnownAsTheReadIs) {
  const auto with_own_number_read = [](double number) {  // Beside the sum, which is read exactly.
    Graph graph = scaled(number, kRead);
    const NodeId leaf = static_cast<NodeId>(graph.nodes.size());
    graph.nodes.push_back({Primitive::kLeaf, {}, {}, {1}});
    graph.leaves.push_back(
        {leaf, LeafRole::kData, "", false, Format::kFloat32, test::encoded(Format::kFloat32, {number})});
    graph.reads.insert(graph.reads.begin(), {leaf, number});
    graph.python_numbers[0].reads = 2;
    return graph;
  };
  const double a = static_cast<float>(std::sqrt(2)), b = static_cast<float>(a * 1.00123456);
  EXPECT_TRUE(mathematics(with_own_number_read(a), with_own_number_read(b)).disproved());
}

TEST(PythonNumbers, TextualConstantsAndTextualFactorsAreMathematics) {
  EXPECT_TRUE(mathematics(scaled(1e-3, kOneRead), scaled(2e-3, kOtherRead)).disproved());
  const double shared = std::sqrt(2);  // 5 % more of the same number.
  EXPECT_TRUE(mathematics(scaled(1.05 * shared, kOneRead), scaled(shared, kOtherRead)).disproved());
}

TEST(PythonNumbers, NineDigitsAreTextToo) {
  EXPECT_TRUE(mathematics(scaled(0.989492724, kOneRead), scaled(0.99, kOtherRead)).disproved());
  const double computed = 0.989492724 * (1 + 1e-12);
  EXPECT_FALSE(mathematics(scaled(computed, kOneRead), scaled(0.99, kOtherRead)).disproved());
}

TEST(PythonNumbers, FewBinaryDigitsMayComeFromAnElementOfSixteenBits) {
  // They are a number of bf16 and the next one, each with few decimal digits.
  const double element = 1.296875, other = 1.3046875;
  const auto read_as = [&](double read, Format format) { return scaled(read, read, format); };
  const Format narrow = Format::kBFloat16;
  EXPECT_FALSE(mathematics(read_as(element, narrow), read_as(other, narrow)).disproved());
  EXPECT_TRUE(mathematics(scaled(1.3, element, narrow), scaled(1.4, other, narrow)).disproved());
}

TEST(PythonNumbers, ANumberThatTheDeviceComputedInTheReferenceIsTakenForTheSame) {
  GraphBuilder g;
  const NodeId x = g.leaf({3}, {0.7, 0.2, 0.4});
  Attributes constant;
  constant.scalar = std::sqrt(2);
  const NodeId top = g.op(Primitive::kConstant, {}, {}, Format::kFloat64, constant);
  const NodeId quotient = g.op(Primitive::kDiv, {top, g.sum_all(x)}, {1});
  g.tap("y", TapKind::kValue, g.op(Primitive::kMul, {x, quotient}, {3}), {0, 0, 0});
  EXPECT_TRUE(mathematics(scaled(std::sqrt(2) / kOneRead, kOneRead), g.graph).passed());
  EXPECT_TRUE(mathematics(g.graph, scaled(std::sqrt(2) / kOneRead, kOneRead)).passed());
}

TEST(PythonNumbers, AReadThatExactArithmeticContradictsLeavesNothingKnown) {
  const Answer answer = mathematics(scaled(std::sqrt(2), std::nan("")), scaled(std::sqrt(3), kOneRead));
  EXPECT_TRUE(answer.vacuous());
}

}  // namespace
}  // namespace plumbline
