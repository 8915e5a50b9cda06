#include "server/pipeline/estimate.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

TensorRef tensor(ValueId value, Shape sizes) {
  TensorRef made;
  made.value = value;
  made.view.sizes = std::move(sizes);
  return made;
}

double work(const std::vector<Shape>& operands, const std::vector<Shape>& results) {
  Trace trace;
  TraceOp op;
  for (std::size_t i = 0; i < operands.size(); ++i) op.arguments.push_back({"", tensor(i + 1, operands[i])});
  for (std::size_t i = 0; i < results.size(); ++i) {
    TraceResult result;
    result.tensor = tensor(100 + i, results[i]);
    op.results.push_back(result);
  }
  trace.ops = {op};
  const double none = [] {
    Trace empty;
    empty.ops.emplace_back();
    return estimated_audit_work(empty);
  }();
  return estimated_audit_work(trace) - none;
}

TEST(EstimatedWork, OfAProductIsItsMultiplications) {
  EXPECT_NEAR(work({{512, 65536}, {65536, 512}}, {{512, 512}}), 512.0 * 512 * 65536, 1e-6 * 2e10);
  EXPECT_NEAR(work({{40, 64, 128}, {40, 128, 96}}, {{40, 64, 96}}), 40.0 * 64 * 128 * 96, 1e-6 * 4e7);
  EXPECT_NEAR(work({{768}, {1024, 768}, {768, 768}}, {{1024, 768}}), 1024.0 * 768 * 768, 1e-6 * 1e9) << "with a bias";
  // A convolution with filters of 3 x 3: 32 images of 3 channels, 64 filters.
  EXPECT_NEAR(work({{32, 3, 56, 56}, {64, 3, 3, 3}}, {{32, 64, 56, 56}}), 32.0 * 64 * 56 * 56 * 3 * 3, 1e-6 * 2e8);
}

TEST(EstimatedWork, OfAnythingElseIsItsElements) {
  EXPECT_EQ(work({{1024, 768}, {768}}, {{1024, 768}}), 2.0 * 1024 * 768 + 768);
  EXPECT_EQ(work({{1000}}, {{}}), 1001);
  const Shape p = {100, 100};
  EXPECT_EQ(work({p, p, p, p, p, p, p, p}, {p, p, p, p}), 12e4) << "a list of an optimizer's";
}

TEST(EstimatedWork, GrowsWithOperationsHoweverSmall) {
  Trace one, many;
  one.ops.resize(1);
  many.ops.resize(4000);
  EXPECT_EQ(estimated_audit_work(many), 4000 * estimated_audit_work(one));
  EXPECT_GT(estimated_audit_work(one), 0);
}

TEST(EstimatedWork, BeyondTheLimitIsRefused) {
  EXPECT_TRUE(check_work_limit(1e16, 1e16).ok());
  const absl::Status refused = check_work_limit(2e16, 1e16);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_NE(refused.message().find("2e+16"), std::string::npos);
}

}  // namespace
}  // namespace plumbline
