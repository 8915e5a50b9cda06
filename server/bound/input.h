// What the passes over one step are given.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/profile.h"
#include "server/bound/bounds.h"

namespace plumbline {

struct GoldenStep;

// What is looked at of large ones: observed.h.
enum class ObservedProducts { kRowsFirst, kEveryElement };

struct BoundsInput {
  const Graph* target = nullptr;
  const Graph* reference = nullptr;  // Null: none.
  const Profile* profile = nullptr;
  std::uint64_t seed = 0;              // For probes; from the trace's digest.
  double alpha = 1e-3;                 // Probability of a false alarm that this step may spend, in (0, 1).
  const GoldenStep* golden = nullptr;  // In place of a reference; the target's leaves equal its own. Null: none.
  ObservedProducts products = ObservedProducts::kRowsFirst;
  // The contents of all gradients that the step before left are so many times the reference's, as it was judged. Empty:
  // not known.
  std::optional<double> carried_scale = 1;
  KeptLeft kept_before = KeptLeft::kAlike;  // How the step before left what this one finds.
  bool first_step_of_run = false;           // The reference's: what programs keep between steps has not come apart yet.
};

}  // namespace plumbline
