// Gradients that a step leaves where the next backward adds to them. Whether they have a part in the training shows in
// the next step alone, which adds to them or clears them: what is left apart here is remembered for it
// (Bounds::apart), and accuses where that step reads it (still_apart).
#pragma once

#include <string>
#include <vector>

#include "server/bound/bounds.h"
#include "server/bound/input.h"
#include "server/bound/pair/gap.h"

namespace plumbline {

// Sets bounds->apart, of those that both programs leave.
void compare_carried(const BoundsInput& input, const PairReplays& replays, Bounds* bounds);

// Leaves with the names of gradients that nothing but clearing changed: they are zeros, or the step does not read them.
void forget_cleared(const Graph& graph, std::vector<std::string>* leaves);

// Whether both programs' taps depend on the leaf of that gradient, and its contents lie that far apart still.
bool still_apart(const GradientApart& apart, const Graph& target, const Graph& reference);

}  // namespace plumbline
