// Tensors that ranks hold in parts: put together by the join, lowered and evaluated.
#include <gtest/gtest.h>

#include <algorithm>

#include "server/ingest/join.h"
#include "tests/unit/lower/trace_builder.h"

namespace plumbline {
namespace {

using testing::dense;
using testing::TraceBuilder;
using Values = std::vector<double>;

constexpr Format kFormat = Format::kFloat32;

// What one rank holds of "param:w": its storage, and the box as a window on it.
struct Shard {
  Values storage;
  TracePart part;
};

// A rank that doubles its part; `updates`: and says so.
std::shared_ptr<const Trace> rank_of(const Shard& shard, int rank, bool updates = true) {
  TraceBuilder b;
  const auto held = static_cast<std::int64_t>(shard.storage.size());
  TensorRef w = b.leaf({held}, shard.storage, kFormat, LeafRole::kParameter, "param:w");
  b.trace.leaves.back().part = shard.part;
  w.view = shard.part.view;
  if (updates) {
    Values doubled(static_cast<std::size_t>(count(w.view.sizes)));
    const View& view = w.view;
    for (std::size_t i = 0; i < doubled.size(); ++i) {
      std::int64_t rest = static_cast<std::int64_t>(i), at = view.offset;
      for (std::size_t d = view.sizes.size(); d-- > 0; rest /= view.sizes[d])
        at += rest % view.sizes[d] * view.strides[d];
      doubled[i] = 2 * shard.storage[static_cast<std::size_t>(at)];
    }
    const TensorRef twice = b.op1("aten::mul.Scalar", {{"self", w}, {"other", 2.0}}, view.sizes, kFormat);
    b.tap("update:w", twice);
    TraceTap& tap = b.trace.taps.back();
    tap.kind = TapKind::kUpdate;
    tap.terms = {{twice, 1, doubled.empty() ? 0 : b.payload(kFormat, doubled)}, {w, -1, 0}};
    tap.part = TracePart{shard.part.whole, shard.part.start, {view.sizes, {}, 0}};
  }
  b.trace.identity = {"p", "j", "r", rank, 0};
  b.trace.digest = "digest " + std::to_string(rank);
  return std::make_shared<const Trace>(b.trace);
}

std::shared_ptr<const Trace> joined(const std::vector<std::shared_ptr<const Trace>>& ranks) {
  const Joined result = join_ranks(ranks, false);
  EXPECT_NE(result.trace, nullptr) << result.fault;
  return result.trace;
}

std::shared_ptr<const Trace> joined(const std::vector<Shard>& shards) {
  std::vector<std::shared_ptr<const Trace>> ranks;
  for (std::size_t r = 0; r < shards.size(); ++r) ranks.push_back(rank_of(shards[r], static_cast<int>(r)));
  return joined(ranks);
}

// The trace has the whole alone: as leaf, and as tap with both of its terms, from what the ranks computed.
void expect_whole(const Trace& trace, const Shape& shape, const Values& values) {
  ASSERT_EQ(trace.leaves.size(), 1u);
  EXPECT_EQ(trace.leaves[0].name, "param:w");
  EXPECT_FALSE(trace.leaves[0].part);
  ASSERT_EQ(trace.taps.size(), 1u);
  EXPECT_EQ(trace.taps[0].name, "update:w");
  const Graph graph = lower(trace);
  EXPECT_EQ(graph.coverage.opaque, 0u);
  ASSERT_EQ(graph.taps.size(), 1u);
  EXPECT_EQ(graph.taps[0].shape, shape);
  const std::vector<Array> nodes = testing::evaluate(graph);
  for (const GraphTap::Term& term : graph.taps[0].terms) {
    Values expected = values, observed(values.size());
    for (double& value : expected) value *= term.weight > 0 ? 2 : 1;
    EXPECT_EQ(testing::elements(nodes[term.node]), expected);
    decode(term.format, term.observed->data(), static_cast<std::int64_t>(observed.size()), observed.data());
    EXPECT_EQ(observed, expected);
  }
}

TEST(Shards, RowsWithPaddingAndARankWithNothing) {
  const View rows = dense({2, 2});
  expect_whole(*joined(std::vector<Shard>{{{1, 2, 3, 4}, {{3, 2}, {0, 0}, rows}},
                                          {{5, 6, 0, 0}, {{3, 2}, {2, 0}, dense({1, 2})}},
                                          {{0, 0, 0, 0}, {{3, 2}, {3, 0}, dense({0, 2})}}}),
               {3, 2}, {1, 2, 3, 4, 5, 6});
}

TEST(Shards, ColumnsAndReplicas) {
  const TracePart left{{2, 3}, {0, 0}, dense({2, 2})}, right{{2, 3}, {0, 2}, dense({2, 1})};
  expect_whole(
      *joined(std::vector<Shard>{{{1, 2, 4, 5}, left}, {{3, 6}, right}, {{1, 2, 4, 5}, left}, {{3, 6}, right}}), {2, 3},
      {1, 2, 3, 4, 5, 6});
  // A part that lies transposed in its storage.
  const TracePart transposed{{2, 3}, {0, 0}, {{2, 2}, {1, 2}, 0}};
  expect_whole(*joined(std::vector<Shard>{{{1, 4, 2, 5}, transposed}, {{3, 6}, right}}), {2, 3}, {1, 2, 3, 4, 5, 6});
}

// As classic FSDP cuts a flattened parameter: within a row, padded to shares of one size.
TEST(Shards, RangesOfTheFlattenedWhole) {
  const auto range = [](std::int64_t start, std::int64_t elements) {
    return TracePart{{2, 3}, {start}, {{elements}, {1}, 0}};
  };
  const auto whole = joined({{{1, 2, 3, 4}, range(0, 4)}, {{5, 6}, range(4, 2)}});
  ASSERT_EQ(whole->taps.size(), 1u);
  EXPECT_EQ(whole->taps[0].name, "update:w");
  const Graph graph = lower(*whole);
  EXPECT_EQ(graph.coverage.opaque, 0u);
  EXPECT_EQ(graph.taps[0].shape, (Shape{2, 3}));
  EXPECT_EQ(testing::tap_values(graph, "update:w"), (Values{2, 4, 6, 8, 10, 12}));
}

TEST(Shards, ARankThatHoldsNothingMayBeTheFirst) {
  const auto rows = [](std::int64_t start, std::int64_t n) {
    return TracePart{{1, 2}, {start, 0}, {{n, 2}, {2, 1}, 0}};
  };
  const auto whole = joined({{{}, rows(0, 0)}, {{1, 2}, rows(0, 1)}});
  const auto named = std::ranges::find_if(whole->leaves, [](const TraceLeaf& leaf) { return leaf.name == "param:w"; });
  ASSERT_NE(named, whole->leaves.end());
  EXPECT_EQ(named->count, 2);
}

TEST(Shards, WhatDoesNotMakeUpAWholeStaysApart) {
  const TracePart first{{4}, {0}, dense({2})}, second{{4}, {2}, dense({2})};
  const auto names = [](const std::vector<Shard>& shards) {
    std::vector<std::string> found;
    const auto trace = joined(shards);
    for (const TraceLeaf& leaf : trace->leaves) found.push_back(leaf.name);
    for (const TraceTap& tap : trace->taps) found.push_back(tap.name);
    return found;
  };
  const auto apart = [](const std::string& box) {
    return std::vector<std::string>{"param:w", "rank1/param:w", "update:w[0:2]", "rank1/update:w[" + box + "]"};
  };
  EXPECT_EQ(names({{{1, 2}, first}, {{3, 4}, {{4}, {1}, dense({2})}}}), apart("1:3"));  // They overlap.
  EXPECT_EQ(names({{{1, 2}, first}, {{3}, {{4}, {2}, dense({1})}}}), apart("2:3"));     // Something is missing.
  // It is a part of another whole.
  EXPECT_EQ(names({{{1, 2}, first}, {{3, 4}, {{5}, {2}, dense({2})}}}), apart("2:4"));
  const TracePart all{{2}, {0}, dense({2})};
  EXPECT_EQ(names({{{1, 2}, all}, {{1, 3}, all}}), apart("0:2"));          // Replicas differ.
  EXPECT_EQ(names({{{1, 2}, first}, {{3, 4, 7}, second}}), apart("2:4"));  // No padding lies beside the part.
}

TEST(Shards, APartThatWasLeftAsItWasIsNoUpdate) {
  const Shard first{{1, 2}, {{4}, {0}, dense({2})}}, second{{3, 4}, {{4}, {2}, dense({2})}};
  for (const bool first_updates : {true, false}) {
    const auto trace = joined({rank_of(first, 0, first_updates), rank_of(second, 1, !first_updates)});
    ASSERT_EQ(trace->taps.size(), 1u);
    EXPECT_EQ(trace->taps[0].name, "update:w");
    EXPECT_EQ(testing::tap_values(lower(*trace), "update:w"),
              first_updates ? (Values{2, 4, 3, 4}) : (Values{1, 2, 6, 8}));
  }
}

}  // namespace
}  // namespace plumbline
