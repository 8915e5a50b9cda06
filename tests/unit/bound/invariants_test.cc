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
  const auto digests = digests_after(step({1, 2}, {3, 4}), {}).left;
  EXPECT_TRUE(changed_leaves(step({3, 4}, {5, 6}), digests).empty());
  EXPECT_EQ(changed_leaves(step({3, 5}, {5, 6}), digests), std::vector<std::string>{"param:w"});
}

// Two by two, its columns lie together. Where the leaf has its elements row by row, they are copied to where it lies;
// where it has them as they lie, it is read so.
Trace transposed_step(std::vector<std::uint8_t> before, std::vector<std::uint8_t> after, bool row_by_row) {
  Trace trace = step(std::move(before), std::move(after));
  trace.leaves[0].count = 4;
  trace.taps[0].terms[0].tensor.view = {{2, 2}, {1, 2}, 0};
  trace.taps[0].terms[1].tensor.view = {{2, 2}, {row_by_row ? 2 : 1, row_by_row ? 1 : 2}, 0};
  TraceOp op;
  op.arguments.push_back({"src", trace.taps[0].terms[1].tensor});
  trace.ops.push_back(op);
  return trace;
}

TEST(Invariants, ATensorInColumnsIsComparedElementByElement) {
  const auto digests = digests_after(transposed_step({1, 2, 3, 4}, {5, 6, 7, 8}, true), {}).left;
  EXPECT_TRUE(changed_leaves(transposed_step({5, 6, 7, 8}, {0, 0, 0, 0}, true), digests).empty());
  EXPECT_EQ(changed_leaves(transposed_step({5, 7, 6, 8}, {0, 0, 0, 0}, true), digests),
            std::vector<std::string>{"param:w"});
  EXPECT_TRUE(changed_leaves(transposed_step({5, 7, 6, 8}, {0, 0, 0, 0}, false), digests).empty()) << "as it lies";
}

TEST(Invariants, ATensorThatFillsPartOfItsStorageIsNotCompared) {
  const auto digests = digests_after(step({1, 2}, {3, 4}), {}).left;
  EXPECT_TRUE(changed_leaves(step({3, 4, 9}, {5, 6}), digests).empty());
}

// A step that only reads its buffer.
Trace reading(std::vector<std::uint8_t> content) {
  Trace trace;
  trace.leaves.push_back({1, Format::kUInt8, 2, LeafRole::kBuffer, "buffer:f", 1});
  trace.payloads[1] = bytes(std::move(content));
  TraceOp op;
  op.arguments.push_back({"self", TensorRef{1, Format::kUInt8, {{2}, {1}, 0}}});
  trace.ops.push_back(op);
  return trace;
}

TEST(Invariants, ABufferThatIsOnlyReadIsSeenOnceItWasKept) {
  const DigestsAfter first = digests_after(reading({1, 2}), {});
  EXPECT_TRUE(changed_leaves(reading({1, 3}), first.left).empty()) << "what is written between all steps";
  const DigestsAfter second = digests_after(reading({1, 2}), first.untouched);
  EXPECT_EQ(changed_leaves(reading({1, 3}), second.left), std::vector<std::string>{"buffer:f"});
  EXPECT_TRUE(digests_after(reading({1, 3}), first.untouched).left.empty());
}

TEST(Invariants, WhatAStepWritesIsNotKept) {
  Trace written = reading({1, 2});
  TraceOp op;
  op.results.push_back({{2, Format::kUInt8, {{2}, {1}, 0}}, 2, 1, "self", 0});
  written.ops.push_back(op);
  EXPECT_TRUE(digests_after(written, {}).untouched.empty());
  Trace unread = reading({1, 2});
  unread.ops.clear();
  EXPECT_TRUE(digests_after(unread, {}).untouched.empty());
  unread.leaves[0].role = LeafRole::kState;  // Named by the user, or an optimizer's.
  EXPECT_FALSE(digests_after(unread, {}).untouched.empty());
  Trace partial = reading({1, 2});
  partial.scope.partial = true;
  EXPECT_TRUE(digests_after(partial, {}).untouched.empty());
}

TEST(Invariants, ABufferThatAStepWrites) {
  Trace written = reading({1, 2});
  TraceTap tap;
  tap.name = "buffer:f";
  tap.kind = TapKind::kState;
  tap.terms.push_back({{2, Format::kUInt8, {{2}, {1}, 0}}, 1, 2});
  written.taps.push_back(tap);
  written.payloads[2] = bytes({5, 6});
  const Digests left = digests_after(written, {}).left;
  EXPECT_TRUE(changed_leaves(reading({5, 6}), left).empty());
  EXPECT_EQ(changed_leaves(reading({1, 2}), left), std::vector<std::string>{"buffer:f"});
}

}  // namespace
}  // namespace plumbline
