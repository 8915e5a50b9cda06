#include "server/ingest/collective.h"

#include <numeric>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

constexpr std::string_view kSend = "plumbline::send.", kReceive = "plumbline::receive.";

// How a kind moves data. A flat one sends one tensor for all ranks, cut into their shares.
struct Kind {
  // A result comes from everyone, from the root, or from the rank that `part` counts.
  enum class From { kAll, kRoot, kSlot } from;
  bool by_index;  // The share of the rank that gets it, not the part of the same number.
  bool flat;
  bool reduces;
  bool alike;
  bool to_root;
};

std::optional<Kind> kind_of(std::string_view name) {
  using From = Kind::From;
  static const std::map<std::string_view, Kind> kKinds = {
      {"all_reduce", {From::kAll, false, false, true, true, false}},
      {"reduce", {From::kAll, false, false, true, true, true}},
      {"broadcast", {From::kRoot, false, false, false, false, false}},
      {"all_gather", {From::kSlot, false, false, false, false, false}},
      {"gather", {From::kSlot, false, false, false, false, true}},
      {"all_gather_flat", {From::kAll, false, false, false, true, false}},
      {"scatter", {From::kRoot, true, false, false, false, false}},
      {"reduce_scatter", {From::kAll, true, false, true, true, false}},
      {"reduce_scatter_flat", {From::kAll, true, true, true, true, false}},
      {"all_to_all", {From::kSlot, true, false, false, false, false}},
      {"point_to_point", {From::kRoot, false, false, false, false, false}},
      {"all_to_all_flat", {From::kAll, true, true, false, false, false}},
  };
  const auto found = kKinds.find(name);
  if (found == kKinds.end()) return std::nullopt;
  return found->second;
}

template <class T>
T argument(const TraceOp& op, std::string_view name, T otherwise) {
  for (const TraceArgument& argument : op.arguments)
    if (argument.name == name)
      if (const T* value = std::get_if<T>(&argument.value)) return *value;
  return otherwise;
}

// The share of the `index`th of `ranks` ranks in a flat tensor; nothing where the shares do not add up.
std::optional<TensorRef> share(const TensorRef& whole, const std::vector<std::int64_t>& splits, std::size_t index,
                               std::size_t ranks) {
  const std::int64_t elements = count(whole.view.sizes);
  std::vector<std::int64_t> shares = splits;
  if (shares.empty() && elements % static_cast<std::int64_t>(ranks) == 0)
    shares.assign(ranks, elements / static_cast<std::int64_t>(ranks));
  if (shares.size() != ranks || std::accumulate(shares.begin(), shares.end(), std::int64_t{0}) != elements)
    return std::nullopt;
  TensorRef part = whole;
  part.view = {{shares[index]}, {1}, std::accumulate(shares.begin(), shares.begin() + index, whole.view.offset)};
  return part;
}

}  // namespace

std::optional<CollectiveCall> collective_call(const TraceOp& op) {
  CollectiveCall call;
  call.send = op.name.starts_with(kSend);
  if (!call.send && !op.name.starts_with(kReceive)) return std::nullopt;
  call.kind = op.name.substr(call.send ? kSend.size() : kReceive.size());
  call.group = argument<std::vector<std::int64_t>>(op, "group", {});
  call.number = argument<std::int64_t>(op, "call", -1);
  call.part = static_cast<int>(argument<std::int64_t>(op, "part", 0));
  call.reduction = argument<std::string>(op, "reduction", "");
  call.root = argument<std::int64_t>(op, "root", -1);
  call.tag = argument<std::int64_t>(op, "tag", -1);
  call.splits = argument<std::vector<std::int64_t>>(op, "splits", {});
  const auto kind = kind_of(call.kind);
  if (!kind || call.group.empty() || call.number < 0 || kind->reduces == call.reduction.empty()) return std::nullopt;
  if (!call.send) return call;
  if (op.results.size() != 1 || op.results[0].tensor.value == 0) return std::nullopt;
  const View& view = op.results[0].tensor.view;
  if (view != View{{op.results[0].count}, {1}, 0}) return std::nullopt;  // Its shares are windows.
  return call;
}

std::string described(const CollectiveCall& call) {
  if (call.tag >= 0) return absl::StrCat("message from rank ", call.root, ", tag ", call.tag);
  return absl::StrCat(call.kind, call.reduction.empty() ? "" : absl::StrCat(" (", call.reduction, ")"));
}

bool sends_alike(const std::string& kind) {
  const auto known = kind_of(kind);
  return known && known->alike;
}

bool sends_shares(const std::string& kind) {
  const auto known = kind_of(kind);
  return known && known->by_index && known->flat;
}

Flow flow_of(const CollectiveCall& call, std::size_t index, const std::map<std::size_t, SentTensors>& sent) {
  const auto kind = kind_of(call.kind);
  if (!kind) return {};
  // What a rank other than the root finds in its memory is no result.
  if (kind->to_root && call.group[index] != call.root) return {};
  std::vector<std::int64_t> senders = call.group;
  if (kind->from == Kind::From::kRoot) senders = {call.root};
  if (kind->from == Kind::From::kSlot) {
    if (call.part < 0 || static_cast<std::size_t>(call.part) >= call.group.size()) return {};
    senders = {call.group[static_cast<std::size_t>(call.part)]};
  }
  int part = kind->from == Kind::From::kSlot ? 0 : call.part;
  if (kind->by_index && !kind->flat) part = static_cast<int>(index);

  Flow flow;
  for (const std::int64_t sender : senders) flow.needed.push_back({static_cast<std::size_t>(sender), part});
  for (const Piece& piece : flow.needed) {
    const auto side = sent.find(piece.rank);
    if (side == sent.end() || side->second.parts.count(part) == 0) return {flow.needed, {}};
    const TensorRef& whole = side->second.parts.at(part);
    if (whole.value == 0) continue;  // Nothing was sent.
    if (!kind->flat) {
      flow.sources.push_back(whole);
      continue;
    }
    const auto splits = side->second.splits.find(part);
    const auto own = share(whole, splits == side->second.splits.end() ? std::vector<std::int64_t>() : splits->second,
                           index, call.group.size());
    if (!own) return {flow.needed, {}};
    flow.sources.push_back(*own);
  }
  return flow;
}

}  // namespace plumbline
