#include "server/bound/invariants.h"

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
    const std::size_t colon = tap.name.find(':');
    if (colon == std::string::npos) continue;
    if (tap.kind == TapKind::kUpdate) digests["param:" + tap.name.substr(colon + 1)] = content_digest(*payload->second);
    if (tap.kind == TapKind::kState) digests["state:" + tap.name.substr(colon + 1)] = content_digest(*payload->second);
  }
  return digests;
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
