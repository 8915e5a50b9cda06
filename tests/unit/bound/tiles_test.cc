#include "server/bound/replay/tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <future>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/buffer_pool.h"
#include "server/bound/bounds.h"
#include "server/bound/enclose/interval.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

constexpr std::int64_t kCount = 3 * 7001;  // No multiple of a tile.

std::vector<double> drawn(unsigned seed, double low, double high) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<double> draw(low, high);
  std::vector<double> values;
  for (std::int64_t i = 0; i < kCount; ++i) values.push_back(static_cast<float>(draw(rng)));
  return values;
}

// (w seen through a window) - lr g / sqrt(v), where g is computed by `of_gradient` and v elementwise.
struct Update {
  GraphBuilder b;
  NodeId w, raw, gradient, v, root, ratio, step, seen, updated;

  Update() {
    w = b.leaf({3, 7001}, drawn(1, -1, 1));
    raw = b.leaf({kCount}, drawn(2, -1, 1));
    v = b.leaf({kCount}, drawn(3, 1e-3, 1));
    const NodeId lr = b.leaf({}, {0.125});
    gradient = b.op(Primitive::kExp, {raw}, {kCount});
    Attributes view;
    view.view = {{kCount}, {1}, 0};
    seen = b.op(Primitive::kWindow, {w}, {kCount}, Format::kFloat32, view);
    root = b.op(Primitive::kSqrt, {v}, {kCount});
    ratio = b.op(Primitive::kDiv, {gradient, root}, {kCount});
    step = b.op(Primitive::kMul, {ratio, lr}, {kCount});
    updated = b.op(Primitive::kSub, {seen, step}, {kCount});
    b.tap("w", TapKind::kUpdate, updated, std::vector<double>(kCount, 0));
  }
};

TEST(TiledChain, TilesHoldWhatTheReplayComputes) {
  Update u;
  const Replay exact = replay(u.b.graph, leaf_values(u.b.graph), Precision::kExact);
  const auto chain = chain_before(u.b.graph, {u.updated, u.seen, u.step}, [](NodeId) { return false; });
  ASSERT_TRUE(chain);
  const Array updated = exact.value(u.updated), step = exact.value(u.step), w = exact.value(u.w);
  std::vector<double> found[3] = {std::vector<double>(kCount), std::vector<double>(kCount),
                                  std::vector<double>(kCount)};
  ASSERT_GT(count_tiles(*chain), 1);
  const Tiles tiles(u.b.graph, exact, *chain);
  for (std::int64_t index = 0; index < count_tiles(*chain); ++index) {
    const Tile tile = tiles.tile(index);
    for (std::size_t end = 0; end < 3; ++end)
      for (std::int64_t i = 0; i < tile.length; ++i)
        found[end][static_cast<std::size_t>(tile.begin + i)] = tile.ends[end].data()[i];
  }
  for (std::int64_t i = 0; i < kCount; ++i) {
    const auto at = static_cast<std::size_t>(i);
    ASSERT_EQ(found[0][at], updated.data()[i]);
    ASSERT_EQ(found[1][at], w.data()[i]);
    ASSERT_EQ(found[2][at], step.data()[i]);
  }
}

TEST(TiledChain, SomeTilesStandForAllWhereALookIsSampled) {
  GraphBuilder b;
  constexpr std::int64_t kMany = 37 << 14;
  std::vector<double> values(kMany, 1);
  values.back() = 3;
  const NodeId x = b.leaf({kMany}, values), y = b.leaf({kMany}, std::vector<double>(kMany, 2));
  const NodeId sum = b.op(Primitive::kAdd, {x, y}, {kMany}), twice = b.op(Primitive::kMul, {sum, y}, {kMany});
  b.tap("twice", TapKind::kValue, twice, std::vector<double>(kMany));
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  std::array<std::atomic<int>, 37> all{}, some{};
  std::atomic<double> last = 0;
  const Look every{{twice},
                   [&](std::int64_t index, const Tile& tile, std::span<const Array> ends) {
                     ++all.at(static_cast<std::size_t>(index));
                     ASSERT_EQ(ends.size(), 1u);
                     if (index == 36) last = ends[0].data()[tile.length - 1];
                   },
                   [] { FAIL(); }};
  const Look sampled{{sum},
                     [&](std::int64_t index, const Tile& tile, std::span<const Array> ends) {
                       ++some.at(static_cast<std::size_t>(index));
                       ASSERT_EQ(ends.size(), 3u);
                       EXPECT_EQ(ends[0].data()[0], ends[1].data()[0] + ends[2].data()[0]);
                       EXPECT_EQ(tile.begin, index << 14);
                     },
                     [] { FAIL(); },
                     /*operands=*/true,
                     /*sampled=*/true};
  look(b.graph, exact, {every, sampled});
  EXPECT_TRUE(std::ranges::all_of(all, [](const auto& times) { return times == 1; }));
  EXPECT_EQ(last, 10);
  EXPECT_EQ(std::accumulate(some.begin(), some.end(), 0), kSampledTiles);
  int gap = 0;  // No more than four in a row are left out.
  for (const auto& times : some) EXPECT_LE(gap = times == 0 ? gap + 1 : 0, 4);
}

TEST(TiledChain, EndsWhereConsumersSeeAnotherValue) {
  Update u;
  const auto stop = [&](NodeId id) { return id == u.gradient; };
  const auto chain = chain_before(u.b.graph, {u.updated}, stop);
  ASSERT_TRUE(chain);
  for (const TiledChain::Step& step : chain->steps) EXPECT_NE(step.node, u.gradient);
  EXPECT_EQ(std::ranges::count(chain->sources, u.gradient), 1);
  // As an end it is computed nevertheless.
  const auto both = chain_before(u.b.graph, {u.updated, u.gradient}, stop);
  ASSERT_TRUE(both);
  EXPECT_EQ(both->steps[both->ends[1] - both->sources.size()].node, u.gradient);
  EXPECT_EQ(std::ranges::count(both->sources, u.gradient), 1);
}

TEST(TiledChain, HasNoPlaceForSums) {
  GraphBuilder b;
  const NodeId x = b.leaf({kCount}, drawn(1, -1, 1));
  EXPECT_FALSE(chain_before(b.graph, {b.sum_all(x)}, [](NodeId) { return false; }));
}

// What is spread over rows or columns, or over both in turn, is read as each consumer spreads it.
struct Spread {
  GraphBuilder b;
  NodeId centred, doubled, scaled, result;

  Spread() {
    std::mt19937 rng(5);
    const auto positive = [&](std::int64_t n) {
      std::vector<double> values = test::normal(rng, n);
      for (double& x : values) x = static_cast<float>(std::fabs(x) + 0.5);
      return values;
    };
    const NodeId x = b.leaf({3, 7001}, drawn(2, -1, 1)), rows = b.leaf({3, 1}, positive(3));
    const NodeId columns = b.op(Primitive::kExp, {b.leaf({7001}, positive(7001))}, {7001});
    centred = b.op(Primitive::kSub, {x, rows}, {3, 7001});
    doubled = b.op(Primitive::kAdd, {centred, centred}, {3, 7001});
    Attributes view;
    view.view = {{3, 1, 7001}, {7001, 7001, 1}, 0};
    const NodeId seen = b.op(Primitive::kWindow, {doubled}, {3, 1, 7001}, Format::kFloat32, view);
    scaled = b.op(Primitive::kMul, {seen, columns}, {3, 1, 7001});
    const NodeId root = b.op(Primitive::kSqrt, {columns}, {7001});
    result = b.op(Primitive::kDiv, {scaled, root}, {3, 1, 7001});
    b.tap("result", TapKind::kValue, result, std::vector<double>(kCount, 0));
  }
};

TEST(TiledChain, SpreadsWhatItReads) {
  const Spread of;
  const Graph& graph = of.b.graph;
  const auto chain = chain_before(graph, {of.result}, [](NodeId) { return false; });
  ASSERT_TRUE(chain);
  EXPECT_EQ(chain->steps.size(), 4U);
  EXPECT_EQ(chain->sources.size(), 4U);
  EXPECT_EQ(std::ranges::count_if(chain->spread, [](const Shape& shape) { return !shape.empty(); }), 3);
  const Replay exact = replay(graph, leaf_values(graph), Precision::kExact);
  const Tiles tiles(graph, exact, *chain);
  // Node by node, by the formula.
  const Array x = exact.value(0), rows = exact.value(1), columns = exact.value(3);
  std::int64_t checked = 0;
  for (std::int64_t index = 0; index < count_tiles(*chain); ++index) {
    const Tile tile = tiles.tile(index);
    for (std::int64_t i = 0; i < tile.length; ++i, ++checked) {
      const std::int64_t at = tile.begin + i;
      const double centred = x.data()[at] - rows.data()[at / 7001], column = columns.data()[at % 7001];
      ASSERT_EQ(tile.ends[0].data()[i], (centred + centred) * column / std::sqrt(column)) << at;
    }
  }
  EXPECT_EQ(checked, kCount);
}

// A sum reads part of what a chain passes, and a consumer spreads another part: these are taken whole, and once.
TEST(Interval, TakesWholeWhatIsReadWhole) {
  Spread of;
  GraphBuilder& b = of.b;
  const NodeId sum = b.sum_all(of.doubled);
  const NodeId shifted = b.op(Primitive::kAdd, {of.result, sum}, {3, 1, 7001});
  b.tap("shifted", TapKind::kValue, shifted, std::vector<double>(kCount, 0));
  const std::vector<bool> whole = taken_whole(b.graph);
  EXPECT_TRUE(whole[of.doubled]);
  EXPECT_TRUE(whole[sum]);
  for (const NodeId inner : {of.centred, of.scaled, of.result}) EXPECT_FALSE(whole[inner]) << inner;
  const Profile profile = pytorch_cpu();
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  const Overrides none;
  const std::map<NodeId, Array> no_freedoms;  // With these, node by node.
  const std::vector<NodeId> wanted = {of.result, shifted, of.doubled, sum};
  Enclosures by_chains(b.graph, exact, wanted, &profile, none),
      by_nodes(b.graph, exact, wanted, &profile, none, &no_freedoms);
  for (const NodeId node : wanted) {
    const Array expected = by_nodes.take(node).radius.values.materialize();
    const Enclosure found = by_chains.take(node);
    ASSERT_FALSE(found.exploded);
    const Array radius = found.radius.values.materialize();
    for (std::int64_t i = 0; i < radius.count(); ++i) ASSERT_DOUBLE_EQ(radius.data()[i], expected.data()[i]) << node;
  }
}

// However many nodes read the end of a long row, it is passed few times.
TEST(Interval, TakesWholeWhatManyRead) {
  GraphBuilder b;
  NodeId row = b.leaf({kCount}, drawn(1, 0.5, 1));
  for (int i = 0; i < 60; ++i) row = b.op(Primitive::kNeg, {row}, {kCount});
  for (int i = 0; i < 50; ++i)
    b.tap("total " + std::to_string(i), TapKind::kValue, b.sum_all(b.op(Primitive::kAbs, {row}, {kCount})), {0});
  EXPECT_TRUE(taken_whole(b.graph)[row]);
}

// However many nodes in a row are each read by a sum beyond another one.
TEST(Interval, TakesLongRowsInPieces) {
  GraphBuilder b;
  NodeId x = b.leaf({kCount}, drawn(1, 0.5, 1));
  const NodeId factor = b.leaf({}, {1.001});
  for (int i = 0; i < 500; ++i) {
    x = b.op(Primitive::kMul, {x, factor}, {kCount});
    b.tap("total " + std::to_string(i), TapKind::kValue, b.sum_all(b.op(Primitive::kAbs, {x}, {kCount})), {0});
  }
  const std::vector<bool> whole = taken_whole(b.graph);
  std::size_t row = 0, longest = 0;
  for (NodeId id = 0; id < b.graph.nodes.size(); ++id) {
    if (b.graph.nodes[id].primitive != Primitive::kMul) continue;
    row = whole[id] ? 0 : row + 1;
    longest = std::max(longest, row);
  }
  EXPECT_LT(longest, 100U);
  EXPECT_GT(longest, 10U);
}

// The same radii as node by node, anchors and leaves included.
TEST(TiledChain, IsEnclosedAsItsNodesAre) {
  Update u;
  const Graph& graph = u.b.graph;
  const Profile profile = pytorch_cpu();
  const Array observed = replay(graph, leaf_values(graph), Precision::kExact).value(u.gradient);
  for (const Overrides& anchors : {Overrides{}, Overrides{{u.gradient, observed}}}) {
    const Replay exact = replay(graph, leaf_values(graph), Precision::kExact, anchors);
    const std::map<NodeId, Array> no_freedoms;  // With these, node by node.
    const Enclosure whole = Enclosures(graph, exact, {u.updated}, &profile, anchors, &no_freedoms).take(u.updated);
    ASSERT_TRUE(whole.radius);
    const auto chain = chain_before(graph, {u.updated}, [&](NodeId id) { return anchors.count(id) != 0; });
    ASSERT_TRUE(chain);
    Enclosures sources(graph, exact, enclosed_sources(graph, *chain, anchors), &profile, anchors);
    std::vector<double> radii(kCount, -1);
    EnclosedChain enclosed(*chain, &sources);
    for (std::int64_t index = 0; index < count_tiles(*chain); ++index) {
      const Tile tile = enclosed.tile(index);
      for (std::int64_t i = 0; i < tile.length; ++i)
        radii[static_cast<std::size_t>(tile.begin + i)] = tile.radii[0].values.data()[i];
    }
    EXPECT_FALSE(enclosed.exploded()[chain->ends[0]]);
    const Array expected = whole.radius.values.materialize();
    for (std::int64_t i = 0; i < kCount; ++i)
      ASSERT_DOUBLE_EQ(radii[static_cast<std::size_t>(i)], expected.data()[i]) << i;
  }
}

// What an end hands on from a node that is not elementwise is a source, and all there is.
TEST(TiledChain, EnclosesSourcesWithoutASingleStep) {
  GraphBuilder b;
  const NodeId x = b.leaf({3, 7001}, drawn(1, -1, 1)), p = b.op(Primitive::kSoftmax, {x}, {3, 7001});
  Attributes view;
  view.view = {{kCount}, {1}, 0};
  const NodeId seen = b.op(Primitive::kWindow, {p}, {kCount}, Format::kFloat32, view);
  b.tap("p", TapKind::kGradient, seen, std::vector<double>(kCount, 0));
  const Profile profile = pytorch_cpu();
  const Overrides none;
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  const auto chain = chain_before(b.graph, {seen}, [](NodeId) { return false; });
  ASSERT_TRUE(chain);
  ASSERT_TRUE(chain->steps.empty());
  const Array expected = Enclosures(b.graph, exact, {p}, &profile, none).take(p).radius.values.materialize();
  Enclosures sources(b.graph, exact, enclosed_sources(b.graph, *chain, none), &profile, none);
  EnclosedChain enclosed(*chain, &sources);
  for (std::int64_t index = 0; index < count_tiles(*chain); ++index) {
    const Tile tile = enclosed.tile(index);
    ASSERT_EQ(tile.radii.size(), 1U);
    for (std::int64_t i = 0; i < tile.length; ++i)
      ASSERT_EQ(tile.radii[0].values.data()[i], expected.data()[tile.begin + i]);
  }
  EXPECT_FALSE(enclosed.exploded()[chain->ends[0]]);
}

// One element without a finite ball gives the whole away, in whichever tile it lies.
TEST(TiledChain, ExplodesAsAWhole) {
  GraphBuilder b;
  std::vector<double> values = drawn(1, 0.5, 1);
  values[kCount - 5] = 1e-30;
  const NodeId x = b.leaf({kCount}, values), y = b.leaf({kCount}, drawn(2, 0.5, 1));
  const NodeId noisy = b.op(Primitive::kExp, {y}, {kCount});
  const NodeId difference = b.op(Primitive::kSub, {noisy, noisy}, {kCount});
  const NodeId divisor = b.op(Primitive::kAdd, {x, difference}, {kCount});
  const NodeId quotient = b.op(Primitive::kDiv, {x, divisor}, {kCount});
  b.tap("q", TapKind::kUpdate, quotient, std::vector<double>(kCount, 0));
  const Profile profile = pytorch_cpu();
  const Overrides none;
  const Replay exact = replay(b.graph, leaf_values(b.graph), Precision::kExact);
  EXPECT_TRUE(Enclosures(b.graph, exact, {quotient}, &profile, none).take(quotient).exploded);
  const auto chain = chain_before(b.graph, {quotient}, [](NodeId) { return false; });
  Enclosures sources(b.graph, exact, enclosed_sources(b.graph, *chain, none), &profile, none);
  EnclosedChain enclosed(*chain, &sources);
  for (std::int64_t index = 0; index < count_tiles(*chain); ++index) enclosed.tile(index);
  EXPECT_TRUE(enclosed.exploded()[chain->ends[0]]);
}

TEST(LeafValue, IsReadWholeAndInParts) {
  GraphBuilder b;
  const std::vector<double> values = drawn(7, -1, 1);
  b.leaf({3, 7001}, values, Format::kFloat16);
  const LeafValue leaf = leaf_values(b.graph)[0], flat = leaf.reshape({kCount});
  ASSERT_TRUE(leaf.packed());
  const Array whole = leaf, part = flat.part(7000, 40);
  EXPECT_EQ(whole.shape(), (Shape{3, 7001}));
  for (std::int64_t i = 0; i < kCount; ++i)
    ASSERT_EQ(whole.data()[i], round_to(Format::kFloat16, values[static_cast<std::size_t>(i)]));
  for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(part.data()[i], whole.data()[7000 + i]);
  EXPECT_TRUE(leaf.same_bytes(flat));
  EXPECT_FALSE(leaf.same_bytes(whole));
}

// What lay idle makes room: passes that need other sizes do not add up.
TEST(BufferPool, IdleBuffersMakeRoomForOtherSizes) {
  constexpr std::int64_t kMebi = 1 << 17;  // Doubles.
  const std::int64_t before = buffer_reserve_bytes();
  for (std::int64_t size = 4; size < 12; ++size) {
    std::vector<Array> held;
    for (std::int64_t used = 0; used < 48; used += size) held.push_back(Array::uninitialized({size * kMebi}));
  }
  EXPECT_LE(buffer_reserve_bytes() - before, std::int64_t{96} << 20);
}

// Small ones are cut from what a large one left, and it finds all of that again: the same memory, without a new page.
TEST(BufferPool, PiecesOfALargeBufferBecomeOneAgain) {
  constexpr std::int64_t kMebi = 1 << 17;  // Doubles.
  release_unneeded_buffers();
  release_unneeded_buffers();
  [[maybe_unused]] const double* place = nullptr;
  {
    const Array large = Array::uninitialized({64 * kMebi});
    place = large.data();
  }
  for (int round = 0; round < 3; ++round) {
    std::vector<Array> pieces;
    for (std::int64_t size = 1; size <= 10; ++size) pieces.push_back(Array::uninitialized({size * kMebi}));
    for (const std::size_t i : {4, 0, 9, 2, 7, 1, 8, 3, 6, 5}) pieces[i] = Array();
    const Array large = Array::uninitialized({64 * kMebi});
    if (buffers_are_pages()) {
      EXPECT_EQ(large.data(), place);
    }
    EXPECT_LE(buffer_reserve_bytes(), std::int64_t{9} << 20);
  }
}

// A large one is made of the pages that several smaller ones left, which have content where new ones would be clear.
TEST(BufferPool, PagesOfScatteredBuffersBecomeOne) {
  if (!buffers_are_pages()) return;
  constexpr std::int64_t kMebi = 1 << 17, kPage = 512;  // Doubles.
  release_unneeded_buffers();
  release_unneeded_buffers();
  std::vector<Array> buffers;
  for (int i = 0; i < 12; ++i) {
    buffers.push_back(Array::uninitialized({5 * kMebi}));
    std::fill_n(buffers.back().address(), buffers.back().count(), i + 1.0);
  }
  for (std::size_t i = 0; i < 12; i += 2) buffers[i] = Array();
  const std::int64_t left = buffer_reserve_bytes();
  const Array large = Array::uninitialized({12 * kMebi});
  EXPECT_LE(buffer_reserve_bytes(), left - (std::int64_t{12} << 20));
  for (std::int64_t i = 0; i < large.count(); i += kPage) ASSERT_NE(large.data()[i], 0) << i;
  std::fill_n(large.address(), large.count(), -1.0);
  for (std::size_t i = 1; i < 12; i += 2) {
    for (std::int64_t k = 0; k < buffers[i].count(); ++k)
      ASSERT_EQ(buffers[i].data()[k], static_cast<double>(i + 1)) << i << ", " << k;
  }
}

TEST(BufferPool, BuffersOfSeveralThreadsNeverOverlap) {
  const auto use = [](std::uint64_t seed) {
    std::mt19937_64 draw(seed);
    std::vector<std::pair<Array, double>> held;
    const auto is_whole = [](const std::pair<Array, double>& one) {
      const double* const data = one.first.data();
      return std::all_of(data, data + one.first.count(), [&](double x) { return x == one.second; });
    };
    bool whole = true;
    for (int i = 0; i < 300; ++i) {
      if (held.size() == 8 || (!held.empty() && draw() % 2 == 0)) {
        std::swap(held[draw() % held.size()], held.back());
        whole = whole && is_whole(held.back());
        held.pop_back();
        continue;
      }
      const auto count = static_cast<std::int64_t>(
          std::ldexp(1 + static_cast<double>(draw() % 1000) / 1000, 9 + static_cast<int>(draw() % 11)));
      held.emplace_back(Array::uninitialized({count}), static_cast<double>(draw() % (1 << 30)));
      std::fill_n(held.back().first.address(), count, held.back().second);
    }
    return whole && std::all_of(held.begin(), held.end(), is_whole);
  };
  std::vector<std::future<bool>> threads;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) threads.push_back(std::async(std::launch::async, use, seed));
  for (std::future<bool>& thread : threads) EXPECT_TRUE(thread.get());
}

TEST(BufferPool, FreesWhatWasNotNeededSinceTheLastRelease) {
  constexpr std::int64_t kMebi = 1 << 17;  // Doubles.
  release_unneeded_buffers();
  release_unneeded_buffers();
  const std::int64_t before = buffer_reserve_bytes();
  { const Array large = Array::uninitialized({64 * kMebi}), small = Array::uninitialized({8 * kMebi}); }
  release_unneeded_buffers();  // It was needed.
  EXPECT_GE(buffer_reserve_bytes() - before, std::int64_t{64} << 20);
  { const Array small = Array::uninitialized({8 * kMebi}); }
  release_unneeded_buffers();
  EXPECT_LE(buffer_reserve_bytes() - before, std::int64_t{9} << 20);
  release_unneeded_buffers();
  EXPECT_LE(buffer_reserve_bytes(), before);
}

TEST(BufferPool, CutsWhatIsNeededFromAnIdleBuffer) {
  if (!buffers_are_pages()) return;
  constexpr std::int64_t kMebi = 1 << 17;  // Doubles.
  std::vector<Array> held;
  held.push_back(Array::uninitialized({256 * kMebi}));
  const double *const first = held[0].data(), *const last = first + 256 * kMebi;
  held.clear();
  for (int i = 0; i < 6; ++i) {
    held.push_back(Array::uninitialized({40 * kMebi}));
    EXPECT_TRUE(held.back().data() >= first && held.back().data() < last) << i;
    std::fill_n(held.back().data(), held.back().count(), i);
  }
  for (int i = 0; i < 6; ++i) EXPECT_EQ(held[static_cast<std::size_t>(i)].data()[40 * kMebi - 1], i);
}

}  // namespace
}  // namespace plumbline
