// Fused optimizer steps against the written-out algorithm.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/lower/trace_builder.h"

namespace plumbline {
namespace {

using testing::run;
using testing::TraceBuilder;
using Values = std::vector<double>;
using Tensors = std::vector<TensorRef>;

TEST(Optimizer, FusedAdamWTakesItsStepFromTheStateTensor) {
  TraceBuilder b;
  const TensorRef w = b.leaf({2}, {1, -2}), g = b.leaf({2}, {0.5, 0.1}), m = b.leaf({2}, {0.2, 0}),
                  v = b.leaf({2}, {0.3, 0.4}), step = b.leaf({}, {2});
  const TensorRef stepped = b.write("aten::_foreach_add_.Scalar",
                                    {{"self", Tensors{step}}, {"scalar", std::int64_t{1}}}, {{"self", step}})[0];
  const auto after = b.write("aten::_fused_adamw_.default",
                             {{"self", Tensors{w}},
                              {"grads", Tensors{g}},
                              {"exp_avgs", Tensors{m}},
                              {"exp_avg_sqs", Tensors{v}},
                              {"max_exp_avg_sqs", Tensors{}},
                              {"state_steps", Tensors{stepped}},
                              {"lr", 0.1},
                              {"beta1", 0.9},
                              {"beta2", 0.99},
                              {"weight_decay", 0.01},
                              {"eps", 1e-8},
                              {"amsgrad", false},
                              {"maximize", false},
                              {"grad_scale", None{}},
                              {"found_inf", None{}}},
                             {{"self", w}, {"grads", g}, {"exp_avgs", m}, {"exp_avg_sqs", v}});
  b.tap("w", after[0]);
  b.tap("g", after[1]);
  const Values found = run(b.trace, "w");
  const Values ws{1, -2}, gs{0.5, 0.1}, ms{0.2, 0}, vs{0.3, 0.4};
  for (std::size_t i = 0; i < 2; ++i) {
    const double m1 = 0.9 * ms[i] + 0.1 * gs[i], v1 = 0.99 * vs[i] + 0.01 * gs[i] * gs[i];
    const double mh = m1 / (1 - std::pow(0.9, 3)), vh = v1 / (1 - std::pow(0.99, 3));
    EXPECT_NEAR(found[i], ws[i] * (1 - 0.1 * 0.01) - 0.1 * mh / (std::sqrt(vh) + 1e-8), 1e-13);
  }
  EXPECT_EQ(run(b.trace, "g"), gs);
}

TEST(Optimizer, FusedSgdWithNesterovMomentum) {
  TraceBuilder b;
  const TensorRef w = b.leaf({1}, {1}), g = b.leaf({1}, {0.5}), buffer = b.leaf({1}, {2});
  const auto after = b.write("aten::_fused_sgd_.default",
                             {{"self", Tensors{w}},
                              {"grads", Tensors{g}},
                              {"momentum_buffer_list", Tensors{buffer}},
                              {"weight_decay", 0.0},
                              {"momentum", 0.9},
                              {"lr", 0.1},
                              {"dampening", 0.0},
                              {"nesterov", true},
                              {"maximize", false},
                              {"is_first_step", false}},
                             {{"self", w}, {"grads", g}, {"momentum_buffer_list", buffer}});
  b.tap("w", after[0]);
  const double moved = 0.9 * 2 + 0.5;
  EXPECT_NEAR(run(b.trace, "w")[0], 1 - 0.1 * (0.5 + 0.9 * moved), 1e-15);
}

TEST(Optimizer, AnOverflowSkipsTheStep) {
  TraceBuilder b;
  const TensorRef g = b.leaf({2}, {1, INFINITY}, Format::kFloat32), inverse = b.leaf({1}, {0.5}, Format::kFloat32),
                  found = b.leaf({1}, {0}, Format::kFloat32);
  const auto after = b.write("aten::_amp_foreach_non_finite_check_and_unscale_.default",
                             {{"self", Tensors{g}}, {"found_inf", found}, {"inv_scale", inverse}},
                             {{"self", g}, {"found_inf", found}});
  b.tap("found", after[1]);
  EXPECT_EQ(run(b.trace, "found"), (Values{1}));
}

}  // namespace
}  // namespace plumbline
