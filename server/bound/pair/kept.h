// What programs keep between steps under no name, as an optimizer of their own does: data on which nothing depends but
// what outlives the step. In two runs it lies apart by what earlier steps rounded. What lies nearest is taken for one
// thing, and the reference is given the target's, as with state that has a name. That it is one thing is told by what
// both leave in that memory, which must be the same; of memory that a step does not write, nothing tells.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "server/bound/input.h"
#include "server/bound/match/correspondence.h"
#include "server/bound/pair/asked.h"
#include "server/bound/pair/pairing.h"

namespace plumbline {

// Data of that kind.
struct KeptData {
  std::size_t leaf;
  NodeId node;
  bool written;  // In place: `left` is what the step leaves there. Otherwise that is what it found.
  GraphTap left;
  LeafValue content;
};

// All of the graph; `values`: the contents of its leaves.
std::vector<KeptData> kept_data(const Graph& graph, const std::vector<LeafValue>& values);

// Gives the reference's the content of the target's, which is `scale` times as large.
void give(const KeptData& ours, const KeptData& theirs, double scale, const Graph& reference, Correspondence* match);

struct KeptItem {
  NodeId target = 0, reference = 0;
  GraphTap left, left_by_reference;
  double scale = 1;   // The target's is so many times the reference's.
  bool told = false;  // Both programs write it.
};

struct KeptMatch {
  std::vector<KeptItem> items;  // Whose contents differ.
  Correspondence match;         // In which they do not.
  bool told = false;            // What this step leaves of all, and what the one before did, tells that they are one.
};

// `match`, in which no item was taken for what the other program computes, otherwise. An item may be any of `scales`
// times the reference's, or their squares. Empty: there is none such, or this is the step that the run begins with,
// where such memory must be equal, or the step before left it otherwise.
std::optional<KeptMatch> match_kept(const BoundsInput& input, const Correspondence& match,
                                    const std::set<double>& scales);

// Whether both programs leave the same in what both write of these, but for the scales.
bool leave_alike(const BoundsInput& input, const PairReplays& replays, const std::vector<KeptItem>& items);

// Data of that kind of one program on which all that failed hangs, and of which nothing tells what the other has in its
// place: it may be the same, kept in another way. Empty: something fails that does not hang on such, or it is known
// that the step before left it otherwise.
std::optional<MatchedItem> hangs_on_kept(const BoundsInput& input, const MatchedReference& matched, const Asked& asked);

// How both programs leave what either writes of such memory: each beside some of the other that was the same, or
// nearly, and which must not come apart in the step. What the target keeps may be `scale` times the reference's, or its
// square.
KeptLeft compare_kept(const BoundsInput& input, const PairReplays& replays, double scale = 1);

}  // namespace plumbline
