// |legal execution - exact| <= local_error, for every primitive that can have one, in several arithmetics.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/soundness/execution.h"

namespace plumbline::soundness {
namespace {

struct Combination {
  Format compute, result;
};

class LocalError : public ::testing::TestWithParam<Combination> {};

TEST(LocalErrorRegistry, EveryInexactPrimitiveHasExecutions) {
  for (const PrimitiveTraits& row : all_primitives()) {
    EXPECT_TRUE(row.bitwise || has_executions(row.primitive)) << row.name;
  }
}

TEST_P(LocalError, HoldsLegalExecutions) {
  const auto [compute, result] = GetParam();
  const double narrowest = std::min(largest_finite(compute), largest_finite(result));
  Random random(2024);
  Profile flushing = ieee();
  flushing.name = "flushing";
  flushing.flush_subnormals = true;
  for (const Profile& profile : {ieee(), pytorch_cpu(), flushing}) {
    for (const PrimitiveTraits& row : all_primitives()) {
      if (!has_executions(row.primitive)) continue;
      SCOPED_TRACE(std::string(row.name) + " " + profile.name);
      const Arithmetic arithmetic{compute, result, &profile};
      double worst = 0;
      for (int trial = 0; trial < 60; ++trial) {
        const Problem problem = random_problem(row.primitive, compute, random);
        const Array replay = row.evaluate(problem.attributes, problem.shape, problem.inputs).materialize();
        const Bound bound = row.local_error(problem.attributes, arithmetic, problem.inputs, replay);
        const Array limit = bound ? bound.values.materialize() : Array::zeros(problem.shape);
        const std::vector<long double> truth = exact(problem);
        // Our own replay is one more execution in fp64.
        if (compute == Format::kFloat64 && result == Format::kFloat64) {
          for (std::int64_t i = 0; i < replay.count(); ++i) {
            if (!std::isfinite(truth[i]) || std::isinf(replay.data()[i])) continue;
            const auto error = static_cast<double>(std::fabs(replay.data()[i] - truth[i]));
            ASSERT_LE(error, limit.data()[i])
                << problem.regime << " replay, element " << i << " of " << static_cast<double>(truth[i]);
          }
        }
        for (int execution = 0; execution < 8; ++execution) {
          const std::vector<double> out = execute(problem, compute, result, profile, random);
          for (std::int64_t i = 0; i < replay.count(); ++i) {
            const double b = limit.data()[i];
            if (!std::isfinite(truth[i])) continue;             // Outside the domain.
            if (std::fabs(truth[i]) + b > narrowest) continue;  // Overflow is the range lane's.
            const auto error = static_cast<double>(std::fabs(out[i] - truth[i]));
            ASSERT_LE(error, b) << problem.regime << " element " << i << " exact " << static_cast<double>(truth[i]);
            if (b > 0) worst = std::max(worst, error / b);
          }
        }
      }
      EXPECT_LE(worst, 1.0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, LocalError,
    ::testing::Values(Combination{Format::kFloat32, Format::kFloat32}, Combination{Format::kFloat32, Format::kBFloat16},
                      Combination{Format::kFloat32, Format::kFloat16}, Combination{Format::kFloat64, Format::kFloat64},
                      Combination{Format::kFloat64, Format::kFloat32}),
    [](const auto& info) {
      return std::string(traits(info.param.compute).name) + "_" + std::string(traits(info.param.result).name);
    });

TEST(LocalErrorRegistry, BitwisePrimitivesHaveNone) {
  const Profile profile = ieee();
  const Arithmetic arithmetic{Format::kFloat32, Format::kFloat32, &profile};
  const std::vector<Array> in = {Array::scalar(1.5), Array::scalar(-0.75), Array::scalar(2)};
  for (const PrimitiveTraits& row : all_primitives()) {
    if (!row.bitwise || row.arity < 1) continue;
    EXPECT_FALSE(row.local_error({}, arithmetic, Inputs(in).first(row.arity), Array::scalar(1.5))) << row.name;
  }
}

}  // namespace
}  // namespace plumbline::soundness
