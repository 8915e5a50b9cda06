#include "server/nodes/part.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/nodes/fingerprint.h"
#include "server/nodes/sketch.h"

namespace plumbline {
namespace {

using absl::StrCat;
using Key = std::tuple<std::vector<std::int64_t>, std::int64_t, std::int64_t>;  // Group, tag and number of a call.

const Bytes* content(const Trace& trace, PayloadId id) {
  const auto found = trace.payloads.find(id);
  return id == 0 || found == trace.payloads.end() || !found->second ? nullptr : &found->second;
}

std::uint64_t digest(const Bytes* bytes) {
  if (bytes == nullptr) return 0;
  const std::uint64_t made = XXH3_64bits((*bytes)->data(), (*bytes)->size());
  return made == 0 ? 1 : made;
}

void write(const ContentPrint& print, v1::Fingerprint* to) {
  to->set_first(print.first);
  to->set_second(print.second);
}

// Of one rank, by name.
std::map<std::string, v1::Replica> replicas_of(const Trace& trace) {
  std::map<std::string, v1::Replica> replicas;
  std::map<ValueId, PayloadId> of_leaves;
  for (const TraceLeaf& leaf : trace.leaves) {
    if (leaf.role != LeafRole::kParameter || leaf.name.empty() || leaf.part) continue;
    of_leaves[leaf.value] = leaf.payload;
    v1::Replica& replica = replicas[leaf.name];
    replica.set_name(leaf.name);
    replica.set_before(digest(content(trace, leaf.payload)));
    replica.set_after(replica.before());
  }
  for (const TraceTap& tap : trace.taps) {
    if (tap.kind != TapKind::kUpdate || tap.terms.empty()) continue;
    const auto replica = replicas.find(StrCat("param:", tap.name.substr(tap.name.find(':') + 1)));
    if (replica == replicas.end()) continue;
    const TraceTap::Term& term = tap.terms.front();
    const auto leaf = of_leaves.find(term.tensor.value);
    replica->second.set_after(digest(content(trace, leaf == of_leaves.end() ? term.observed : leaf->second)));
  }
  return replicas;
}

class Crossings {
 public:
  Crossings(const StepIdentity& step, std::set<std::int64_t> here, v1::NodePart* part)
      : step_(step), here_(std::move(here)), part_(part) {}

  void add(std::int32_t rank, const Trace& trace) {
    for (const TraceOp& op : trace.ops) {
      const auto call = collective_call(op);
      if (!call || op.results.size() != 1) continue;
      const bool inside = std::all_of(call->group.begin(), call->group.end(),
                                      [&](std::int64_t member) { return here_.count(member) != 0; });
      if (inside || std::find(call->group.begin(), call->group.end(), rank) == call->group.end()) continue;
      Made* const made = call_of(*call, op.source);
      if (made == nullptr) continue;
      if (made->wire->sides_size() == 0 || made->wire->sides(made->wire->sides_size() - 1).rank() != rank)
        made->wire->add_sides()->set_rank(rank);
      v1::CrossingSide* const side = made->wire->mutable_sides(made->wire->sides_size() - 1);
      if (call->send) {
        add_sent(*call, trace, op.results[0], made, side);
      } else {
        add_received(rank, *call, trace, op.results[0], made, side);
      }
    }
  }

  void finish() {
    for (auto& [key, made] : calls_) {
      if (!made) continue;
      for (const auto& [place, sum] : made->sums) {
        v1::SentSum* const wire = made->wire->add_sums();
        wire->set_part(place.first);
        wire->set_share(static_cast<std::uint32_t>(place.second));
        wire->set_count(sum.count);
        wire->set_terms(sum.terms);
        write(sum.sketch, wire->mutable_sketch());
      }
    }
    leave_out();
  }

 private:
  struct Sum {
    std::int64_t count = 0;
    std::uint32_t terms = 0;
    TensorSketch sketch;
  };
  struct Made {
    v1::CrossingCall* wire = nullptr;
    std::uint64_t seed = 0;
    std::map<std::pair<int, std::size_t>, Sum> sums;         // By part and share.
    std::map<int, std::pair<std::uint64_t, bool>> received;  // By part: the content that a sketch was made of last.
  };

  static void write(const TensorSketch& from, v1::Sketch* to) {
    to->mutable_sums()->Assign(from.sums.begin(), from.sums.end());
    for (const double norm : from.norms) to->add_norms(above(norm));
  }
  static float above(double x) {
    const auto near = static_cast<float>(x);
    return static_cast<double>(near) >= x ? near : std::nextafter(near, std::numeric_limits<float>::infinity());
  }

  Made* call_of(const CollectiveCall& call, const std::string& source) {
    const auto [found, fresh] = calls_.try_emplace(Key(call.group, call.tag, call.number));
    if (!fresh) return &*found->second;
    Made& made = found->second.emplace();
    made.seed = call_seed(step_, call);
    made.wire = part_->add_calls();
    made.wire->set_kind(call.kind);
    made.wire->set_reduction(call.reduction);
    std::int64_t before = 0;
    for (const std::int64_t member : call.group) made.wire->add_group(member - std::exchange(before, member));
    made.wire->set_tag(call.tag);
    made.wire->set_number(call.number);
    made.wire->set_root(call.root);
    made.wire->set_source(source);
    return &made;
  }

  void add_sent(const CollectiveCall& call, const Trace& trace, const TraceResult& result, Made* made,
                v1::CrossingSide* side) const {
    const Bytes* const bytes = content(trace, result.observed);
    const int element_bytes = traits(result.tensor.format).bytes;
    if (result.count == 0) return;  // Tells only that the call was made.
    v1::SentPart* const sent = side->add_sent();
    sent->set_part(call.part);
    sent->set_dtype(static_cast<v1::DType>(result.tensor.format));
    sent->set_count(result.count);
    sent->mutable_splits()->Assign(call.splits.begin(), call.splits.end());
    const auto shares = shares_of(call.kind, call.splits, result.count, call.group.size());
    if (bytes == nullptr || (*bytes)->size() != static_cast<std::size_t>(result.count * element_bytes)) return;
    const Fingerprinter prints(made->seed);
    std::int64_t begin = 0;
    for (std::size_t share = 0; share < shares.size(); begin += shares[share++]) {
      const std::uint8_t* const at = (*bytes)->data() + begin * element_bytes;
      if (call.reduction.empty()) {
        write_print(prints, at, shares[share], element_bytes, sent->add_shares());
        continue;
      }
      const TensorSketch one =
          sketch(result.tensor.format, at, shares[share], sketch_shape(shares[share], shares.size()),
                 share_seed(made->seed, call.part, share));
      Sum& sum = made->sums[{call.part, share}];
      if (sum.sketch.sums.empty()) {
        sum = {shares[share], 1, one};
      } else if (sum.count == shares[share]) {
        add_to(&sum.sketch, one, call.reduction);
        ++sum.terms;
      }
    }
  }

  // Together with what another rank here sent: by the reduction, which projections know for sums alone.
  static void add_to(TensorSketch* sum, const TensorSketch& one, const std::string& reduction) {
    for (std::size_t i = 0; i < one.sums.size(); ++i) {
      double& into = sum->sums[i];
      if (reduction == "max") {
        into = std::max(into, one.sums[i]);
      } else if (reduction == "min") {
        into = std::min(into, one.sums[i]);
      } else {
        into += one.sums[i];
      }
    }
    for (std::size_t i = 0; i < one.norms.size(); ++i) sum->norms[i] += one.norms[i];
  }

  void add_received(std::int32_t rank, const CollectiveCall& call, const Trace& trace, const TraceResult& result,
                    Made* made, v1::CrossingSide* side) const {
    const auto index =
        static_cast<std::size_t>(std::find(call.group.begin(), call.group.end(), rank) - call.group.begin());
    const Flow flow = flow_of(call, index, {});
    const Bytes* const bytes = content(trace, result.observed);
    const Format format = result.tensor.format;
    const std::int64_t elements = count(result.tensor.view.sizes);
    const bool whole =
        bytes != nullptr && (*bytes)->size() == static_cast<std::size_t>(elements * traits(format).bytes);
    if (flow.needed.empty() || elements == 0 || !whole) return;
    v1::ReceivedPart* const got = side->add_received();
    got->set_part(call.part);
    got->set_dtype(static_cast<v1::DType>(format));
    got->set_count(elements);
    if (call.reduction.empty()) {
      write_print(Fingerprinter(made->seed), (*bytes)->data(), elements, traits(format).bytes, got->mutable_content());
      return;
    }
    // Of the results of several ranks that are one, one has a sketch: those of a reduction that gives all the same.
    const bool cut = sends_shares(call.kind);
    const int from = flow.needed.front().part;
    if (!cut && from == call.part) {
      const std::uint64_t now = digest(bytes);
      auto& before = made->received[call.part];
      if (std::exchange(before, {now, true}) == std::pair(now, true)) return;
    }
    const std::size_t shares = cut ? call.group.size() : 1;
    write(sketch(format, (*bytes)->data(), elements, sketch_shape(elements, shares),
                 share_seed(made->seed, from, cut ? index : 0)),
          got->mutable_sketch());
  }

  static void write_print(const Fingerprinter& prints, const std::uint8_t* at, std::int64_t elements, int element_bytes,
                          v1::Fingerprint* to) {
    const auto bytes = static_cast<std::size_t>(element_bytes);
    plumbline::write(prints.of({at, static_cast<std::size_t>(elements) * bytes}, bytes), to);
  }

  void leave_out() const {
    std::size_t bytes = part_->ByteSizeLong();
    const int all = part_->calls_size();
    int kept = 0;
    std::size_t used = 0;
    for (const v1::CrossingCall& call : part_->calls()) bytes -= call.ByteSizeLong() + 6;
    for (; kept < all; ++kept) {
      used += part_->calls(kept).ByteSizeLong() + 6;
      if (bytes + used > kPartBytesMax) break;
    }
    part_->set_calls_left_out(static_cast<std::uint32_t>(all - kept));
    part_->mutable_calls()->DeleteSubrange(kept, all - kept);
  }

  const StepIdentity step_;
  const std::set<std::int64_t> here_;
  v1::NodePart* const part_;
  std::map<Key, std::optional<Made>> calls_;
};

}  // namespace

std::uint64_t call_seed(const StepIdentity& step, const CollectiveCall& call) {
  const std::string text = StrCat(step.project, "/", step.job, "/", step.run, "/", step.step, " ",
                                  absl::StrJoin(call.group, ","), " ", call.tag, " ", call.number);
  return XXH3_64bits(text.data(), text.size());
}

std::uint64_t share_seed(std::uint64_t call, int part, std::size_t share) {
  return mixed(mixed(call + static_cast<std::uint64_t>(part)) + share);
}

std::vector<std::int64_t> shares_of(const std::string& kind, const std::vector<std::int64_t>& splits,
                                    std::int64_t count, std::size_t ranks) {
  if (!sends_shares(kind)) return {count};
  const auto n = static_cast<std::int64_t>(ranks);
  if (splits.empty()) return count % n == 0 ? std::vector<std::int64_t>(ranks, count / n) : std::vector<std::int64_t>();
  std::int64_t left = count;
  for (const std::int64_t split : splits) {
    if (split < 0 || split > left) return {};
    left -= split;
  }
  return left == 0 && splits.size() == ranks ? splits : std::vector<std::int64_t>();
}

v1::NodePart part_without_calls(const std::vector<std::shared_ptr<const Trace>>& traces,
                                const std::vector<std::int32_t>& missing, std::int32_t ranks_of_run) {
  v1::NodePart part;
  part.set_version(kNodePartVersion);
  part.set_ranks_of_run(ranks_of_run);
  part.set_rounding(1);
  part.mutable_missing()->Assign(missing.begin(), missing.end());
  for (const auto& trace : traces) {
    part.add_ranks(trace->identity.rank);
    part.add_rank_digests(trace->digest);
  }
  return part;
}

v1::NodePart make_part(const std::vector<std::shared_ptr<const Trace>>& traces, std::int32_t ranks_of_run,
                       bool replicated, const Profile& profile) {
  v1::NodePart part = part_without_calls(traces, {}, ranks_of_run);
  if (traces.empty()) return part;
  part.set_replicated(replicated);
  part.set_rounding(profile.rounding == Rounding::kNearest ? 1 : 2);
  part.set_flushes(profile.flush_subnormals);
  Crossings crossings(traces.front()->identity, {part.ranks().begin(), part.ranks().end()}, &part);
  for (const auto& trace : traces) crossings.add(trace->identity.rank, *trace);
  if (replicated) {
    for (const auto& [name, replica] : replicas_of(*traces.front())) {
      if (static_cast<std::size_t>(part.replicas_size()) >= kReplicasMax) break;
      *part.add_replicas() = replica;
    }
  }
  crossings.finish();
  return part;
}

void set_verdict(const v1::Verdict& verdict, v1::NodePart* part) {
  v1::Verdict* const to = part->mutable_verdict();
  *to = verdict;
  to->clear_taps();
  to->clear_alignment();
  to->clear_wanted();
  to->clear_rank_digests();
  to->mutable_coverage()->clear_audited_modules();
  to->mutable_coverage()->clear_left_out();
}

}  // namespace plumbline
