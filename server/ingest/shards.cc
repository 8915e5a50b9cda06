#include "server/ingest/shards.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

using Content = std::vector<std::uint8_t>;

constexpr std::size_t kPartsMax = 4096;

View row_major(const Shape& sizes) { return {sizes, row_major_strides(sizes), 0}; }

std::size_t bytes_of(Format format) { return static_cast<std::size_t>(traits(format).bytes); }

// A part is a box of the whole, or, where it tells one start for another number of sizes, a range of its elements.
bool is_range(const TracePart& part) { return part.start.size() != part.whole.size(); }

// The elements of the whole, row-major, that a part is.
View box_of(const TracePart& part) {
  if (is_range(part)) return {part.view.sizes, {1}, part.start[0]};
  View box{part.view.sizes, row_major_strides(part.whole), 0};
  for (std::size_t d = 0; d < part.start.size(); ++d) box.offset += part.start[d] * box.strides[d];
  return box;
}

std::string text_of(const TracePart& part) {
  std::string text;
  for (std::size_t d = 0; d < part.start.size(); ++d)
    absl::StrAppend(&text, d == 0 ? "[" : ", ", part.start[d], ":", part.start[d] + part.view.sizes[d]);
  return text + "]";
}

bool same_box(const TracePart& a, const TracePart& b) { return a.start == b.start && a.view.sizes == b.view.sizes; }

bool apart(const TracePart& a, const TracePart& b) {
  if (a.start.size() != b.start.size()) return false;
  for (std::size_t d = 0; d < a.start.size(); ++d)
    if (a.start[d] + a.view.sizes[d] <= b.start[d] || b.start[d] + b.view.sizes[d] <= a.start[d]) return true;
  return false;
}

// Whether every element of one whole is in one of these parts, or in several that are the same box. Each rank has a
// few: of more, which would take long to compare, it is not asked.
bool make_up_whole(const std::vector<const TracePart*>& parts) {
  if (parts.size() > kPartsMax) return false;
  std::int64_t covered = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i]->whole != parts[0]->whole) return false;
    const std::int64_t elements = count(parts[i]->view.sizes);
    bool known = elements == 0;
    for (std::size_t j = 0; j < i && !known; ++j) {
      if (count(parts[j]->view.sizes) == 0) continue;
      known = same_box(*parts[i], *parts[j]);
      if (!known && !apart(*parts[i], *parts[j])) return false;
    }
    if (!known) covered += elements;
  }
  return !parts.empty() && covered == count(parts[0]->whole);
}

// Copies the elements of one view to those of another, of the same sizes.
void copy_elements(const Content& from, const View& read, std::size_t element, const View& written, Content* to) {
  if (count(read.sizes) == 0) return;
  Shape index(read.sizes.size(), 0);
  std::int64_t source = read.offset, target = written.offset;
  for (std::size_t d = 1; d > 0;) {
    std::memcpy(to->data() + static_cast<std::size_t>(target) * element,
                from.data() + static_cast<std::size_t>(source) * element, element);
    for (d = index.size(); d > 0; --d) {
      source += read.strides[d - 1];
      target += written.strides[d - 1];
      if (++index[d - 1] < read.sizes[d - 1]) break;
      source -= index[d - 1] * read.strides[d - 1];
      target -= index[d - 1] * written.strides[d - 1];
      index[d - 1] = 0;
    }
  }
}

Content window_of(const Content& from, const View& view, Format format) {
  Content window(static_cast<std::size_t>(count(view.sizes)) * bytes_of(format));
  copy_elements(from, view, bytes_of(format), row_major(view.sizes), &window);
  return window;
}

// Null: none, or not here.
const Content* content_of(const Trace& trace, PayloadId id) {
  const auto found = trace.payloads.find(id);
  return found == trace.payloads.end() ? nullptr : found->second.get();
}

PayloadId next_payload(const Trace& trace) { return trace.payloads.empty() ? 1 : trace.payloads.rbegin()->first + 1; }

ValueId last_value(const Trace& trace) {
  ValueId last = 0;
  for (const TraceLeaf& leaf : trace.leaves) last = std::max(last, leaf.value);
  for (const TraceOp& op : trace.ops)
    for (const TraceResult& result : op.results) last = std::max(last, result.tensor.value);
  return last;
}

struct Held {
  const Trace* trace;
  const TraceLeaf* leaf;
};

// Content of the whole; null where the parts do not make it up, where replicas differ, or where anything but zeros
// (padding to the size of other ranks' parts) lies beside a part in its storage.
Bytes whole_of(const std::vector<Held>& held) {
  const TraceLeaf& first = *held.front().leaf;
  std::vector<const TracePart*> parts;
  for (const Held& one : held) {
    if (one.leaf->format != first.format || one.leaf->role != first.role) return nullptr;
    if (one.leaf->count > 0 && content_of(*one.trace, one.leaf->payload) == nullptr) return nullptr;
    parts.push_back(&*one.leaf->part);
  }
  if (!make_up_whole(parts)) return nullptr;
  const std::size_t element = bytes_of(first.format);
  auto whole = std::make_shared<Content>(static_cast<std::size_t>(count(parts[0]->whole)) * element);
  for (const Held& one : held)
    if (one.leaf->count > 0)
      copy_elements(*content_of(*one.trace, one.leaf->payload), one.leaf->part->view, element, box_of(*one.leaf->part),
                    whole.get());
  for (const Held& one : held) {
    if (one.leaf->count == 0) continue;
    const Content& storage = *content_of(*one.trace, one.leaf->payload);
    Content expected(storage.size());
    copy_elements(*whole, box_of(*one.leaf->part), element, one.leaf->part->view, &expected);
    if (expected != storage) return nullptr;
  }
  return whole;
}

// What a rank's storage holds, as a result of the whole.
TraceOp part_op(const TraceLeaf& leaf, ValueId whole) {
  TraceOp op;
  op.phase = Phase::kForward;
  TraceResult result{{leaf.value, leaf.format, leaf.part->view}, leaf.count, 0, "", 0};
  if (count(leaf.part->view.sizes) == 0) {  // Padding alone.
    op.name = "aten::zeros.default";
    op.arguments = {{"size", Shape{leaf.count}}, {"dtype", leaf.format}};
    result.tensor.view = row_major({leaf.count});
  } else {
    op.name = "plumbline::part.default";
    op.arguments = {{"input", TensorRef{whole, leaf.format, box_of(*leaf.part)}}};
  }
  op.results = {std::move(result)};
  return op;
}

void replace_leaf(Trace* trace, TraceLeaf* leaf, const Bytes& content, ValueId whole, std::vector<TraceOp>* first) {
  for (TraceTap& tap : trace->taps)
    for (TraceTap::Term& term : tap.terms) {
      if (term.tensor.value != leaf->value || term.observed != 0 || count(term.tensor.view.sizes) == 0) continue;
      const Content window = window_of(*content_of(*trace, leaf->payload), term.tensor.view, leaf->format);
      term.observed = next_payload(*trace);
      trace->payloads[term.observed] = std::make_shared<const Content>(window);
    }
  first->push_back(part_op(*leaf, whole));
  leaf->value = whole;
  leaf->count = count(leaf->part->whole);
  leaf->payload = next_payload(*trace);
  trace->payloads[leaf->payload] = content;
}

// The leaf that an update, or a state after the step, comes from.
std::string origin_of(const TraceTap& tap) {
  return tap.kind == TapKind::kState ? tap.name : "param:" + tap.name.substr(tap.name.find(':') + 1);
}

// What other ranks updated and this one, of which `trace` is, did not, is what it was.
void add_updates_left_out(const std::map<std::string, const TraceTap*>& updates, Trace* trace) {
  std::map<std::string, const TraceLeaf*> leaves;
  for (const TraceLeaf& leaf : trace->leaves)
    if (leaf.part) leaves[leaf.name] = &leaf;
  std::set<std::string> taps;
  for (const TraceTap& tap : trace->taps) taps.insert(tap.name);
  for (const auto& [name, update] : updates) {
    const auto leaf = leaves.find(origin_of(*update));
    if (leaf == leaves.end() || taps.count(name) != 0) continue;
    const TensorRef kept{leaf->second->value, leaf->second->format, leaf->second->part->view};
    TraceTap none;
    none.name = name;
    none.kind = update->kind;
    none.terms = {{kept, 1, 0}};
    if (none.kind == TapKind::kUpdate) none.terms.push_back({kept, -1, 0});
    none.part = leaf->second->part;
    trace->taps.push_back(std::move(none));
  }
}

// Terms of one tap on the ranks: of the same weights and types, and all of known content.
bool alike(const Trace& trace, const std::vector<const TraceTap*>& taps) {
  return std::all_of(taps.begin(), taps.end(), [&](const TraceTap* tap) {
    return tap->reference == 0 && tap->kind == taps[0]->kind &&
           std::equal(tap->terms.begin(), tap->terms.end(), taps[0]->terms.begin(), taps[0]->terms.end(),
                      [&](const TraceTap::Term& a, const TraceTap::Term& b) {
                        const bool known = count(a.tensor.view.sizes) == 0 || content_of(trace, a.observed) != nullptr;
                        return known && a.weight == b.weight && a.tensor.format == b.tensor.format;
                      });
  });
}

// Null: replicas of a part differ.
Bytes whole_term(const Trace& trace, const std::vector<const TraceTap*>& taps, std::size_t term) {
  const Format format = taps[0]->terms[term].tensor.format;
  const std::size_t element = bytes_of(format);
  auto whole = std::make_shared<Content>(static_cast<std::size_t>(count(taps[0]->part->whole)) * element);
  const auto of_part = [&](const TraceTap* tap) { return content_of(trace, tap->terms[term].observed); };
  for (const TraceTap* tap : taps)
    if (const Content* part = of_part(tap))
      copy_elements(*part, row_major(tap->part->view.sizes), element, box_of(*tap->part), whole.get());
  for (const TraceTap* tap : taps)
    if (const Content* part = of_part(tap); part != nullptr && window_of(*whole, box_of(*tap->part), format) != *part)
      return nullptr;
  return whole;
}

TraceOp whole_op(const std::vector<const TraceTap*>& taps, std::size_t term, const TensorRef& whole) {
  std::vector<TensorRef> parts;
  std::vector<std::int64_t> offsets;
  for (const TraceTap* tap : taps) {
    if (count(tap->part->view.sizes) == 0) continue;
    parts.push_back(tap->terms[term].tensor);
    offsets.push_back(box_of(*tap->part).offset);
  }
  TraceOp op;
  op.name = "plumbline::whole.default";
  op.arguments = {{"parts", std::move(parts)}, {"offsets", std::move(offsets)}};
  op.results = {{whole, count(whole.view.sizes), 0, "", 0}};
  if (is_range(*taps[0]->part)) op.results[0].tensor.view = row_major({count(whole.view.sizes)});
  return op;
}

}  // namespace

std::uint64_t bytes_of_wholes(const std::vector<std::shared_ptr<const Trace>>& ranks) {
  double bytes = 0;
  const auto add = [&bytes](const Shape& sizes, Format format) {
    bytes += static_cast<double>(count(sizes)) * static_cast<double>(bytes_of(format));
  };
  std::set<std::string> leaves, taps;
  for (const auto& trace : ranks) {
    std::set<ValueId> parts;
    for (const TraceLeaf& leaf : trace->leaves) {
      if (!leaf.part) continue;
      parts.insert(leaf.value);
      if (leaves.insert(leaf.name).second) add(leaf.part->whole, leaf.format);
    }
    for (const TraceTap& tap : trace->taps) {
      const bool first = tap.part && taps.insert(tap.name).second;
      for (const TraceTap::Term& term : tap.terms) {
        if (first) add(tap.part->whole, term.tensor.format);
        if (tap.part || parts.count(term.tensor.value) != 0) add(term.tensor.view.sizes, term.tensor.format);
      }
    }
  }
  return static_cast<std::uint64_t>(std::min(bytes, 0x1p62));
}

std::vector<std::shared_ptr<const Trace>> with_whole_leaves(std::vector<std::shared_ptr<const Trace>> ranks) {
  std::map<std::string, std::vector<Held>> held;
  std::map<std::string, const TraceTap*> updates;
  for (const auto& trace : ranks) {
    for (const TraceLeaf& leaf : trace->leaves)
      if (leaf.part) held[leaf.name].push_back({trace.get(), &leaf});
    for (const TraceTap& tap : trace->taps)
      if (tap.part && outlives_step(tap.kind)) updates.emplace(tap.name, &tap);
  }
  if (held.empty()) return ranks;
  std::map<std::string, Bytes> wholes;
  for (const auto& [name, parts] : held)
    if (Bytes whole = whole_of(parts)) wholes[name] = std::move(whole);

  std::vector<std::shared_ptr<const Trace>> result;
  for (const auto& trace : ranks) {
    auto changed = std::make_shared<Trace>(*trace);
    add_updates_left_out(updates, changed.get());
    ValueId last = last_value(*changed);
    std::vector<TraceOp> first;
    for (TraceLeaf& leaf : changed->leaves) {
      const auto whole = leaf.part && leaf.count > 0 ? wholes.find(leaf.name) : wholes.end();
      if (whole != wholes.end()) replace_leaf(changed.get(), &leaf, whole->second, ++last, &first);
      leaf.part.reset();
    }
    changed->ops.insert(changed->ops.begin(), first.begin(), first.end());
    result.push_back(std::move(changed));
  }
  return result;
}

void make_taps_whole(Trace* joined) {
  std::map<std::string, std::vector<const TraceTap*>> by_name;
  for (const TraceTap& tap : joined->taps)
    if (tap.part) by_name[std::string(unranked(tap.name))].push_back(&tap);
  if (by_name.empty()) return;
  ValueId last = last_value(*joined);
  // The first tap of each whole is replaced by the whole, the others by nothing.
  std::map<const TraceTap*, std::optional<TraceTap>> replaced;
  for (const auto& [name, taps] : by_name) {
    std::vector<const TracePart*> parts;
    for (const TraceTap* tap : taps) parts.push_back(&*tap->part);
    if (!make_up_whole(parts) || !alike(*joined, taps)) continue;
    std::vector<Bytes> contents;
    for (std::size_t t = 0; t < taps[0]->terms.size(); ++t) contents.push_back(whole_term(*joined, taps, t));
    if (std::any_of(contents.begin(), contents.end(), [](const Bytes& bytes) { return bytes == nullptr; })) continue;
    TraceTap whole = *taps[0];
    whole.name = name;
    for (std::size_t t = 0; t < contents.size(); ++t) {
      TraceTap::Term& term = whole.terms[t];
      term.tensor = {++last, term.tensor.format, row_major(parts[0]->whole)};
      joined->ops.push_back(whole_op(taps, t, term.tensor));
      term.observed = next_payload(*joined);
      joined->payloads[term.observed] = contents[t];
    }
    for (const TraceTap* tap : taps) replaced[tap];
    replaced[taps[0]] = std::move(whole);
  }
  std::vector<TraceTap> result;
  for (TraceTap& tap : joined->taps) {
    const auto whole = replaced.find(&tap);
    if (whole == replaced.end()) {
      if (tap.part) tap.name += text_of(*tap.part);
      result.push_back(std::move(tap));
    } else if (whole->second) {
      result.push_back(*std::move(whole->second));
    } else {
      continue;
    }
    result.back().part.reset();
  }
  joined->taps = std::move(result);
}

}  // namespace plumbline
