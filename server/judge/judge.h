// The rule that turns Bounds into a Verdict (kernels/README.md, "What a verdict says, and how it is worked out").
#pragma once

#include <set>
#include <string>
#include <vector>

#include "server/bound/bounds.h"
#include "server/bound/findings/invariants.h"
#include "server/judge/verdict.h"

namespace plumbline {

struct JudgeInput {
  const Graph* graph = nullptr;
  const Bounds* bounds = nullptr;
  std::vector<std::string> changed_leaves;  // Invariants violated since the step before.
  bool first_step_of_run = false;
  std::string reference_name;        // "run NAME step K"; empty: none.
  const Graph* reference = nullptr;  // Null: none.
  std::size_t ranks = 1;             // Whose traces the graph joins.
  bool replicated = false;           // The ranks hold the same parameters, as the run says.
  std::vector<Divergence> diverged = {};
  bool outputs = false;                          // Every operation's result was observed.
  bool follows = false;                          // The step before is known.
  std::set<std::string> reference_updates = {};  // Names of those that the reference's step before gave, where it does.
  GradientApart apart = {};                      // Left by the step before, where it is known.
};

// Fills everything of a verdict but identity, time, digest, profile and backend.
Verdict judge(const JudgeInput& input);

Place place_of(const Graph& graph, NodeId node);

// Largest parts of a finding's envelope, by framework operation and source line; at most 16.
std::vector<Contributor> contributors(const Graph& graph, const Finding& finding);

// Both programs' operations side by side, as Bounds has them, in words; nothing where it has none.
std::optional<Alignment> alignment(const JudgeInput& input);

// Harm that rounding alone does or can do: what Bounds found, in words.
std::vector<Hazard> hazards(const Graph& graph, const Bounds& bounds);

// What the user can do about it; depends on verdict->outcome, cause, suspect and contributors.
std::vector<std::string> advice(const JudgeInput& input, const Verdict& verdict);

}  // namespace plumbline
