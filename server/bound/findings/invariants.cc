#include "server/bound/findings/invariants.h"

#include <xxhash.h>

#include <cstdio>
#include <set>

namespace plumbline {

std::string content_digest(const std::vector<std::uint8_t>& bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return std::string(text) + ':' + std::to_string(bytes.size());
}

namespace {

bool row_major(const View& view) { return view.offset == 0 && view.strides == row_major_strides(view.sizes); }

// Of a tensor that does not lie row by row, its elements were digested in its own order. A leaf has these in that order
// where it is all that is read of it.
std::string by_elements(const std::string& name) { return name + " by elements"; }

// Leaves that operations read row by row alone, each whole.
std::set<ValueId> read_row_by_row(const Trace& trace) {
  std::map<ValueId, std::int64_t> counts;
  for (const TraceLeaf& leaf : trace.leaves) counts[leaf.value] = leaf.count;
  std::set<ValueId> read, otherwise;
  const auto add = [&](const TensorRef& tensor) {
    const auto leaf = counts.find(tensor.value);
    if (leaf == counts.end()) return;
    const bool whole = row_major(tensor.view) && count(tensor.view.sizes) == leaf->second;
    (whole ? read : otherwise).insert(tensor.value);
  };
  for (const TraceOp& op : trace.ops)
    for (const TraceArgument& argument : op.arguments) {
      if (const auto* one = std::get_if<TensorRef>(&argument.value)) add(*one);
      if (const auto* many = std::get_if<std::vector<TensorRef>>(&argument.value))
        for (const TensorRef& each : *many) add(each);
    }
  for (const ValueId value : otherwise) read.erase(value);
  return read;
}

// The leaf that holds, at the next step's start, what a tap holds at the end of this one.
std::string origin_of(const TraceTap& tap) {
  const std::string_view name = unranked(tap.name);
  if (tap.kind == TapKind::kState) return tap.name;
  return tap.name.substr(0, tap.name.size() - name.size()) + "param:" + std::string(name.substr(name.find(':') + 1));
}

// The content of what the step leaves, as another tap of it tells that. 0: none does.
PayloadId observed_elsewhere(const Trace& trace, const TensorRef& tensor) {
  for (const TraceTap& tap : trace.taps)
    for (const TraceTap::Term& term : tap.terms)
      if (term.observed != 0 && term.tensor.value == tensor.value && term.tensor.view == tensor.view)
        return term.observed;
  return 0;
}

void add_reads(const TraceOp& op, std::set<ValueId>* read) {
  for (const TraceArgument& argument : op.arguments) {
    if (const auto* one = std::get_if<TensorRef>(&argument.value)) read->insert(one->value);
    if (const auto* many = std::get_if<std::vector<TensorRef>>(&argument.value))
      for (const TensorRef& each : *many) read->insert(each.value);
  }
}

// Persistent leaves that nothing of the trace writes, by their names. Parameters and buffers that it does not read
// either (a cache for generation) have no part in the training.
std::map<std::string, const TraceLeaf*> untouched_leaves(const Trace& trace) {
  std::map<std::string, const TraceLeaf*> untouched;
  if (trace.scope.partial) return untouched;  // What was not captured may have written them.
  std::set<ValueId> written, read;
  for (const TraceOp& op : trace.ops) {
    for (const TraceResult& result : op.results) written.insert(result.base);
    add_reads(op, &read);
  }
  std::set<std::string> met;
  for (const TraceLeaf& leaf : trace.leaves) {
    if (!persistent(leaf.role) || leaf.name.empty()) continue;
    const bool part = leaf.role == LeafRole::kState || read.contains(leaf.value);
    if (met.insert(leaf.name).second && part && !written.contains(leaf.value))
      untouched[leaf.name] = &leaf;
    else
      untouched.erase(leaf.name);
  }
  return untouched;
}

}  // namespace

DigestsAfter digests_after(const Trace& trace, const Digests& untouched) {
  std::map<std::string, const TraceLeaf*> leaves = untouched_leaves(trace);
  DigestsAfter after;
  for (const TraceTap& tap : trace.taps) {
    const bool carried = tap.kind == TapKind::kCarried;
    if (tap.terms.empty() || !(carried || outlives_step(tap.kind))) continue;
    const TraceTap::Term& term = tap.terms.front();  // w_new of an update, the state itself
    const std::string name = carried ? tap.name : origin_of(tap);
    leaves.erase(name);
    const auto payload = trace.payloads.find(carried ? observed_elsewhere(trace, term.tensor) : term.observed);
    if (term.weight != 1 || payload == trace.payloads.end()) continue;
    after.left[row_major(term.tensor.view) ? name : by_elements(name)] = content_digest(*payload->second);
  }
  for (const auto& [name, leaf] : leaves) {
    const auto payload = trace.payloads.find(leaf->payload);
    if (payload == trace.payloads.end()) continue;
    const std::string digest = content_digest(*payload->second);
    after.untouched[name] = digest;
    const auto before = untouched.find(name);
    if (before != untouched.end() && before->second == digest) after.left[name] = digest;
  }
  return after;
}

namespace {

// More than one value: zeros and ones are what unrelated parameters begin with.
bool varied(const std::vector<std::uint8_t>& bytes, std::size_t element_bytes) {
  for (std::size_t i = element_bytes; i < bytes.size(); ++i)
    if (bytes[i] != bytes[i - element_bytes]) return true;
  return false;
}

}  // namespace

std::vector<Divergence> diverged_parameters(const Trace& trace) {
  std::vector<Divergence> found;
  if (trace.rank_digests.empty()) return found;
  std::map<std::string, const TraceLeaf*> leaves;
  std::map<std::string, const TraceTap*> taps;
  for (const TraceLeaf& leaf : trace.leaves)
    if (leaf.role == LeafRole::kParameter) leaves[leaf.name] = &leaf;
  for (const TraceTap& tap : trace.taps)
    if (tap.kind == TapKind::kUpdate) taps[tap.name] = &tap;
  for (const auto& [name, leaf] : leaves)
    if (unranked(name) != name && leaves.count(std::string(unranked(name))) != 0)
      found.push_back({std::string(unranked(name)), "", false});

  std::map<ValueId, PayloadId> of_leaves;
  for (const auto& [name, leaf] : leaves) of_leaves[leaf->value] = leaf->payload;
  // What the parameter is after the step.
  const auto content = [&](const TraceTap& tap) -> const std::vector<std::uint8_t>* {
    if (tap.terms.empty()) return nullptr;
    const TraceTap::Term& term = tap.terms.front();
    const auto leaf = of_leaves.find(term.tensor.value);
    const auto payload = trace.payloads.find(leaf == of_leaves.end() ? term.observed : leaf->second);
    return payload == trace.payloads.end() ? nullptr : payload->second.get();
  };
  for (const auto& [name, tap] : taps) {
    const std::string own(unranked(name));
    const std::string leaf = "param:" + own.substr(own.find(':') + 1);
    const auto before = leaves.find(leaf);
    if (own == name || before == leaves.end()) continue;
    const auto other = taps.find(own);
    const auto *ours = content(*tap), *theirs = other == taps.end() ? nullptr : content(*other->second);
    if (ours == nullptr || (theirs != nullptr && *ours == *theirs)) continue;
    if (other != taps.end() && theirs == nullptr) continue;
    const std::string rank = name.substr(0, name.size() - own.size());
    const auto payload = trace.payloads.find(before->second->payload);
    const bool replica = leaves.count(rank + leaf) == 0 && payload != trace.payloads.end() &&
                         varied(*payload->second, static_cast<std::size_t>(traits(before->second->format).bytes));
    found.push_back({leaf, name, replica});
  }
  return found;
}

std::vector<std::string> changed_leaves(const Trace& trace, const Digests& digests) {
  std::vector<std::string> changed;
  const std::set<ValueId> row_by_row = read_row_by_row(trace);
  for (const TraceLeaf& leaf : trace.leaves) {
    auto known = digests.find(leaf.name);
    if (known == digests.end() && row_by_row.contains(leaf.value)) known = digests.find(by_elements(leaf.name));
    const auto payload = trace.payloads.find(leaf.payload);
    if (leaf.name.empty() || known == digests.end() || payload == trace.payloads.end()) continue;
    const std::string now = content_digest(*payload->second);
    if (now.substr(32) == known->second.substr(32) && now != known->second) changed.push_back(leaf.name);
  }
  return changed;
}

}  // namespace plumbline
