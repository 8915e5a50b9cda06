#include "server/bound/pair/alignment.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "kernels/sums.h"
#include "server/bound/enclose/interval.h"
#include "server/bound/pair/agreement.h"
#include "server/bound/pair/side_by_side.h"
#include "server/bound/replay/taps.h"

namespace plumbline {
namespace {

constexpr std::size_t kListedMax = 256;
// Results of more elements are not enclosed, since that may take their memory again: what fingerprints tell apart
// (agreement.h) stands for the enclosure.
constexpr std::int64_t kEnclosedMax = 1 << 25;
constexpr double kFingerprint = 0x1p-33;

bool failed(const Finding& finding) { return finding.mathematics.failed(); }
bool executed_illegally(const Finding& finding) {
  return finding.proven && finding.execution.asked && !(finding.execution.deviation <= finding.execution.envelope);
}

// What the program does between its operations belongs to the one before.
std::uint32_t origin_of(const Graph& graph, NodeId id) {
  while (graph.nodes[id].origin == 0 && graph.nodes[id].inputs.size() == 1) id = graph.nodes[id].inputs[0];
  return graph.nodes[id].origin;
}

// One program, and how far its replay may be off.
class Side {
 public:
  Side(const Graph& graph, const Replay& replay, const Slack& slack, const HandedBack& handed,
       const std::vector<bool>& shared, Overrides given)
      : graph_(graph), replay_(replay), anchors_(std::move(given)), operations_(listed_operations(graph, replay)) {
    std::vector<NodeId> open = handed.unknown;
    open.insert(open.end(), handed.after_a_tie.begin(), handed.after_a_tie.end());
    for (const auto& [node, width] : slack.numbers) open.push_back(node);
    unknown_ = reached_by(open, graph);
    freedoms_ = slack.freedoms;
    freedoms_.insert(slack.handed.begin(), slack.handed.end());
    for (const GraphDecision& decision : graph.decisions)
      if (decision.node < shared.size() && shared[decision.node] && replay.has(decision.node))
        anchors_.emplace(decision.node, replay.value(decision.node));
    // Integers and outcomes carry no rounding of ours; only whether they were given from elsewhere is read of an
    // anchor.
    for (NodeId id = 0; id < graph.nodes.size(); ++id)
      if (!is_float(graph.nodes[id].result)) anchors_.emplace(id, LeafValue());
    for (const auto& [node, width] : freedoms_) anchors_.erase(node);
    for (const GraphTap& tap : graph.taps)
      for (const GraphTap::Term& term : tap.terms)
        if (term.observed != nullptr) observed_.emplace(term.node, Observation{term.format, term.observed});
    for (const auto& [node, observation] : graph.observed) observed_.emplace(node, observation);
  }

  const Graph& graph() const { return graph_; }
  std::vector<ListedOperation>& operations() { return operations_; }
  ListedProgram listed() const { return {graph_, replay_, operations_}; }
  Array value(NodeId id) const { return replay_.value(id); }
  bool known(NodeId id) const { return !unknown_[id]; }
  std::int64_t elements() const {
    std::int64_t sum = 0;
    for (const ListedOperation& each : operations_) sum += count(graph_.nodes[each.node].shape);
    return sum;
  }
  Array observed(NodeId id) const {
    const auto found = observed_.find(id);
    if (found == observed_.end()) return {};
    return LeafValue(found->second.format, found->second.bytes, graph_.nodes[id].shape);
  }
  Enclosures enclosures(const std::vector<NodeId>& wanted) const {
    return {graph_, replay_, wanted, nullptr, anchors_, &freedoms_};
  }

 private:
  const Graph& graph_;
  const Replay& replay_;
  Overrides anchors_;
  Freedoms freedoms_;
  std::vector<bool> unknown_;  // Of each node, whether something comes into it of which nothing is known.
  std::map<NodeId, Observation> observed_;
  std::vector<ListedOperation> operations_;
};

// Marks what stands alone, though the other program computes its values.
void mark_elsewhere(Side* side, const Graph& other, const Replay& other_replay, const std::set<std::size_t>& paired) {
  if (paired.size() == side->operations().size()) return;
  const KnownValues values(other, other_replay);
  for (std::size_t i = 0; i < side->operations().size(); ++i) {
    if (paired.contains(i)) continue;
    ListedOperation& operation = side->operations()[i];
    const Array value = side->value(operation.node);
    // Zeros and single numbers are told by their place.
    operation.elsewhere =
        !value_keys(value).empty() && values.of(side->graph().nodes[operation.node], value) == Agreement::kAgrees;
  }
}

std::vector<AlignedPair> rows_of(const Side& target, const Side& reference, const SideBySide& pairs) {
  const std::vector<ListedOperation>&ours = target.listed().operations, &theirs = reference.listed().operations;
  std::vector<AlignedPair> rows;
  std::size_t i = 0, j = 0;
  const auto alone_until = [&](std::size_t our_end, std::size_t their_end) {
    for (; i < our_end; ++i) {
      rows.emplace_back().target = ours[i].node;
      rows.back().elsewhere = ours[i].elsewhere;
    }
    for (; j < their_end; ++j) {
      rows.emplace_back().reference = theirs[j].node;
      rows.back().elsewhere = theirs[j].elsewhere;
    }
  };
  for (const auto& [our, their] : pairs) {
    alone_until(our, their);
    rows.emplace_back().target = ours[i++].node;
    rows.back().reference = theirs[j++].node;
  }
  alone_until(ours.size(), theirs.size());
  return rows;
}

// Fills the deviation and where it is largest; returns what it is relative to.
double measure(const Array& target, const Array& reference, AlignedPair* row) {
  const Array x = target.on_host(), y = reference.on_host();
  double squares = 0, size = 0, largest = -1;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double a = x.data()[i], b = y.data()[i];
    const bool same = a == b || (std::isnan(a) && std::isnan(b));
    double difference = same ? 0 : std::fabs(a - b);
    if (std::isnan(difference)) difference = HUGE_VAL;
    squares += difference * difference;
    if (std::isfinite(b)) size += b * b;
    if (difference <= largest) continue;
    largest = difference;
    row->element = static_cast<std::uint64_t>(i);
    row->target_value = a;
    row->reference_value = b;
  }
  row->elements = static_cast<std::uint64_t>(x.count());
  const double norm = size > 0 ? std::sqrt(size) : 1;
  row->deviation = std::sqrt(squares) / norm;
  return norm;
}

double radius(Enclosures* enclosures, NodeId id) {
  const Enclosure enclosure = enclosures->take(id);
  return enclosure.exploded ? HUGE_VAL : enclosure.radius ? norm2(enclosure.radius.values).get() : 0;
}

void measure_rows(const Side& target, const Side& reference, std::vector<AlignedPair>* rows) {
  const bool enclosed = target.elements() + reference.elements() <= kEnclosedMax;
  std::vector<NodeId> ours, theirs;
  for (const AlignedPair& row : *rows) {
    if (!row.paired() || !enclosed) continue;
    ours.push_back(*row.target);
    theirs.push_back(*row.reference);
  }
  Enclosures our_radii = target.enclosures(ours), their_radii = reference.enclosures(theirs);
  for (AlignedPair& row : *rows) {
    if (!row.paired()) continue;
    const double norm = measure(target.value(*row.target), reference.value(*row.reference), &row);
    row.allowed =
        enclosed ? (radius(&our_radii, *row.target) + radius(&their_radii, *row.reference)) / norm : kFingerprint;
    if (!target.known(*row.target) || !reference.known(*row.reference)) row.allowed = HUGE_VAL;
    const Array t = target.observed(*row.target), r = reference.observed(*row.reference);
    if (!t || !r) continue;
    row.drift = apart(t, r).get().relative();
  }
}

using RowOf = std::map<std::uint32_t, std::size_t>;  // By origin.

RowOf rows_by_origin(const Graph& graph, const std::vector<AlignedPair>& rows,
                     std::optional<NodeId> AlignedPair::*side) {
  RowOf found;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].*side) found[graph.nodes[*(rows[i].*side)].origin] = i;
  return found;
}

// The first row from which a failing tap is reached through rows that all differ.
std::optional<std::size_t> first_differing(const Graph& graph, const std::vector<NodeId>& failing, const RowOf& row_of,
                                           const std::vector<AlignedPair>& rows) {
  std::optional<std::size_t> first;
  std::vector<bool> seen(graph.nodes.size(), false);
  std::vector<NodeId> open = failing;
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    if (seen[id]) continue;
    seen[id] = true;
    if (const auto row = row_of.find(graph.nodes[id].origin); row != row_of.end()) {
      if (!rows[row->second].differs()) continue;
      first = first ? std::min(*first, row->second) : row->second;
    }
    const std::vector<NodeId>& inputs = graph.nodes[id].inputs;
    open.insert(open.end(), inputs.begin(), inputs.end());
  }
  return first;
}

// What the audit suspects, where it differs; otherwise the first that does. Where mathematics agrees, what was executed
// illegally.
std::optional<std::size_t> parting(const BoundsInput& input, const Bounds& bounds,
                                   const std::vector<AlignedPair>& rows) {
  const RowOf ours = rows_by_origin(*input.target, rows, &AlignedPair::target),
              theirs = rows_by_origin(*input.reference, rows, &AlignedPair::reference);
  const auto row_at = [&](NodeId id, bool in_reference) -> std::optional<std::size_t> {
    const RowOf& row_of = in_reference ? theirs : ours;
    const auto found = row_of.find(origin_of(in_reference ? *input.reference : *input.target, id));
    return found == row_of.end() ? std::nullopt : std::optional(found->second);
  };
  std::vector<NodeId> failing, illegal;
  for (const Finding& finding : bounds.findings) {
    for (const std::size_t tap : finding.taps) {
      const std::vector<NodeId> nodes = nodes_of(input.target->taps[tap]);
      if (failed(finding)) failing.insert(failing.end(), nodes.begin(), nodes.end());
      if (executed_illegally(finding)) illegal.insert(illegal.end(), nodes.begin(), nodes.end());
    }
  }
  if (bounds.suspicion) {
    const auto row = row_at(bounds.suspicion->node, bounds.suspicion->in_reference);
    if (row && rows[*row].differs()) return row;
  }
  if (!failing.empty()) return first_differing(*input.target, failing, ours, rows);
  if (!bounds.illegal_values.empty()) return row_at(bounds.illegal_values.front().node, false);
  if (!illegal.empty()) return row_at(illegal.front(), false);
  if (!bounds.missing_taps.empty())
    return row_at(bounds.missing_taps.front().node, bounds.missing_taps.front().in_reference);
  if (bounds.reference_fault) return row_at(bounds.reference_fault->node, true);
  return std::nullopt;
}

// Those around where the programs part; the first where they do not.
ProgramAlignment chosen(std::vector<AlignedPair> rows, std::optional<std::size_t> parts) {
  ProgramAlignment alignment;
  for (const AlignedPair& row : rows) {
    alignment.agree += row.paired() && !row.differs() && !row.open();
    alignment.differ += row.paired() && row.differs();
    alignment.target_alone += !row.reference;
    alignment.reference_alone += !row.target;
  }
  const std::size_t all = rows.size(), middle = parts.value_or(0);
  std::size_t begin = middle > kListedMax / 2 ? middle - kListedMax / 2 : 0;
  const std::size_t end = std::min(all, begin + kListedMax);
  begin = end > kListedMax ? end - kListedMax : 0;
  alignment.before = begin;
  alignment.after = all - end;
  alignment.operations.assign(rows.begin() + static_cast<std::ptrdiff_t>(begin),
                              rows.begin() + static_cast<std::ptrdiff_t>(end));
  if (parts) alignment.parts = *parts - begin;
  return alignment;
}

}  // namespace

void align_programs(const BoundsInput& input, const PairReplays& replays, Bounds* bounds) {
  const bool parted = std::ranges::any_of(bounds->findings, [](const Finding& finding) {
    return failed(finding) || executed_illegally(finding) || finding.execution.failed();
  });
  if (!parted && bounds->illegal_values.empty() && bounds->missing_taps.empty() && !bounds->reference_fault) return;
  const Graph &ours = *input.target, &theirs = *input.reference;
  Side target(ours, replays.target, replays.target_slack, replays.target_handed, replays.target_shared,
              replays.target_overrides);
  Side reference(theirs, replays.reference, replays.reference_slack, replays.reference_handed, replays.reference_shared,
                 replays.reference_overrides);
  SideBySide pairs = pair_by_value(target.listed(), reference.listed());
  std::set<std::size_t> our_paired, their_paired;
  for (const auto& [i, j] : pairs) {
    our_paired.insert(i);
    their_paired.insert(j);
  }
  mark_elsewhere(&target, theirs, replays.reference, our_paired);
  mark_elsewhere(&reference, ours, replays.target, their_paired);
  pair_by_place(target.listed(), reference.listed(), &pairs);
  std::vector<AlignedPair> rows = rows_of(target, reference, pairs);
  measure_rows(target, reference, &rows);
  const std::optional<std::size_t> parts = parting(input, *bounds, rows);
  bounds->alignment = chosen(std::move(rows), parts);
}

}  // namespace plumbline
