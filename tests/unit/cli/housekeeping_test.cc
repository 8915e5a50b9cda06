#include "server/serve/housekeeping.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

TEST(Retention, ReadsAgesNumbersAndBytes) {
  const auto rules = parse_retention({"verdicts=90d", "verdicts=1000", "verdicts=1GiB", "errors=36h", "golden=2KiB"});
  ASSERT_TRUE(rules.ok()) << rules.status();
  EXPECT_EQ(rules->retention.verdicts.age, absl::Hours(90 * 24));
  EXPECT_EQ(rules->retention.verdicts.count, 1000);
  EXPECT_EQ(rules->retention.verdicts.bytes, std::uint64_t{1} << 30);
  EXPECT_EQ(rules->retention.errors.age, absl::Hours(36));
  EXPECT_EQ(rules->golden.bytes, 2048u);
  EXPECT_FALSE(rules->retention.runs.any());
  EXPECT_FALSE(parse_retention({})->retention.verdicts.any()) << "without a rule everything is kept";
  for (const char* rule : {"", "verdicts", "verdicts=", "verdicts=0", "verdicts=-1d", "verdicts=inf", "runs=1GiB",
                           "x=1", "verdicts=99999999999999999999"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(parse_retention({rule}).status())) << rule;
  }
}

TEST(SoberClock, DoesNotFollowAJumpForward) {
  using Wall = SoberClock::Wall;
  using Steady = SoberClock::Steady;
  const Wall::time_point wall{std::chrono::hours(1000)};
  const Steady::time_point steady{std::chrono::hours(7)};
  const SoberClock clock(wall, steady);
  const std::chrono::minutes passed{5};
  EXPECT_EQ(clock.now(wall + passed, steady + passed), wall + passed);
  EXPECT_EQ(clock.now(wall + std::chrono::hours(9000), steady + passed), wall + passed) << "set forward";
  EXPECT_EQ(clock.now(wall - std::chrono::hours(1), steady + passed), wall - std::chrono::hours(1)) << "set back";
}

}  // namespace
}  // namespace plumbline
