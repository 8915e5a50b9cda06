// Correspondence: which thing of one program is which of the other (kernels/README.md, "Which thing is which").
//
// An item is what a trace did not compute: data, a parameter, state, a buffer, a random draw. Both programs are
// replayed on one copy of every item that they share, and whether two items are one is a finding with evidence:
//
//   identical  the same bits;
//   rounding   both are legal roundings of one number to their formats: they differ by no more than their freedoms;
//   computed   an item of one program is a legal rounding of what the other computes; that value stands for it;
//   named      parameters, buffers, state and draws of one name, whose content differs;
//   kept       memory that both programs keep between steps under no name, and of which they make the same (kept.h);
//   none       nothing of the other program: it keeps its own content, and its freedom is charged to the comparison.
//
// The freedom of an item is how far legal roundings may have put it elsewhere. An item was made out of sight, by how
// many roundings is not known: kRoundings half units of its format are taken, and none for an integer, or where the
// element has so few digits that it was written, not computed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/bound/envelope/adjoint.h"
#include "server/bound/replay/replay.h"

namespace plumbline {

enum class Evidence : std::uint8_t { kIdentical, kRounding, kComputed, kNamed, kKept, kNone };

// An item that was matched by something weaker than its bits.
struct MatchedItem {
  Evidence evidence = Evidence::kNone;
  bool in_reference = false;          // Whose item it is.
  NodeId item = 0;                    // In its own graph,
  std::optional<NodeId> counterpart;  // and what it was matched with, in the other's.
  Format format = Format::kUnknown;   // Where they differ by a rounding, this is the coarser format.
};

// How strictly items are matched. kStrict: by name first where items have one. kOwnContent: what is not identical is
// its own program's, with its freedom; then layers that were folded, or tables made in another way, may still be one
// mathematics.
enum class Matching : std::uint8_t { kStrict, kOwnContent };

// Which items may be taken for what the other program computes (computed.h).
enum class Computed : std::uint8_t { kNever, kOnEvidence, kEver };

struct Correspondence {
  // The content of each leaf of either graph in the replays that are compared.
  std::vector<LeafValue> target_values, reference_values;
  // Nodes that hold an item, or a window on one, whose place the other program's computed value takes (computed.h).
  Overrides target_computed, reference_computed;
  Freedoms target_freedoms, reference_freedoms;
  std::vector<MatchedItem> items;  // Weaker than bits.
  Computed computed = Computed::kOnEvidence;
  std::vector<MatchedItem> weak;  // Items that lie near what the other program computes, and no more is known of it.
  bool doubtful = false;          // Some item was taken for that, and it may be an accident all the same.
  // Roundings to a grid that were taken for formats (grids.h).
  std::vector<NodeId> target_grids, reference_grids;
  std::vector<std::pair<NodeId, NodeId>> draws;  // Random leaves of target and reference that are one.
  std::uint64_t open_decisions = 0;              // Elements of decisions without a counterpart that may go either way.
  std::vector<std::string> drifted;              // Names whose content differs between the runs.
  // Target's parameters, buffers and state whose content differs by more than freedom.
  std::vector<NodeId> foreign_state;
  std::vector<std::string> missing;  // Reference leaves whose content nobody has.
  // Reference's inputs of a partial step's audited part that the target's part does not have.
  std::vector<std::string> unpaired_inputs;
  std::vector<NodeId> foreign_data;  // Target data leaves (more than one element) of which the reference holds nothing.
  // In a target of several ranks, what a rank holds otherwise than rank 0, and uses, where the reference has but one.
  std::vector<NodeId> apart;
  std::vector<NodeId> foreign_reference_data;  // The other way round, nodes of the reference.
  bool handed = false;                         // Python may have computed some of these (handed.h).
};

// Matches items by content and by name. The programs' leaves may lack their content where they are known by name alone.
Correspondence correspond(const Graph& target, const std::vector<LeafValue>& target_values, const Graph& reference,
                          const std::vector<LeafValue>& reference_values, Matching matching = Matching::kStrict);

// Gives a leaf of the reference, of index `leaf`, the content of one of the target that is `scale` times as large, with
// what a scale that is a quotient of sums in two replays may be wrong by.
void give_scaled(const LeafValue& content, double scale, std::size_t leaf, const Graph& reference,
                 Correspondence* match);

// How far an item's elements may lie elsewhere, in its shape; empty: nowhere.
Array freedom_of(Format format, const Array& content);

// Format f with round_to(f, target leaf) == reference leaf elementwise (or the other way round).
struct RoundedLeaf {
  Format format = Format::kUnknown;
  std::size_t target_leaf = 0, reference_leaf = 0;
};

// Weights, buffers or state that are roundings of wider leaves of the same trace (fp16 weights with an fp32 master
// copy): one quantity in two formats. `target_leaf` indexes the narrow one, `reference_leaf` the wide one.
std::vector<RoundedLeaf> master_copies(const Graph& graph, const std::vector<LeafValue>& values);

}  // namespace plumbline
