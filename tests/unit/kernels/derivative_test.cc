// Every pull_back against central differences of evaluate, into empty, filled and shared targets, and into what it left
// itself.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "kernels/cpu/gemm.h"
#include "tests/unit/kernels/cases.h"

namespace plumbline {
namespace {

using testing::Case;

Array evaluate(const Case& c, const std::vector<Array>& inputs) {
  return traits(c.primitive).evaluate(c.attributes, c.shape, inputs).materialize();
}

double dot(const Array& a, const Array& b) {
  const Array x = a.materialize(), y = b.materialize();
  double total = 0;
  for (std::int64_t i = 0; i < x.count(); ++i) total += x.data()[i] * y.data()[i];
  return total;
}

// Inputs that carry decisions or indices have no derivative.
bool differentiable(Primitive p, std::size_t input) {
  if (p == Primitive::kSelect) return input != 0;
  if (p == Primitive::kGatherRows || p == Primitive::kScatterAdd) return input == 0;
  return true;
}

TEST(Derivative, EveryPrimitiveHasACase) {
  std::set<Primitive> covered;
  for (const Case& c : testing::cases(1)) covered.insert(c.primitive);
  for (const PrimitiveTraits& row : all_primitives()) {
    EXPECT_NE(row.evaluate, nullptr);
    EXPECT_NE(row.pull_back, nullptr);
    EXPECT_NE(row.local_error, nullptr);
    EXPECT_NE(row.radius, nullptr);
    EXPECT_TRUE(covered.contains(row.primitive)) << row.name;
  }
}

TEST(Derivative, MatchesCentralDifferences) {
  std::mt19937_64 rng(7);
  for (const Case& c : testing::cases(3)) {
    SCOPED_TRACE(c.name);
    if (c.primitive == Primitive::kLeaf) continue;
    const Array out = evaluate(c, c.inputs);
    ASSERT_EQ(out.shape(), c.shape);
    const Array cotangent = testing::random_array(rng, c.shape, -1, 1);
    std::vector<Array> grads(c.inputs.size());
    std::vector<Array> filled(c.inputs.size());
    std::vector<Array> shared(c.inputs.size());
    std::vector<Array> twice(c.inputs.size());
    std::vector<Array> fill(c.inputs.size());
    std::vector<Array*> to_grads, to_filled, to_shared, to_twice;
    for (std::size_t i = 0; i < c.inputs.size(); ++i) {
      fill[i] = testing::random_array(rng, c.inputs[i].shape(), -1, 1);
      filled[i] = Array::uninitialized(fill[i].shape());
      std::copy(fill[i].data(), fill[i].data() + fill[i].count(), filled[i].data());
      shared[i] = fill[i];
      const bool wanted = differentiable(c.primitive, i);
      to_grads.push_back(wanted ? &grads[i] : nullptr);
      to_filled.push_back(wanted ? &filled[i] : nullptr);
      to_shared.push_back(wanted ? &shared[i] : nullptr);
      to_twice.push_back(wanted ? &twice[i] : nullptr);
    }
    traits(c.primitive).pull_back(c.attributes, c.inputs, out, cotangent, to_grads);
    traits(c.primitive).pull_back(c.attributes, c.inputs, out, cotangent, to_filled);
    traits(c.primitive).pull_back(c.attributes, c.inputs, out, cotangent, to_shared);
    for (int times = 0; times < 2; ++times)
      traits(c.primitive).pull_back(c.attributes, c.inputs, out, cotangent, to_twice);
    for (std::size_t i = 0; i < c.inputs.size(); ++i) {
      if (!differentiable(c.primitive, i)) continue;
      const Array& x = c.inputs[i];
      const Array direction = testing::random_array(rng, x.shape(), -1, 1);
      const double h = 1e-6;
      double numeric[2];
      for (const int side : {0, 1}) {
        std::vector<Array> moved = c.inputs;
        const Array base = x.materialize();
        moved[i] = Array::uninitialized(x.shape());
        for (std::int64_t j = 0; j < x.count(); ++j) {
          moved[i].data()[j] = base.data()[j] + (side == 0 ? -h : h) * direction.data()[j];
        }
        numeric[side] = dot(evaluate(c, moved), cotangent);
      }
      const double expected = (numeric[1] - numeric[0]) / (2 * h);
      if (!grads[i]) {  // No derivative anywhere.
        EXPECT_NEAR(expected, 0, 1e-6);
        continue;
      }
      ASSERT_EQ(grads[i].shape(), x.shape());
      ASSERT_TRUE(grads[i].contiguous() || cpu::transpose_last_two(grads[i]).contiguous());
      EXPECT_NEAR(dot(grads[i], direction), expected, 1e-6 * (1 + std::fabs(expected)));
      const double offset = dot(fill[i], direction);
      EXPECT_NEAR(dot(filled[i], direction) - offset, expected, 1e-6 * (1 + std::fabs(expected)));
      EXPECT_NEAR(dot(shared[i], direction) - offset, expected, 1e-6 * (1 + std::fabs(expected)));
      ASSERT_EQ(filled[i].shape(), x.shape());
      const Array once = grads[i].materialize(), both = twice[i].materialize();
      for (std::int64_t j = 0; j < fill[i].count(); ++j) {
        ASSERT_NEAR(filled[i].data()[j], fill[i].data()[j] + once.data()[j], 1e-12);
        ASSERT_NEAR(both.data()[j], 2 * once.data()[j], 1e-12 * (1 + std::fabs(once.data()[j])));
        ASSERT_EQ(shared[i].data()[j], filled[i].data()[j]);  // The array it was shared with is not written.
      }
    }
  }
}

// W^T in a product: what flows back to W is what the product left, without a copy.
TEST(Derivative, ATransposedOperandsCotangentIsTakenOverAsItLies) {
  std::mt19937_64 rng(8);
  const std::vector<Array> w = {testing::random_array(rng, {2, 5, 4}, -1, 1)};
  Attributes transposed;
  transposed.view = {{2, 4, 5}, {20, 1, 4}, 0};
  const Array seen = traits(Primitive::kWindow).evaluate(transposed, {2, 4, 5}, w);
  const std::vector<Array> in = {testing::random_array(rng, {2, 3, 4}, -1, 1), seen};
  const Array out = traits(Primitive::kMatmul).evaluate({}, {2, 3, 5}, in);
  const Array cotangent = testing::random_array(rng, {2, 3, 5}, -1, 1);
  Array of_seen, of_w;
  const std::vector<Array*> to_product = {nullptr, &of_seen};
  const std::vector<Array*> to_w = {&of_w};
  traits(Primitive::kMatmul).pull_back({}, in, out, cotangent, to_product);
  traits(Primitive::kWindow).pull_back(transposed, w, seen, of_seen, to_w);
  ASSERT_EQ(of_w.shape(), w[0].shape());
  EXPECT_TRUE(of_w.contiguous());
  EXPECT_TRUE(of_w.same_place(of_seen));
  const std::vector<Array> plain = {in[0], seen.materialize()};
  Array expected;
  const std::vector<Array*> to_plain = {nullptr, &expected};
  traits(Primitive::kMatmul).pull_back({}, plain, out, cotangent, to_plain);
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t j = 0; j < 5; ++j)
        EXPECT_NEAR(of_w.data()[b * 20 + j * 4 + i], expected.data()[b * 20 + i * 5 + j], 1e-14);
}

}  // namespace
}  // namespace plumbline
