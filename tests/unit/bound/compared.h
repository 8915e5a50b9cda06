// Two small programs beside each other.
#pragma once

#include <vector>

#include "server/bound/compute.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline::test {

inline const std::vector<double> kX = {0.1, -0.7, 1.3, 0.45};

inline Bounds compared(const GraphBuilder& target, const GraphBuilder& reference) {
  const Profile profile = ieee();
  return compute_bounds({.target = &target.graph, .reference = &reference.graph, .profile = &profile, .seed = 5});
}

// Whether something was asked of their mathematics, and all of it passed.
inline bool agree(const Bounds& bounds) {
  bool any = false, all = true;
  for (const Finding& finding : bounds.findings) {
    any = any || finding.mathematics.asked;
    all = all && (!finding.mathematics.asked || finding.mathematics.passed());
  }
  return any && all;
}

// As fp32 holds them.
inline std::vector<double> held(std::vector<double> values) {
  for (double& value : values) value = round_to(Format::kFloat32, value);
  return values;
}

}  // namespace plumbline::test
