#include "server/bound/findings/invariants.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

Bytes bytes(std::vector<std::uint8_t> content) {
  return std::make_shared<const std::vector<std::uint8_t>>(std::move(content));
}

Trace step(std::vector<std::uint8_t> before, std::vector<std::uint8_t> after) {
  Trace trace;
  trace.leaves.push_back({1, Format::kUInt8, 2, LeafRole::kParameter, "param:w", 1});
  trace.payloads[1] = bytes(std::move(before));
  TraceTap tap;
  tap.name = "update:w";
  tap.kind = TapKind::kUpdate;
  tap.terms.push_back({{2, Format::kUInt8, {{2}, {1}, 0}}, 1, 2});
  tap.terms.push_back({{1, Format::kUInt8, {{2}, {1}, 0}}, -1, 0});
  trace.taps.push_back(tap);
  trace.payloads[2] = bytes(std::move(after));
  return trace;
}

TEST(Invariants, AWeightThatNobodyWroteIsSeen) {
  const auto digests = digests_after(step({1, 2}, {3, 4}));
  EXPECT_TRUE(changed_leaves(step({3, 4}, {5, 6}), digests).empty());
  EXPECT_EQ(changed_leaves(step({3, 5}, {5, 6}), digests), std::vector<std::string>{"param:w"});
}

TEST(Invariants, ATensorThatFillsPartOfItsStorageIsNotCompared) {
  const auto digests = digests_after(step({1, 2}, {3, 4}));
  EXPECT_TRUE(changed_leaves(step({3, 4, 9}, {5, 6}), digests).empty());
}

}  // namespace
}  // namespace plumbline
