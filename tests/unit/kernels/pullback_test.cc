// A chain's cotangents and charges in one pass against the same node by node.
#include <gtest/gtest.h>

#include "tests/unit/kernels/pullback_cases.h"

namespace plumbline {
namespace {

TEST(Pullback, IsThatOfItsNodes) {
  testing::for_each_chain(31, [](const testing::PulledChain& chain) {
    const testing::Pulled expected = testing::pulled_by_nodes(chain);
    testing::expect_near(testing::pulled_in_one_pass(chain, 1), expected);
    testing::expect_near(testing::pulled_in_one_pass(chain, 3), expected);
  });
}

}  // namespace
}  // namespace plumbline
