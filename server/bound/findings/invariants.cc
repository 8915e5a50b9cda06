#include "server/bound/findings/invariants.h"

#include <xxhash.h>

#include <cstdio>

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

}  // namespace

std::map<std::string, std::string> digests_after(const Trace& trace) {
  std::map<std::string, std::string> digests;
  for (const TraceTap& tap : trace.taps) {
    if (tap.terms.empty()) continue;
    const TraceTap::Term& term = tap.terms.front();  // w_new of an update, the state itself
    const auto payload = trace.payloads.find(term.observed);
    if (term.weight != 1 || payload == trace.payloads.end() || !row_major(term.tensor.view)) continue;
    const std::string_view name = unranked(tap.name);
    const std::string rank = tap.name.substr(0, tap.name.size() - name.size());
    const std::size_t colon = name.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view of = name.substr(colon + 1);
    if (tap.kind == TapKind::kUpdate)
      digests[std::string(rank).append("param:").append(of)] = content_digest(*payload->second);
    if (tap.kind == TapKind::kState)
      digests[std::string(rank).append("state:").append(of)] = content_digest(*payload->second);
  }
  return digests;
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

std::vector<std::string> changed_leaves(const Trace& trace, const std::map<std::string, std::string>& digests) {
  std::vector<std::string> changed;
  for (const TraceLeaf& leaf : trace.leaves) {
    const auto known = digests.find(leaf.name);
    const auto payload = trace.payloads.find(leaf.payload);
    if (leaf.name.empty() || known == digests.end() || payload == trace.payloads.end()) continue;
    const std::string now = content_digest(*payload->second);
    if (now.substr(32) == known->second.substr(32) && now != known->second) changed.push_back(leaf.name);
  }
  return changed;
}

}  // namespace plumbline
