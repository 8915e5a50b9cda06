#include "server/ingest/join.h"

#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/ingest/collective.h"
#include "server/ingest/recipe.h"
#include "server/ingest/shards.h"

namespace plumbline {
namespace {

using absl::StrCat;

struct Fault {
  std::string text, source;
  bool contradiction = false;
};

// Less i: a result that writes upon result i of the same operation (copies to several parts of one storage).
constexpr ValueId kOwnResult = std::numeric_limits<ValueId>::max();

std::string joined_digest(const std::vector<std::string>& digests) {
  const std::string all = absl::StrJoin(digests, ",");
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

class Join {
 public:
  Join(const std::vector<std::shared_ptr<const Trace>>& ranks, bool replicated, std::int32_t ranks_of_run)
      : ranks_(ranks), at_(ranks.size()), ranks_of_run_(static_cast<std::int64_t>(ranks.size())) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      numbers_.push_back(ranks_of_run == 0 ? rank : static_cast<std::size_t>(ranks[rank]->identity.rank));
    if (ranks_of_run > 0) ranks_of_run_ = ranks_of_run;
    const Trace& first = *ranks.front();
    joined_.identity = first.identity;
    joined_.scope = first.scope;
    joined_.outputs = first.outputs;
    joined_.replicated = replicated;
    for (const auto& trace : ranks) {
      joined_.outputs = joined_.outputs && trace->outputs;
      joined_.missed = std::max(joined_.missed, trace->missed);
      if (trace->missed_reasons.size() > joined_.missed_reasons.size()) joined_.missed_reasons = trace->missed_reasons;
      joined_.rank_digests.push_back(trace->digest);
    }
    joined_.digest = joined_digest(joined_.rank_digests);
  }

  Joined run() {
    try {
      collect_calls();
      compare_calls();
      collect_names();
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) add_leaves(rank);
      add_ops();
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) add_taps(rank);
      make_taps_whole(&joined_);
    } catch (const Fault& fault) {
      return {nullptr, fault.text, fault.contradiction, fault.source};
    } catch (const std::out_of_range&) {
      return {nullptr, "an operation reads what no rank was sent", false, ""};
    }
    return {std::make_shared<const Trace>(std::move(joined_)), "", false, ""};
  }

 private:
  // Ranks are counted as they are in ranks_; in the run, in calls and in names they have numbers of their own.
  std::size_t number(std::size_t rank) const { return numbers_[rank]; }
  bool here(std::int64_t member) const {
    return std::binary_search(numbers_.begin(), numbers_.end(), static_cast<std::size_t>(member));
  }
  bool crosses(const CollectiveCall& call) const {
    return !std::all_of(call.group.begin(), call.group.end(), [&](std::int64_t member) { return here(member); });
  }

  std::string of_rank(std::size_t rank, const std::string& name) const {
    return rank == 0 || name.empty() ? name : StrCat("rank", number(rank), "/", name);
  }

  // What a rank did in one call of a group.
  struct Side {
    CollectiveCall call;              // The call of its first operation.
    std::map<int, TensorRef> sent;    // Each part is sent in the rank's own values.
    std::map<int, TensorRef> joined;  // The same, in the joined trace's, as far as they are there yet.
    std::map<int, std::vector<std::int64_t>> splits;
    std::map<int, const Bytes*> contents;  // What was observed of `sent`; null: nothing.
    std::string source;
  };
  using Channel = std::pair<std::vector<std::int64_t>, std::int64_t>;  // Group, tag.
  using Key = std::pair<Channel, std::int64_t>;                        // And the number of the call.

  static Key key_of(const CollectiveCall& call) { return {{call.group, call.tag}, call.number}; }

  void collect_calls() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const TraceOp& op : ranks_[rank]->ops) {
        const auto call = collective_call(op);
        if (!call) continue;
        for (const std::int64_t member : call->group)
          if (member < 0 || member >= ranks_of_run_)
            throw Fault{StrCat("rank ", number(rank), " calls ", described(*call), " with rank ", member,
                               ", and the run has ", ranks_of_run_, " ranks"),
                        op.source};
        auto [side, fresh] = calls_[key_of(*call)].try_emplace(number(rank));
        if (fresh) {
          side->second.call = *call;
          side->second.source = op.source;
        }
        if (!call->send) continue;
        if (op.results.size() != 1 || side->second.sent.count(call->part) != 0)
          throw Fault{StrCat("rank ", number(rank), " sent part ", call->part, " of ", described(*call), " twice"),
                      op.source};
        side->second.sent[call->part] = op.results[0].tensor;
        side->second.splits[call->part] = call->splits;
        side->second.contents[call->part] = content(*ranks_[rank], op.results[0].observed);
      }
    }
  }

  static std::string describe(const Side& side) {
    std::string text = described(side.call);
    for (const auto& [part, tensor] : side.sent)
      absl::StrAppend(&text, part == 0 ? " of " : ", ", count(tensor.view.sizes), " ",
                      std::string(traits(tensor.format).name));
    if (!side.source.empty()) absl::StrAppend(&text, " (", side.source, ")");
    return text;
  }

  // Whether two ranks' shares in a call can belong together.
  static bool fit(const Side& a, const Side& b) {
    if (a.call.kind != b.call.kind || a.call.reduction != b.call.reduction || a.call.root != b.call.root) return false;
    if (!sends_alike(a.call.kind)) return true;
    return std::equal(a.sent.begin(), a.sent.end(), b.sent.begin(), b.sent.end(), [](const auto& x, const auto& y) {
      return x.first == y.first && x.second.format == y.second.format &&
             count(x.second.view.sizes) == count(y.second.view.sizes);
    });
  }

  void compare_calls() {
    for (const auto& [key, sides] : calls_) {
      for (const std::int64_t member : key.first.first) {
        if (!here(member) || sides.count(static_cast<std::size_t>(member)) != 0) continue;
        const auto& [rank, side] = *sides.begin();
        throw Fault{StrCat("rank ", rank, " makes call ", key.second, " of its group, ", describe(side), ", and rank ",
                           member, " makes only ", calls_of(key.first, static_cast<std::size_t>(member))),
                    side.source};
      }
    }
    for (const auto& [key, sides] : calls_) {
      const auto& [first, expected] = *sides.begin();
      for (const auto& [rank, side] : sides)
        if (!fit(expected, side))
          throw Fault{StrCat("in call ", key.second, " of their group rank ", first, " makes ", describe(expected),
                             ", and rank ", rank, " ", describe(side)),
                      side.source, /*contradiction=*/true};
    }
  }

  std::size_t calls_of(const Channel& channel, std::size_t rank) const {
    std::size_t calls = 0;
    for (const auto& [key, sides] : calls_) calls += key.first == channel ? sides.count(rank) : 0;
    return calls;
  }

  // Names.

  void collect_names() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const TraceLeaf& leaf : ranks_[rank]->leaves)
        if (persistent(leaf.role) && leaf.count > 0) holders_[leaf.name].insert(rank);
      for (const TraceTap& tap : ranks_[rank]->taps)
        if (tap.kind != TapKind::kValue) holders_[tap.name].insert(rank);
    }
  }

  bool held_elsewhere(std::size_t rank, const std::string& name) const {
    const auto holders = holders_.find(name);
    return holders != holders_.end() && holders->second.size() > holders->second.count(rank);
  }

  // What one rank alone holds keeps its name, as the stages of a pipeline do: it is that of a run without ranks.
  std::string name_of(std::size_t rank, const std::string& name) const {
    const std::size_t colon = name.find(':');
    const std::string parameter = StrCat("param:", colon == std::string::npos ? name : name.substr(colon + 1));
    const bool alone = holders_.count(name) != 0 && !held_elsewhere(rank, name) && !held_elsewhere(rank, parameter);
    return alone ? name : of_rank(rank, name);
  }

  // Leaves and payloads.

  ValueId fresh_value() { return ++last_value_; }

  const Bytes* content(const Trace& trace, PayloadId id) const {
    const auto found = trace.payloads.find(id);
    return id == 0 || found == trace.payloads.end() || !found->second ? nullptr : &found->second;
  }

  PayloadId take_payload(std::size_t rank, PayloadId id) {
    const Bytes* bytes = content(*ranks_[rank], id);
    if (bytes == nullptr) return 0;
    auto [known, fresh] = at_[rank].payloads.try_emplace(id, 0);
    if (fresh) {
      known->second = ++last_payload_;
      joined_.payloads[known->second] = *bytes;
    }
    return known->second;
  }

  // Whether a payload of a rank equals one that was taken; none equals none.
  bool same_content(std::size_t rank, PayloadId id, PayloadId taken) const {
    const Bytes *own = content(*ranks_[rank], id), *other = content(joined_, taken);
    if (own == nullptr || other == nullptr) return own == other;
    return *own == *other || **own == **other;
  }

  void add_leaves(std::size_t rank) {
    using Kind = std::tuple<LeafRole, Format, std::int64_t, std::string>;
    std::vector<std::pair<Kind, std::size_t>> added;
    for (const TraceLeaf& leaf : ranks_[rank]->leaves) {
      const Kind kind{leaf.role, leaf.format, leaf.count, leaf.name};
      const auto [first, last] = leaves_.equal_range(kind);
      const auto equal = std::find_if(first, last, [&](const auto& known) {
        return content(*ranks_[rank], leaf.payload) != nullptr &&
               same_content(rank, leaf.payload, joined_.leaves[known.second].payload);
      });
      if (equal != last) {
        at_[rank].values[leaf.value] = joined_.leaves[equal->second].value;
        continue;
      }
      TraceLeaf taken = leaf;
      taken.value = at_[rank].values[leaf.value] = fresh_value();
      taken.payload = take_payload(rank, leaf.payload);
      // Others hold parts of it, and this rank holds none.
      const bool nothing = leaf.count == 0 && held_elsewhere(rank, leaf.name);
      taken.name = nothing ? StrCat("rank", number(rank), "/", leaf.name) : name_of(rank, leaf.name);
      added.emplace_back(kind, joined_.leaves.size());
      joined_.leaves.push_back(std::move(taken));
    }
    leaves_.insert(added.begin(), added.end());  // Now: a rank's own leaves stay apart.
  }

  // Operations.

  TensorRef mapped(std::size_t rank, TensorRef tensor) const {
    if (tensor.value != 0) tensor.value = at_[rank].values.at(tensor.value);
    return tensor;
  }

  TraceArgument mapped(std::size_t rank, const TraceArgument& argument) const {
    TraceArgument result = argument;
    if (auto* tensor = std::get_if<TensorRef>(&result.value)) *tensor = mapped(rank, *tensor);
    if (auto* edge = std::get_if<ScalarEdge>(&result.value)) edge->source = mapped(rank, edge->source);
    if (auto* tensors = std::get_if<std::vector<TensorRef>>(&result.value))
      for (TensorRef& tensor : *tensors) tensor = mapped(rank, tensor);
    return result;
  }

  // Whether nothing is left of what the written storage held, and so of the ranks' own pasts.
  static bool writes_all(const std::vector<TraceResult>& results) {
    return std::all_of(results.begin(), results.end(), [](const TraceResult& written) {
      const View& view = written.tensor.view;
      return count(view.sizes) == written.count && view.offset == 0 && view.strides == row_major_strides(view.sizes);
    });
  }

  // An operation's results in the joined trace are fresh; payloads are still the rank's.
  TraceOp mapped(std::size_t rank, const TraceOp& op) const {
    TraceOp result = op;
    result.arguments.clear();
    for (const TraceArgument& argument : op.arguments) result.arguments.push_back(mapped(rank, argument));
    for (TraceResult& written : result.results) {
      const auto own = std::find_if(op.results.begin(), op.results.end(),
                                    [&](const TraceResult& other) { return other.tensor.value == written.base; });
      if (written.base == 0) continue;
      written.base = own == op.results.end() ? at_[rank].values.at(written.base)
                                             : kOwnResult - static_cast<ValueId>(own - op.results.begin());
    }
    if (op.name == "aten::copy_.default" && writes_all(op.results)) {
      result.results[0].base = 0;
      for (TraceArgument& argument : result.arguments)
        if (auto* self = std::get_if<TensorRef>(&argument.value); self != nullptr && argument.name == "self")
          self->value = 0;
    }
    if (rank > 0) result.module = StrCat("rank", number(rank), result.module.empty() ? "" : "/", result.module);
    return result;
  }

  // Takes what another rank computed alike: values of `op` become those of the one that is there.
  bool merge(std::size_t rank, const TraceOp& op, const std::string& recipe) {
    const auto [first, last] = ops_.equal_range(recipe);
    for (auto it = first; it != last; ++it) {
      if (it->second.first == rank) continue;
      TraceOp& known = joined_.ops[it->second.second];
      bool same = same_content(rank, op.decision, known.decision);
      for (std::size_t i = 0; same && i < op.results.size(); ++i) {
        // Ranks are told to observe results at different times: what one alone observed contradicts nothing.
        const PayloadId own = op.results[i].observed, other = known.results[i].observed;
        same = own == 0 || other == 0 || same_content(rank, own, other);
      }
      if (!same) continue;
      for (std::size_t i = 0; i < op.results.size(); ++i) {
        at_[rank].values[op.results[i].tensor.value] = known.results[i].tensor.value;
        if (known.results[i].observed == 0) known.results[i].observed = take_payload(rank, op.results[i].observed);
      }
      return true;
    }
    return false;
  }

  void add_op(std::size_t rank, TraceOp op) {
    const std::string same = recipe(op);
    if (merge(rank, op, same)) return;
    for (TraceResult& result : op.results) {
      if (kOwnResult - result.base < op.results.size())
        result.base = op.results[static_cast<std::size_t>(kOwnResult - result.base)].tensor.value;
      if (result.tensor.value != 0) {
        const ValueId fresh = fresh_value();
        at_[rank].values[result.tensor.value] = fresh;
        result.tensor.value = fresh;
      }
      result.observed = take_payload(rank, result.observed);
    }
    op.decision = take_payload(rank, op.decision);
    ops_.emplace(same, std::pair(rank, joined_.ops.size()));
    joined_.ops.push_back(std::move(op));
  }

  void add_ops() {
    std::vector<std::size_t> next(ranks_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        while (next[rank] < ranks_[rank]->ops.size() && take(rank, ranks_[rank]->ops[next[rank]])) {
          ++next[rank];
          moved = true;
        }
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      if (next[rank] < ranks_[rank]->ops.size())
        throw Fault{StrCat("rank ", number(rank), " got the result of ", ranks_[rank]->ops[next[rank]].name,
                           " before all of its group had sent their part"),
                    ranks_[rank]->ops[next[rank]].source};
  }

  // Messages are counted within a step. Other bits than those of the message with that number are another one's, of the
  // step before, say: nothing is said of what they should be.
  void check_message(std::size_t rank, const CollectiveCall& call, const TraceOp& op,
                     const std::map<std::size_t, Side>& sides) const {
    const auto sender = sides.find(static_cast<std::size_t>(call.root));
    const Bytes* const own = content(*ranks_[rank], op.results.front().observed);
    if (sender == sides.end() || own == nullptr) return;
    const auto sent = sender->second.contents.find(call.part);
    if (sent == sender->second.contents.end() || sent->second == nullptr || **sent->second == **own) return;
    throw Fault{StrCat("what rank ", number(rank), " got is not the ", described(call), ", number ", call.number,
                       " in this step: it is that of another step, or was changed on its way"),
                op.source};
  }

  // False: it waits for what another rank sends.
  bool take(std::size_t rank, const TraceOp& op) {
    const auto call = collective_call(op);
    if (!call) {
      add_op(rank, mapped(rank, op));
      return true;
    }
    auto& sides = calls_.at(key_of(*call));
    TraceOp plain = mapped(rank, op);
    if (call->send) {
      plain.name = "plumbline::send.default";
      std::erase_if(plain.arguments, [](const TraceArgument& argument) { return argument.name != "input"; });
      TensorRef& content = sides.at(number(rank)).joined[call->part];
      if (op.results[0].count == 0) return true;  // Tells only that the call was made.
      add_op(rank, std::move(plain));
      content = mapped(rank, op.results[0].tensor);
      if (crosses(*call)) add_sent(rank, *call, op.results[0], content);
      return true;
    }
    const auto index = std::find(call->group.begin(), call->group.end(), static_cast<std::int64_t>(number(rank)));
    if (index == call->group.end())
      throw Fault{StrCat("rank ", number(rank), " got the result of ", described(*call), ", and is not of its group"),
                  op.source};
    std::map<std::size_t, SentTensors> sent;
    for (const auto& [member, side] : sides) sent[member] = {side.joined, side.splits};
    const auto flow = flow_of(*call, static_cast<std::size_t>(index - call->group.begin()), sent);
    const bool foreign = std::any_of(flow.needed.begin(), flow.needed.end(),
                                     [&](const Piece& piece) { return !here(static_cast<std::int64_t>(piece.rank)); });
    for (const Piece& piece : flow.needed)
      if (!foreign && sides.count(piece.rank) != 0 && sides.at(piece.rank).sent.count(piece.part) != 0 &&
          sides.at(piece.rank).joined.count(piece.part) == 0)
        return false;
    if (call->tag >= 0 && !foreign && !op.results.empty()) check_message(rank, *call, op, sides);
    plain.name = "plumbline::receive.default";
    std::erase_if(plain.arguments,
                  [](const TraceArgument& argument) { return argument.name == "group" || argument.name == "call"; });
    if (!flow.sources.empty()) {
      std::vector<TensorRef> sources = flow.sources;
      if (!call->reduction.empty()) sources = {reduced(*call, op, plain.module, flow.sources)};
      plain.arguments = {{"sources", std::move(sources)}};
    } else if (foreign) {
      if (const auto leaf = received(rank, *call, op)) plain.arguments = {{"sources", std::vector<TensorRef>{*leaf}}};
    }
    if (writes_all(plain.results))
      for (TraceResult& written : plain.results) written.base = 0;
    add_op(rank, std::move(plain));
    return true;
  }

  // What crosses daemons.

  // "sent:all_reduce#3": the name of what a rank gives to a call with ranks elsewhere, or gets from it.
  std::string crossing(std::size_t rank, const char* way, const CollectiveCall& call) {
    const auto key = std::pair(key_of(call), call.part);
    const std::size_t place = crossings_.try_emplace(key, crossings_.size()).first->second;
    return of_rank(rank, StrCat(way, ":", call.kind, "#", place));
  }

  // What leaves for other daemons is judged here, where it was computed.
  void add_sent(std::size_t rank, const CollectiveCall& call, const TraceResult& sent, const TensorRef& content) {
    if (!is_float(content.format) || !sent_.insert(content.value).second) return;
    const PayloadId observed = take_payload(rank, sent.observed);
    if (observed == 0) return;
    TraceTap tap;
    tap.name = crossing(rank, "sent", call);
    tap.terms = {{content, 1, observed}};
    joined_.taps.push_back(std::move(tap));
  }

  // What a call brought of which another daemon's ranks sent a part: a leaf, flat, one for all ranks that got the same.
  // Nothing where it was not observed.
  std::optional<TensorRef> received(std::size_t rank, const CollectiveCall& call, const TraceOp& op) {
    if (op.results.size() != 1) return std::nullopt;
    const TraceResult& result = op.results[0];
    const PayloadId observed = take_payload(rank, result.observed);
    if (observed == 0) return std::nullopt;
    const std::int64_t elements = count(result.tensor.view.sizes);
    auto& leaves = received_[std::pair(key_of(call), call.part)];
    for (const auto& [taken, leaf] : leaves)
      if (leaf.format == result.tensor.format && same_content(rank, result.observed, taken)) return leaf;
    TraceLeaf leaf;
    leaf.value = fresh_value();
    leaf.format = result.tensor.format;
    leaf.count = elements;
    leaf.role = LeafRole::kObserved;
    leaf.name = crossing(rank, "received", call);
    leaf.payload = observed;
    const TensorRef content{leaf.value, leaf.format, {{elements}, {1}, 0}};
    joined_.leaves.push_back(std::move(leaf));
    leaves.emplace_back(observed, content);
    return content;
  }

  // The reduction of these tensors, which all ranks share.
  TensorRef reduced(const CollectiveCall& call, const TraceOp& receiver, const std::string& module,
                    const std::vector<TensorRef>& terms) {
    TraceOp op;
    op.name = StrCat("plumbline::reduce.", call.reduction);
    op.arguments = {{"inputs", terms}};
    op.phase = receiver.phase;
    op.source = receiver.source;
    op.module = module;
    const std::int64_t elements = count(terms.front().view.sizes);
    const View view{{elements}, {1}, 0};
    TraceResult result{{0, terms.front().format, view}, elements, 0, "", 0};
    op.results = {result};
    const auto [known, fresh] = reductions_.try_emplace(recipe(op), TensorRef{});
    if (fresh) {
      op.results[0].tensor.value = fresh_value();
      known->second = op.results[0].tensor;
      joined_.ops.push_back(std::move(op));
    }
    return known->second;
  }

  // Taps.

  // Whether every rank has this tap, with the same content.
  bool on_all_ranks(const TraceTap& tap) {
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
      const auto& taps = ranks_[rank]->taps;
      const auto other = std::find_if(taps.begin(), taps.end(), [&](const TraceTap& t) { return t.name == tap.name; });
      if (other == taps.end() || !same_tap(rank, *other, tap)) return false;
    }
    return true;
  }

  // Whether a tap of a rank is the same as one of rank 0's.
  bool same_tap(std::size_t rank, const TraceTap& tap, const TraceTap& first) const {
    return std::equal(tap.terms.begin(), tap.terms.end(), first.terms.begin(), first.terms.end(),
                      [&](const TraceTap::Term& a, const TraceTap::Term& b) {
                        const Bytes *x = content(*ranks_[rank], a.observed), *y = content(*ranks_[0], b.observed);
                        if (a.weight != b.weight || a.tensor.view.sizes != b.tensor.view.sizes) return false;
                        if (x != nullptr && y != nullptr) return **x == **y;
                        return x == y && mapped(rank, a.tensor).value == mapped(0, b.tensor).value;
                      });
  }

  // Results of the data that a rank was fed have no counterpart in a run of other ranks.
  static bool local_by_nature(const TraceTap& tap) { return tap.kind == TapKind::kLoss || tap.kind == TapKind::kValue; }

  void add_taps(std::size_t rank) {
    for (const TraceTap& tap : ranks_[rank]->taps) {
      TraceTap taken = tap;
      for (TraceTap::Term& term : taken.terms) term.tensor = mapped(rank, term.tensor);
      if (rank > 0 && merged(rank, tap, taken)) continue;
      for (TraceTap::Term& term : taken.terms) term.observed = take_payload(rank, term.observed);
      taken.reference = take_payload(rank, tap.reference);
      const bool alone = tap.kind == TapKind::kLoss && !held_elsewhere(rank, tap.name);
      if (rank == 0 && local_by_nature(tap) && !alone && !on_all_ranks(tap)) {
        taken.name = StrCat("rank", number(0), "/", tap.name);
      } else {
        taken.name = name_of(rank, tap.name);
      }
      joined_.taps.push_back(std::move(taken));
    }
    if (rank > 0) add_updates_left_out(rank);
  }

  // A parameter that rank 0 updated and this one did not: its update is nothing.
  void add_updates_left_out(std::size_t rank) {
    const Trace& own = *ranks_[rank];
    for (const TraceTap& tap : ranks_[0]->taps) {
      if (tap.kind != TapKind::kUpdate || tap.terms.empty()) continue;
      const auto named = [&](const auto& other) { return other.name == tap.name; };
      if (std::any_of(own.taps.begin(), own.taps.end(), named)) continue;
      const std::string name = StrCat("param:", tap.name.substr(tap.name.find(':') + 1));
      const auto leaf = std::find_if(own.leaves.begin(), own.leaves.end(),
                                     [&](const TraceLeaf& known) { return known.name == name; });
      const View& view = tap.terms[0].tensor.view;
      if (leaf == own.leaves.end() || leaf->count != count(view.sizes)) continue;
      const TensorRef kept{
          at_[rank].values.at(leaf->value), leaf->format, {view.sizes, row_major_strides(view.sizes), 0}};
      TraceTap none;
      none.name = of_rank(rank, tap.name);
      none.kind = TapKind::kUpdate;
      none.terms = {{kept, 1, 0}, {kept, -1, 0}};
      joined_.taps.push_back(std::move(none));
    }
  }

  // Whether rank 0 has the same tap, on the same values.
  bool merged(std::size_t rank, const TraceTap& tap, const TraceTap& taken) const {
    if (tap.reference != 0 || tap.guard.given() || tap.part) return false;
    const auto& taps = ranks_[0]->taps;
    const auto other = std::find_if(taps.begin(), taps.end(), [&](const TraceTap& t) { return t.name == tap.name; });
    if (other == taps.end() || !same_tap(rank, tap, *other)) return false;
    return std::equal(taken.terms.begin(), taken.terms.end(), other->terms.begin(), other->terms.end(),
                      [&](const TraceTap::Term& a, const TraceTap::Term& b) {
                        const TensorRef theirs = mapped(0, b.tensor);
                        return a.tensor.value == theirs.value && a.tensor.view == theirs.view;
                      });
  }

  struct Rank {
    std::unordered_map<ValueId, ValueId> values;  // To the joined trace's.
    std::unordered_map<PayloadId, PayloadId> payloads;
  };

  const std::vector<std::shared_ptr<const Trace>>& ranks_;
  std::vector<Rank> at_;
  std::vector<std::size_t> numbers_;  // Ascending.
  std::int64_t ranks_of_run_ = 0;
  Trace joined_;
  ValueId last_value_ = 0;
  PayloadId last_payload_ = 0;
  std::map<Key, std::map<std::size_t, Side>> calls_;  // By the number of the rank.
  // Of calls with ranks elsewhere, by part: their places in names; what they brought, each content once.
  std::map<std::pair<Key, int>, std::size_t> crossings_;
  std::map<std::pair<Key, int>, std::vector<std::pair<PayloadId, TensorRef>>> received_;
  std::set<ValueId> sent_;  // Values that have a tap as what was sent.
  // The ranks that hold each leaf that persists, or each tap, by its name.
  std::map<std::string, std::set<std::size_t>> holders_;
  std::multimap<std::tuple<LeafRole, Format, std::int64_t, std::string>, std::size_t> leaves_;
  std::multimap<std::string, std::pair<std::size_t, std::size_t>> ops_;  // Recipe to rank and index.
  std::map<std::string, TensorRef> reductions_;
};

}  // namespace

Joined join_ranks(const std::vector<std::shared_ptr<const Trace>>& ranks, bool replicated, std::int32_t ranks_of_run) {
  const auto whole = with_whole_leaves(ranks);
  return Join(whole, replicated, ranks_of_run).run();
}

}  // namespace plumbline
