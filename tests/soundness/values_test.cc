// Bare reference values held against legal executions: of the target's own trace, of which at most `alpha` leave the
// envelope, and of other formulas of its mathematics, of which none is accused. Constants that are off by little are.
#include <gtest/gtest.h>

#include "server/bound/compute.h"
#include "tests/soundness/arithmetics.h"
#include "tests/soundness/graph_execution.h"
#include "tests/soundness/networks.h"

namespace plumbline::soundness {
namespace {

using Make = Graph (*)(Random&, Formula, Bug);

std::vector<double> executed(const Graph& graph, const Profile& profile, NodeId node, Random& random) {
  const Array value = execute_graph(graph, profile, node, random).materialize();
  return {value.data(), value.data() + value.count()};
}

struct Outcome {
  int beyond = 0, accused = 0, executions = 0;  // Beyond the envelope, and beyond every formula.
};

// T is an execution of the usual formula, R of `formula` with `bug`, both on the same leaves.
Outcome compared(Make make, Formula formula, Bug bug, int executions, std::uint64_t seed) {
  Outcome outcome;
  for (const Profile& profile : all_profiles()) {
    if (profile.name != "correctly-rounded" && profile.name != "ieee") continue;
    for (int i = 0; i < executions; ++i, ++outcome.executions) {
      Random ours(seed + static_cast<std::uint64_t>(i)), theirs(seed + static_cast<std::uint64_t>(i));
      Graph target = make(ours, Formula::kUsual, {});
      const Graph reference = make(theirs, formula, bug);
      for (std::size_t t = 0; t < target.taps.size(); ++t) {
        GraphTap& tap = target.taps[t];
        tap.terms[0].observed = test::encoded(Format::kFloat32, executed(target, profile, tap.terms[0].node, ours));
        tap.reference =
            test::encoded(Format::kFloat32, executed(reference, profile, reference.taps[t].terms[0].node, theirs));
        tap.reference_format = Format::kFloat32;
      }
      BoundsInput input;
      input.target = &target;
      input.profile = &profile;
      input.seed = seed ^ static_cast<std::uint64_t>(i * 7919);
      bool beyond = false, accused = false;
      for (const Finding& finding : compute_bounds(input).findings) {
        beyond = beyond || finding.value.margin() > 1;
        accused = accused || (finding.value.failed() && finding.value.margin() > kValueFormulas);
      }
      outcome.beyond += beyond;
      outcome.accused += accused;
    }
  }
  return outcome;
}

constexpr int kExecutions = 20;  // Each profile is executed so often.

TEST(Values, LegalExecutionsOfTheTraceKeepItsEnvelope) {
  for (const Make make : {Make(mlp), Make(transformer)})
    EXPECT_EQ(compared(make, Formula::kUsual, {}, kExecutions, 1).beyond, 0);
}

TEST(Values, OtherFormulasAreNeverAccused) {
  for (const Make make : {Make(mlp), Make(transformer)})
    EXPECT_EQ(compared(make, Formula::kTakenApart, {}, kExecutions, 2).accused, 0);
}

TEST(Values, ConstantsThatAreOffAre) {
  for (const Formula formula : {Formula::kUsual, Formula::kTakenApart}) {
    const Outcome scale = compared(transformer, formula, {0, 1e-3}, 5, 3),
                  eps = compared(transformer, formula, {1e-4, 0}, 5, 4);
    EXPECT_EQ(scale.accused, scale.executions);
    EXPECT_EQ(eps.accused, eps.executions);
    const Outcome small = compared(mlp, formula, {0, 1e-4}, 5, 5);
    EXPECT_GT(2 * small.accused, small.executions);  // Twice the envelope, or a little less.
  }
}

}  // namespace
}  // namespace plumbline::soundness
