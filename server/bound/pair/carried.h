// Gradients that a step leaves where the next backward adds to them. Whether they have a part in the training shows in
// the next step alone, which adds to them or clears them: what is left apart here is remembered for it
// (Bounds::apart), and accuses where that step reads it (still_apart).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/bound/bounds.h"
#include "server/bound/input.h"
#include "server/bound/match/correspondence.h"
#include "server/bound/pair/gap.h"
#include "server/bound/pair/pairing.h"

namespace plumbline {

// What the loss and all gradients of a step are times the reference's, where neither program does more than add to
// gradients: the loss is scaled there, or a mean over micro-batches taken when they are done, and a later step takes
// that out, or is accused. Empty: some differ by more, or by nothing.
std::optional<double> common_scale(const BoundsInput& input, const Gap& gap);

// The same of a step whose optimizers make of the gradients what the reference's do, though some gradients are as they
// are there: that they are scaled is taken out where nothing tells, by a clip that unscales as well, by the learning
// rate. 1: the losses alone differ, as where each is weighed otherwise, and its gradients later. Empty: what optimizers
// make differs, or more does. `probes`: what was asked, and is asked again where it hangs on numbers of Python's.
std::optional<double> absorbed_scale(const BoundsInput& input, const Gap& gap, const std::vector<Probe>& probes);

// The same where what both programs keep under no name is one thing (kept.h), momentum scaled as gradients are. Sets
// bounds->match to that.
std::optional<double> absorbed_scale_of_kept(const BoundsInput& input, const Replay& target_exact,
                                             const MatchedReference& matched, const Gap& gap,
                                             const std::vector<Probe>& probes, Bounds* bounds);

// What the contents of gradients that a step leaves are times the reference's where the gradients are the same: one of
// them may hold a gradient scaler's scale.
double content_scale(const Graph& target, const Graph& reference);

// What the gradients that earlier steps left would have to be times the reference's, so that the programs compute the
// same, or the same but for a common factor: where nobody knows what those steps did. Empty: that explains nothing.
// `common`: set to whether there is a factor.
std::optional<double> supposed_scale(const BoundsInput& input, const Replay& target_exact,
                                     const MatchedReference& matched, const Correspondence& match,
                                     const std::vector<Probe>& probes, bool* common);

// Gives the reference what its own gradients were before this step, where the contents of those of the target, which it
// was given, are `scale` times as large.
void unscale_carried(double scale, const Graph& target, const Graph& reference, Correspondence* match);

// Sets bounds->apart, of those that both programs leave.
void compare_carried(const BoundsInput& input, const PairReplays& replays, Bounds* bounds);

// Leaves with the names of gradients that nothing but clearing changed: they are zeros, or the step does not read them.
void forget_cleared(const Graph& graph, std::vector<std::string>* leaves);

// Whether both programs' taps depend on the leaf of that gradient, and its contents lie that far apart still.
bool still_apart(const GradientApart& apart, const Graph& target, const Graph& reference);

}  // namespace plumbline
