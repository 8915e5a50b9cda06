// Pairs of small programs whose difference is known: the suspect must be it.
#include "server/bound/findings/localize.h"

#include <gtest/gtest.h>

#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;

Suspicion suspect(const GraphBuilder& target, NodeId target_tap, const GraphBuilder& reference, NodeId reference_tap) {
  auto replayed = [](const GraphBuilder& g) { return replay(g.graph, leaf_values(g.graph), Precision::kExact); };
  GraphBuilder t = target, r = reference;
  t.tap("y", TapKind::kValue, target_tap,
        std::vector<double>(static_cast<std::size_t>(count(t.graph.nodes[target_tap].shape))));
  r.tap("y", TapKind::kValue, reference_tap,
        std::vector<double>(static_cast<std::size_t>(count(r.graph.nodes[reference_tap].shape))));
  const Replay target_exact = replayed(t), reference_exact = replayed(r);
  return localize({t.graph, target_exact, {target_tap}}, {r.graph, reference_exact, {reference_tap}});
}

const std::vector<double> kX{0.5, -1.25, 2, 0.75, 1.5, -0.25};

NodeId constant(GraphBuilder& g, double value) {
  Attributes attributes;
  attributes.scalar = value;
  return g.op(Primitive::kConstant, {}, {}, Format::kFloat32, attributes);
}

// The target adds two of the reference's three terms, in another order: the third term has no counterpart.
TEST(Localize, ATermThatASumLacksIsSuspectedInTheReference) {
  auto program = [](const std::vector<int>& order, std::vector<NodeId>* terms) {
    GraphBuilder g;
    NodeId sum = g.leaf({2, 3}, kX);
    for (int i : order) {
      const NodeId x = g.leaf({2, 3}, {1.0 + i, 2, 3, 4, 5, 6.5 + i});
      terms->push_back(g.op(Primitive::kCos, {x}, {2, 3}));
      sum = g.op(Primitive::kAdd, {sum, terms->back()}, {2, 3});
    }
    g.op(Primitive::kSin, {g.op(Primitive::kNeg, {sum}, {2, 3})}, {2, 3});
    return g;
  };
  auto last = [](const GraphBuilder& g) { return static_cast<NodeId>(g.graph.nodes.size() - 1); };
  std::vector<NodeId> target_terms, reference_terms;
  const GraphBuilder target = program({1, 0}, &target_terms), reference = program({0, 1, 2}, &reference_terms);
  const Suspicion found = suspect(target, last(target), reference, last(reference));
  EXPECT_TRUE(found.in_reference) << found.detail;
  EXPECT_EQ(found.node, reference_terms[2]);
}

// tanh(x / 4) against tanh(x): the division has no line in the target.
TEST(Localize, WhatTheTargetLacksIsSuspectedInTheReference) {
  GraphBuilder target, reference;
  const NodeId target_tap = target.op(Primitive::kTanh, {target.leaf({2, 3}, kX)}, {2, 3});
  const NodeId scaled = reference.op(Primitive::kDiv, {reference.leaf({2, 3}, kX), constant(reference, 4)}, {2, 3});
  const NodeId reference_tap = reference.op(Primitive::kTanh, {scaled}, {2, 3});
  // One operation's name on both sides, as a framework gives it.
  target.graph.origins[target.graph.nodes[target_tap].origin].op = "tanh";
  reference.graph.origins[reference.graph.nodes[reference_tap].origin].op = "tanh";
  const Suspicion found = suspect(target, target_tap, reference, reference_tap);
  EXPECT_TRUE(found.in_reference);
  EXPECT_EQ(found.node, scaled);

  const Suspicion other_way = suspect(reference, reference_tap, target, target_tap);
  EXPECT_FALSE(other_way.in_reference);
  EXPECT_EQ(other_way.node, scaled);
  EXPECT_TRUE(other_way.normalisation);
}

// z / (x + y) against z / (x - y), the division within an operation as elimination by a pivot is: the programs part at
// the sum that this operation was given. A division that the program wrote is suspected itself.
TEST(Localize, WhatAnOperationDividesByWithinItselfIsNotSuspected) {
  struct Built {
    GraphBuilder graph;
    NodeId sum = 0, quotient = 0;
  };
  const auto program = [](Primitive joins, bool within) {
    Built built;
    GraphBuilder& g = built.graph;
    built.sum = g.op(joins, {g.leaf({2, 3}, kX), g.leaf({2, 3}, {3, 4, 5, 6, 7, 8})}, {2, 3});
    const NodeId pivot = g.sum_all(built.sum);
    built.quotient = g.op(Primitive::kDiv, {g.leaf({2, 3}, {1, 2, 3, 4, 5, 6}), pivot}, {2, 3});
    if (within) g.graph.nodes[pivot].origin = g.graph.nodes[built.quotient].origin;
    return built;
  };
  for (const bool within : {true, false}) {
    const Built target = program(Primitive::kAdd, within), reference = program(Primitive::kSub, within);
    const Suspicion found = suspect(target.graph, target.quotient, reference.graph, reference.quotient);
    EXPECT_EQ(found.node, within ? target.sum : target.quotient) << found.detail;
    EXPECT_EQ(found.normalisation, !within);
  }
}

// exp(x)^2 written as exp(2x) comes out right; the sine behind it does not.
TEST(Localize, AnotherWayToTheSameValueIsInnocent) {
  GraphBuilder target, reference;
  const NodeId x = target.leaf({2, 3}, kX);
  const NodeId doubled = target.op(Primitive::kExp, {target.op(Primitive::kAdd, {x, x}, {2, 3})}, {2, 3});
  const NodeId sine = target.op(Primitive::kSin, {doubled}, {2, 3});
  const NodeId power = reference.op(Primitive::kExp, {reference.leaf({2, 3}, kX)}, {2, 3});
  const NodeId squared = reference.op(Primitive::kMul, {power, power}, {2, 3});
  const Suspicion found = suspect(target, sine, reference, reference.op(Primitive::kCos, {squared}, {2, 3}));
  EXPECT_FALSE(found.in_reference);
  EXPECT_EQ(found.node, sine);
}

// A relative error of 1e-9 is seen where it is made.
TEST(Localize, SeesASmallChangeOfAConstant) {
  auto program = [](double eps, NodeId* root) {
    GraphBuilder g;
    const NodeId sum = g.op(Primitive::kAdd, {g.leaf({2, 3}, {1, 2, 3, 4, 5, 6}), constant(g, eps)}, {2, 3});
    *root = g.op(Primitive::kSqrt, {sum}, {2, 3});
    return g;
  };
  NodeId target_root = 0, reference_root = 0;
  const GraphBuilder target = program(1e-5 + 1e-8, &target_root), reference = program(1e-5, &reference_root);
  const Suspicion found = suspect(target, target_root, reference, reference_root);
  EXPECT_LT(found.node, target_root);
  EXPECT_NE(target.graph.nodes[found.node].primitive, Primitive::kLeaf);
}

// The head dimension read before the time dimension: the same rows in another order.
TEST(Localize, RowsInAnotherOrderAreSuspected) {
  auto program = [](bool exchanged, NodeId* moved) {
    GraphBuilder g;
    const NodeId x = g.leaf({2, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
    const NodeId y = g.op(Primitive::kExp, {g.op(Primitive::kNeg, {x}, {2, 2, 3})}, {2, 2, 3});
    Attributes attributes;
    attributes.view = exchanged ? View{{2, 2, 3}, {3, 6, 1}, 0} : View{{2, 2, 3}, {6, 3, 1}, 0};
    *moved = g.op(Primitive::kWindow, {y}, {2, 2, 3}, Format::kFloat32, attributes);
    const NodeId weight = g.leaf({2, 2, 3}, {1, -1, 2, 0.5, 3, 1, 2, -2, 1, 4, 0.25, 1});
    g.op(Primitive::kSin, {g.op(Primitive::kMul, {weight, *moved}, {2, 2, 3})}, {2, 2, 3});
    return g;
  };
  NodeId target_moved = 0, reference_moved = 0;
  const GraphBuilder target = program(true, &target_moved), reference = program(false, &reference_moved);
  const NodeId tap = static_cast<NodeId>(target.graph.nodes.size() - 1);
  const Suspicion found = suspect(target, tap, reference, tap);
  EXPECT_EQ(found.node, target_moved);
}

// The reference draws once more than the target: what the target goes on with is not at fault.
TEST(Localize, ADrawThatTheTargetLacksIsSuspectedInTheReference) {
  auto program = [](int draws, NodeId* last_draw) {
    GraphBuilder g;
    NodeId h = g.leaf({2, 3}, kX);
    for (int i = 0; i < draws; ++i) {
      *last_draw = g.leaf({2, 3}, {1.5 + i, 0.75, 1.25, 0.5, 1, 2.0 + i}, Format::kFloat32, "", LeafRole::kRandom);
      g.graph.draws.push_back({*last_draw, 0, "normal", {0, 1}, {}, {}});
      h = g.op(Primitive::kMul, {h, *last_draw}, {2, 3});
    }
    g.op(Primitive::kSin, {h}, {2, 3});
    g.graph.origins[g.graph.nodes.back().origin].op = "sin";
    return g;
  };
  NodeId target_draw = 0, reference_draw = 0;
  const GraphBuilder target = program(1, &target_draw), reference = program(2, &reference_draw);
  auto last = [](const GraphBuilder& g) { return static_cast<NodeId>(g.graph.nodes.size() - 1); };
  const Suspicion found = suspect(target, last(target), reference, last(reference));
  EXPECT_TRUE(found.in_reference) << found.detail;
  EXPECT_EQ(found.node, reference_draw);
}

// Where both go on with the other's operation, the one that does so sooner does something before it.
TEST(Localize, OfALayerThatIsAppliedTwiceTheSecondIsSuspected) {
  auto program = [](int times, NodeId* second) {
    GraphBuilder g;
    NodeId h = g.leaf({2, 3}, kX);
    for (int i = 0; i < times; ++i) {
      *second = g.op(Primitive::kSigmoid, {h}, {2, 3});
      g.graph.origins[g.graph.nodes.back().origin].op = "sigmoid";
      h = g.op(Primitive::kAdd, {*second, g.op(Primitive::kExp, {*second}, {2, 3})}, {2, 3});
    }
    g.op(Primitive::kTanh, {h}, {2, 3});
    g.graph.origins[g.graph.nodes.back().origin].op = "tanh";
    return g;
  };
  NodeId first = 0, second = 0;
  const GraphBuilder once = program(1, &first), twice = program(2, &second);
  auto last = [](const GraphBuilder& g) { return static_cast<NodeId>(g.graph.nodes.size() - 1); };
  const Suspicion found = suspect(once, last(once), twice, last(twice));
  EXPECT_TRUE(found.in_reference) << found.detail;
  EXPECT_EQ(found.node, second);
  const Suspicion other_way = suspect(twice, last(twice), once, last(once));
  EXPECT_FALSE(other_way.in_reference) << other_way.detail;
  EXPECT_EQ(other_way.node, second);
}

TEST(Localize, TellsOfDataThatOneProgramDoesNotRead) {
  auto program = [](bool all) {
    GraphBuilder g;
    Attributes part;
    part.view = all ? View{{2, 3}, {3, 1}, 0} : View{{1, 3}, {3, 1}, 0};
    const NodeId x = g.op(Primitive::kWindow, {g.leaf({2, 3}, kX)}, part.view.sizes, Format::kFloat32, part);
    g.sum_all(g.op(Primitive::kExp, {x}, part.view.sizes));
    return g;
  };
  const GraphBuilder some = program(false), all = program(true);
  auto last = [](const GraphBuilder& g) { return static_cast<NodeId>(g.graph.nodes.size() - 1); };
  const auto tells = [](const Suspicion& found, const std::string& text) {
    return found.detail.find(text) != std::string::npos;
  };
  const Suspicion found = suspect(some, last(some), all, last(all));
  EXPECT_TRUE(tells(found, "the target reads 3 elements of data")) << found.detail;
  EXPECT_TRUE(tells(suspect(all, last(all), some, last(some)), "the reference reads 3 elements of data"));
  EXPECT_FALSE(tells(suspect(all, last(all), all, last(all)), "elements of data"));
}

// One program selects where x > 0, the other where not x <= 0.
TEST(Localize, AnOutcomeThatIsSaidTheOtherWayRoundIsKnown) {
  auto program = [](Primitive comparison, Primitive wave) {
    GraphBuilder g;
    const NodeId x = g.leaf({2, 3}, kX), bound = g.leaf({2, 3}, {1, -2, 3, 0, 1, -1});
    const NodeId y = g.op(wave, {x}, {2, 3}), yes = g.op(comparison, {x, bound}, {2, 3}, Format::kBool);
    const bool greater = comparison == Primitive::kGreater;
    g.op(Primitive::kSelect, {yes, greater ? y : x, greater ? x : y}, {2, 3});
    return g;
  };
  const GraphBuilder target = program(Primitive::kGreater, Primitive::kSin),
                     reference = program(Primitive::kLessEqual, Primitive::kCos);
  const NodeId tap = static_cast<NodeId>(target.graph.nodes.size() - 1);
  EXPECT_EQ(target.graph.nodes[suspect(target, tap, reference, tap).node].primitive, Primitive::kSin);
}

}  // namespace
}  // namespace plumbline
