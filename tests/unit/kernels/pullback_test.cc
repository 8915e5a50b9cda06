// A chain's cotangents and charges in one pass against the same node by node.
#include <gtest/gtest.h>

#include "tests/unit/kernels/pullback_cases.h"

namespace plumbline {
namespace {

TEST(Pullback, IsThatOfItsNodes) {
  Profile flushing = ieee();
  flushing.flush_subnormals = true;
  for (const testing::Case& c : testing::elementwise_cases(31))
    for (const Profile& profile : {ieee(), flushing}) {
      SCOPED_TRACE(c.name);
      const testing::PulledChain chain(c, profile, 5);
      const testing::Pulled expected = testing::pulled_by_nodes(chain);
      testing::expect_near(testing::pulled_in_one_pass(chain, 1), expected);
      testing::expect_near(testing::pulled_in_one_pass(chain, 3), expected);
    }
}

}  // namespace
}  // namespace plumbline
