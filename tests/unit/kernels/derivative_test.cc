// Every pull_back against central differences of evaluate, into empty, filled and shared targets.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

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
    std::vector<Array> fill(c.inputs.size());
    std::vector<Array*> to_grads, to_filled, to_shared;
    for (std::size_t i = 0; i < c.inputs.size(); ++i) {
      fill[i] = testing::random_array(rng, c.inputs[i].shape(), -1, 1);
      filled[i] = Array::uninitialized(fill[i].shape());
      std::copy(fill[i].data(), fill[i].data() + fill[i].count(), filled[i].data());
      shared[i] = fill[i];
      const bool wanted = differentiable(c.primitive, i);
      to_grads.push_back(wanted ? &grads[i] : nullptr);
      to_filled.push_back(wanted ? &filled[i] : nullptr);
      to_shared.push_back(wanted ? &shared[i] : nullptr);
    }
    const std::vector<Array> fill_before = fill;
    traits(c.primitive).pull_back(c.attributes, c.inputs, out, cotangent, to_grads);
    traits(c.primitive).pull_back(c.attributes, c.inputs, out, cotangent, to_filled);
    traits(c.primitive).pull_back(c.attributes, c.inputs, out, cotangent, to_shared);
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
      ASSERT_TRUE(grads[i].contiguous());
      EXPECT_NEAR(dot(grads[i], direction), expected, 1e-6 * (1 + std::fabs(expected)));
      const double offset = dot(fill[i], direction);
      EXPECT_NEAR(dot(filled[i], direction) - offset, expected, 1e-6 * (1 + std::fabs(expected)));
      EXPECT_NEAR(dot(shared[i], direction) - offset, expected, 1e-6 * (1 + std::fabs(expected)));
      ASSERT_EQ(filled[i].shape(), x.shape());
      for (std::int64_t j = 0; j < fill[i].count(); ++j) {
        ASSERT_NEAR(filled[i].data()[j], fill[i].data()[j] + grads[i].data()[j], 1e-12);
        ASSERT_EQ(shared[i].data()[j], filled[i].data()[j]);  // The array it was shared with is not written.
      }
    }
  }
}

}  // namespace
}  // namespace plumbline
