#include "server/nodes/checks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/ingest/collective.h"
#include "server/ingest/limits.h"
#include "server/nodes/fingerprint.h"
#include "server/nodes/part.h"
#include "server/nodes/sketch.h"

namespace plumbline {
namespace {

using absl::StrCat;
using Group = std::vector<std::int64_t>;
using Key = std::tuple<Group, std::int64_t, std::int64_t>;  // Group, tag and number of a call.

std::string number(double x) { return absl::StrFormat("%.3g", x); }

Group group_of(const v1::CrossingCall& call) {
  Group group;
  std::uint64_t last = 0;  // Whatever the differences add up to.
  for (const std::int64_t more : call.group())
    group.push_back(static_cast<std::int64_t>(last += static_cast<std::uint64_t>(more)));
  return group;
}

Format format_of(v1::DType dtype) {
  const auto format = static_cast<Format>(dtype);
  return traits(format).bytes > 0 ? format : Format::kUnknown;
}

ContentPrint print_of(const v1::Fingerprint& from) { return {from.first(), from.second()}; }

// One call, as the ranks of all nodes made it.
struct Call {
  CollectiveCall what;
  std::string source;
  struct Side {
    const v1::CrossingCall* of_node = nullptr;
    const v1::CrossingSide* side = nullptr;
  };
  std::map<std::int64_t, Side> sides;  // By rank.
  std::vector<const v1::CrossingCall*> nodes;
};

std::string described(const v1::CrossingCall& call, const v1::CrossingSide* side) {
  std::string text = call.tag() >= 0
                         ? StrCat("message from rank ", call.root(), ", tag ", call.tag())
                         : StrCat(call.kind(), call.reduction().empty() ? "" : StrCat(" (", call.reduction(), ")"));
  if (side != nullptr)
    for (const v1::SentPart& part : side->sent())
      absl::StrAppend(&text, part.part() == 0 ? " of " : ", ", part.count(), " ",
                      std::string(traits(format_of(part.dtype())).name));
  if (!call.source().empty()) absl::StrAppend(&text, " (", call.source(), ")");
  return text;
}

bool same_sent(const v1::CrossingSide& a, const v1::CrossingSide& b) {
  return std::equal(a.sent().begin(), a.sent().end(), b.sent().begin(), b.sent().end(),
                    [](const v1::SentPart& x, const v1::SentPart& y) {
                      return x.part() == y.part() && x.dtype() == y.dtype() && x.count() == y.count();
                    });
}

class Checks {
 public:
  Checks(const StepIdentity& step, const std::vector<v1::NodePart>& parts) : step_(step) {
    made_.resolution = std::numeric_limits<double>::quiet_NaN();
    for (const v1::NodePart& part : parts) {
      rounding_ = std::max(rounding_, part.rounding());
      flushes_ = flushes_ || part.flushes();
      if (part.calls_left_out() > 0) not_compared("it did not fit what a node tells the others", part.calls_left_out());
      for (const std::int32_t rank : part.ranks()) here_[rank] = &part;
      for (const v1::CrossingCall& call : part.calls()) add(call);
    }
  }

  CrossingsChecked run() {
    std::vector<const Call*> complete;
    for (const Key& key : order_) {
      const Call& call = calls_.at(key);
      if (is_complete(call)) complete.push_back(&call);
    }
    for (const Call* const each : complete) {
      const Call& call = *each;
      if (uneven_.count({call.what.group, call.what.tag}) != 0) {
        not_compared("the ranks of its group make different numbers of calls");
        continue;
      }
      if (!agrees(call)) continue;
      for (const auto& [rank, side] : call.sides) check_side(call, rank, side);
    }
    std::sort(made_.taps.begin(), made_.taps.end(),
              [](const v1::TapVerdict& a, const v1::TapVerdict& b) { return a.margin() > b.margin(); });
    if (made_.taps.size() > CrossingsChecked::kTapsMax) made_.taps.resize(CrossingsChecked::kTapsMax);
    return std::move(made_);
  }

 private:
  void add(const v1::CrossingCall& call) {
    Group group = group_of(call);
    if (group.empty() || call.sides().empty()) return;  // Nobody made it.
    if (std::set<std::int64_t>(group.begin(), group.end()).size() != group.size()) return;
    Key key(group, call.tag(), call.number());
    const auto [found, fresh] = calls_.try_emplace(key);
    if (fresh) {
      order_.push_back(key);
      CollectiveCall& what = found->second.what;
      what.kind = call.kind();
      what.group = std::move(group);
      what.tag = call.tag();
      what.number = call.number();
      what.reduction = call.reduction();
      what.root = call.root();
      found->second.source = call.source();
    }
    found->second.nodes.push_back(&call);
    for (const v1::CrossingSide& side : call.sides()) found->second.sides[side.rank()] = {&call, &side};
  }

  void not_compared(const std::string& why, std::uint64_t results = 1) {
    made_.results += results;
    made_.not_compared[why] += results;
  }

  // Whether all of the group made it. A rank that never came is told elsewhere.
  bool is_complete(const Call& call) {
    for (const std::int64_t member : call.what.group) {
      if (call.sides.count(member) != 0) continue;
      const auto part = here_.find(member);
      if (part == here_.end()) {
        not_compared("a rank of its group is missing");
        return false;
      }
      if (part->second->calls_left_out() > 0) return false;  // Counted there.
      // Which of the others' calls it lacks is not known: numbers of this group tell nothing.
      uneven_.emplace(call.what.group, call.what.tag);
      const auto& [rank, side] = *call.sides.begin();
      fault(StrCat("rank ", rank, " makes call ", call.what.number, " of its group, ",
                   described(*side.of_node, side.side), ", and rank ", member, " makes fewer"),
            side.of_node->source());
      return false;
    }
    return true;
  }

  bool agrees(const Call& call) {
    const auto& [first, expected] = *call.sides.begin();
    for (const auto& [rank, side] : call.sides) {
      const v1::CrossingCall &a = *expected.of_node, &b = *side.of_node;
      const bool same = a.kind() == b.kind() && a.reduction() == b.reduction() && a.root() == b.root() &&
                        (!sends_alike(a.kind()) || same_sent(*expected.side, *side.side));
      if (same) continue;
      const std::string detail = StrCat("in call ", call.what.number, " of their group rank ", first, " makes ",
                                        described(a, expected.side), ", and rank ", rank, " ", described(b, side.side));
      wrong({"collective", b.source(), StrCat("The ranks' collectives do not fit together: ", detail, "."), detail, "",
             true, 0, 0});
      return false;
    }
    return true;
  }

  void fault(const std::string& text, const std::string& source) {
    if (!made_.fault.empty()) return;
    made_.fault = text;
    made_.fault_source = source;
  }

  void wrong(CrossingsChecked::Wrong wrong) {
    if (!made_.wrong) made_.wrong = std::move(wrong);
  }

  void check_side(const Call& call, std::int64_t rank, const Call::Side& side) {
    const auto& group = call.what.group;
    const auto index = static_cast<std::size_t>(std::find(group.begin(), group.end(), rank) - group.begin());
    if (index == group.size()) return not_compared("it is not written as a call is");
    // Of a call that is not to or from one rank alone, all get something, but where it was not waited for.
    const bool to_all = call.what.root < 0 && call.what.tag < 0 &&
                        std::ranges::any_of(side.side->sent(), [](const auto& part) { return part.count() > 0; });
    if (to_all && side.side->received_size() == 0) return not_compared("it was not there when the step ended");
    for (const v1::ReceivedPart& got : side.side->received()) {
      CollectiveCall what = call.what;
      what.part = got.part();
      const Sent sent = sent_by(call);
      const Flow flow = flow_of(what, index, sent.tensors);
      if (flow.sources.empty()) {
        not_compared("what was sent is not known");
      } else if (call.what.reduction.empty()) {
        check_copy(call, rank, index, got, flow, sent);
      } else {
        check_sum(call, rank, index, side, got, flow);
      }
    }
  }

  // What all sent, as tensors whose values are numbers in `places`.
  struct Sent {
    std::map<std::size_t, SentTensors> tensors;
    std::vector<const v1::SentPart*> places;
  };
  static Sent sent_by(const Call& call) {
    Sent sent;
    sent.places.push_back(nullptr);
    for (const auto& [rank, side] : call.sides) {
      SentTensors& tensors = sent.tensors[static_cast<std::size_t>(rank)];
      for (const v1::SentPart& part : side.side->sent()) {
        if (part.count() < 0 || part.count() > limits::kElementsMax) continue;
        const std::vector<std::int64_t> splits(part.splits().begin(), part.splits().end());
        if (shares_of(call.what.kind, splits, part.count(), call.what.group.size()).empty()) continue;
        tensors.parts[part.part()] = {sent.places.size(), format_of(part.dtype()), {{part.count()}, {1}, 0}};
        tensors.splits[part.part()] = splits;
        sent.places.push_back(&part);
      }
    }
    return sent;
  }

  std::string name_of(const Call& call, std::int64_t rank, const v1::ReceivedPart& got) const {
    const auto place = std::find(order_.begin(), order_.end(), Key(call.what.group, call.what.tag, call.what.number));
    return StrCat("rank", rank, "/received:", call.what.kind, "#", place - order_.begin(),
                  got.part() > 0 ? StrCat(".", got.part()) : "");
  }

  void check_copy(const Call& call, std::int64_t rank, std::size_t index, const v1::ReceivedPart& got, const Flow& flow,
                  const Sent& sent) {
    const auto bytes = static_cast<std::size_t>(traits(format_of(got.dtype())).bytes);
    const Fingerprinter prints(call_seed(step_, call.what));
    ContentPrint expected;
    std::int64_t elements = 0;
    for (const TensorRef& source : flow.sources) {
      const v1::SentPart& part = *sent.places[source.value];
      const int share = sends_shares(call.what.kind) ? static_cast<int>(index) : 0;
      if (share >= part.shares_size() || format_of(part.dtype()) != format_of(got.dtype()))
        return not_compared("what was sent has another element type, or is not known");
      const std::int64_t more = count(source.view.sizes);
      expected = prints.joined(expected, print_of(part.shares(share)), more, bytes);
      elements += more;
    }
    if (elements != got.count()) return not_compared("what was sent has another size");
    ++made_.results;
    ++made_.compared;
    if (expected == print_of(got.content())) return;
    if (call.what.tag >= 0) {  // Messages are counted within a step, and may be received in the next.
      --made_.compared;
      ++made_.not_compared["other bits than those of the message with its number in this step"];
      return fault(
          StrCat("what rank ", rank, " got is not the message from rank ", call.what.root, ", tag ", call.what.tag,
                 ", number ", call.what.number, " in this step: it is that of another step, or was changed on its way"),
          call.source);
    }
    const std::string at = StrCat(call.what.kind, call.source.empty() ? "" : StrCat(" (", call.source, ")"));
    wrong({call.what.kind, call.source,
           StrCat("Rank ", rank, " did not get what was sent in ", at, ", a call between nodes."),
           StrCat(got.count(), " ", std::string(traits(format_of(got.dtype())).name),
                  " elements are not bit by bit the copy that they should be"),
           name_of(call, rank, got), false, std::numeric_limits<double>::infinity(), 0});
  }

  // What the nodes sent, for one share of a part, together; none: it is not known.
  std::optional<TensorSketch> sum_of(const Call& call, int part, std::size_t share, std::int64_t elements,
                                     std::size_t terms, const SketchShape& shape) const {
    std::vector<WideSum> sums(shape.numbers());
    TensorSketch all{std::vector<double>(shape.numbers()), std::vector<double>(static_cast<std::size_t>(shape.blocks))};
    const std::string& reduction = call.what.reduction;
    std::size_t met = 0;
    bool first = true;
    for (const v1::CrossingCall* const node : call.nodes) {
      for (const v1::SentSum& sum : node->sums()) {
        if (sum.part() != part || sum.share() != share) continue;
        if (sum.count() != elements || static_cast<std::size_t>(sum.sketch().sums_size()) != all.sums.size() ||
            static_cast<std::size_t>(sum.sketch().norms_size()) != all.norms.size())
          return std::nullopt;
        met += sum.terms();
        for (std::size_t i = 0; i < all.sums.size(); ++i) {
          const double one = sum.sketch().sums(static_cast<int>(i));
          sums[i].add(one);
          all.sums[i] = first ? one : reduction == "max" ? std::max(all.sums[i], one) : std::min(all.sums[i], one);
        }
        for (std::size_t i = 0; i < all.norms.size(); ++i)
          all.norms[i] += static_cast<double>(sum.sketch().norms(static_cast<int>(i)));
        first = false;
      }
    }
    if (met != terms) return std::nullopt;
    if (reduction == "sum" || reduction == "avg")
      for (std::size_t i = 0; i < all.sums.size(); ++i) all.sums[i] = sums[i].value();
    return all;
  }

  static const v1::Sketch* sketch_of(const Call::Side& side, const v1::ReceivedPart& got) {
    if (got.has_sketch()) return &got.sketch();
    const v1::Sketch* last = nullptr;  // Of the ranks before it on its node.
    for (const v1::CrossingSide& other : side.of_node->sides()) {
      if (&other == side.side) break;
      for (const v1::ReceivedPart& theirs : other.received())
        if (theirs.part() == got.part() && theirs.has_sketch()) last = &theirs.sketch();
    }
    return last;
  }

  void check_sum(const Call& call, std::int64_t rank, std::size_t index, const Call::Side& side,
                 const v1::ReceivedPart& got, const Flow& flow) {
    const Format format = format_of(got.dtype());
    const bool cut = sends_shares(call.what.kind);
    const SketchShape shape = sketch_shape(got.count(), cut ? call.what.group.size() : 1);
    const bool single = shape.projections == 1;
    const std::string& reduction = call.what.reduction;
    const bool adds = reduction == "sum" || (reduction == "avg" && is_float(format));
    if (!adds && !(single && (reduction == "max" || reduction == "min")))
      return not_compared(StrCat("a reduction by ", reduction, single ? "" : " of many elements"));
    for (const TensorRef& source : flow.sources)
      if (source.format != format || count(source.view.sizes) != got.count())
        return not_compared("what was sent has another element type or size");
    const auto sent = sum_of(call, flow.needed.front().part, cut ? index : 0, got.count(), flow.sources.size(), shape);
    const v1::Sketch* const received = sketch_of(side, got);
    if (!sent || received == nullptr || static_cast<std::size_t>(received->sums_size()) != sent->sums.size() ||
        static_cast<std::size_t>(received->norms_size()) != sent->norms.size())
      return not_compared("what was sent is not known");
    ++made_.results;

    const SumRounding rounding{format, static_cast<std::int64_t>(flow.sources.size()), reduction == "avg", rounding_,
                               flushes_};
    const double scale = reduction == "avg" ? 1 / static_cast<double>(flow.sources.size()) : 1;
    Worst worst;
    bool open = false;
    double total = 0;
    for (const double norm : sent->norms) total += norm * scale;
    for (std::int64_t block = 0; block < shape.blocks; ++block) {
      const auto b = static_cast<std::size_t>(block);
      const double norm = sent->norms[b], of_received = static_cast<double>(received->norms(static_cast<int>(block)));
      const std::int64_t begin = shape.begin(block, got.count()), end = shape.begin(block + 1, got.count());
      if (!sums_exactly(format, norm, adds) || (!std::isfinite(of_received) && overflows(format, norm))) {
        open = true;
        continue;
      }
      double allowed = adds ? allowed_deviation(rounding, end - begin, norm) : 0;
      if (is_float(format) && adds)
        allowed += kSketchError * (norm * scale + (std::isfinite(of_received) ? of_received : 0));
      for (int p = 0; p < shape.projections; ++p) {
        const std::size_t i = b * static_cast<std::size_t>(shape.projections) + static_cast<std::size_t>(p);
        const double deviation = std::fabs(received->sums(static_cast<int>(i)) - sent->sums[i] * scale);
        worst.take({std::isnan(deviation) ? std::numeric_limits<double>::infinity() : deviation, allowed, begin, end});
      }
      if (total > 0) worst.resolution = std::max(worst.resolution, 2 * allowed / total);
    }
    if (open) {
      made_.not_compared["numbers that are not finite, or integers beyond 2^53, among what was sent"] += 1;
    } else {
      ++made_.compared;
      if (!single) made_.in_full = false;
    }
    if (worst.begin < worst.end) conclude(call, rank, got, rounding, worst, total, open);
  }

  struct Worst {
    double deviation = 0, allowed = 0;
    std::int64_t begin = 0, end = 0;
    double resolution = 0;

    double margin() const {
      if (deviation == 0) return 0;
      return allowed > 0 ? deviation / allowed : std::numeric_limits<double>::infinity();
    }
    void take(Worst other) {
      if (begin < end && !(other.margin() > margin())) return;
      other.resolution = resolution;
      *this = other;
    }
  };

  // Whether the sketch of what was sent is what its elements say.
  static bool sums_exactly(Format format, double norm, bool adds) {
    if (!std::isfinite(norm)) return false;
    if (is_float(format) || !adds) return true;
    if (format == Format::kBool) return false;
    const int bits = 8 * traits(format).bytes;
    return norm < std::min(0x1p53, std::ldexp(1, bits - 1)) * (1 - 0x1p-20);  // Norms are rounded up to floats.
  }
  // Whether a partial sum may be larger than the format holds.
  static bool overflows(Format format, double norm) { return is_float(format) && norm >= largest_finite(format) / 2; }

  void conclude(const Call& call, std::int64_t rank, const v1::ReceivedPart& got, const SumRounding& rounding,
                const Worst& worst, double total, bool open) {
    const bool fails = worst.deviation > worst.allowed;
    v1::TapVerdict tap;
    tap.set_name(name_of(call, rank, got));
    tap.set_outcome(fails ? v1::OUTCOME_TYPE_II : open ? v1::OUTCOME_INCONCLUSIVE : v1::OUTCOME_TYPE_I);
    tap.set_grade(fails || !open ? v1::GRADE_PROVEN : v1::GRADE_UNSPECIFIED);
    tap.set_elements(static_cast<std::uint64_t>(got.count()));
    tap.set_worst_element(static_cast<std::uint64_t>(worst.begin));
    const double nan = std::numeric_limits<double>::quiet_NaN(), norm = total > 0 ? total : 1;
    for (const auto set :
         {&v1::TapVerdict::set_low, &v1::TapVerdict::set_high, &v1::TapVerdict::set_observed,
          &v1::TapVerdict::set_reference, &v1::TapVerdict::set_math_resolution, &v1::TapVerdict::set_explained,
          &v1::TapVerdict::set_interval_radius, &v1::TapVerdict::set_drift, &v1::TapVerdict::set_worst_case})
      (tap.*set)(nan);
    tap.set_deviation(worst.deviation / norm);
    tap.set_envelope(worst.allowed / norm);
    tap.set_margin(worst.margin());
    tap.set_exec_resolution(worst.resolution);
    if (!(made_.resolution >= worst.resolution)) made_.resolution = worst.resolution;
    made_.of_mean = std::max(made_.of_mean, worst.resolution * static_cast<double>(got.count()));
    made_.taps.push_back(std::move(tap));
    if (!fails) return;
    const std::string at = StrCat(call.what.kind, call.source.empty() ? "" : StrCat(" (", call.source, ")"));
    const std::string where = worst.end - worst.begin == 1 ? StrCat("element ", worst.begin)
                                                           : StrCat("elements ", worst.begin, " to ", worst.end - 1);
    wrong(
        {call.what.kind, call.source,
         StrCat("What rank ", rank, " got from ", at, ", a call between nodes, is no legal rounding of what was sent."),
         StrCat(where, " of ", got.count(), ": off by ", number(worst.deviation), ", and adding ", rounding.ranks,
                " terms of ", std::string(traits(rounding.format).name), " in any order explains ",
                number(worst.allowed)),
         name_of(call, rank, got), false, worst.deviation, worst.allowed});
  }

  const StepIdentity step_;
  double rounding_ = 1;
  bool flushes_ = false;
  std::map<std::int64_t, const v1::NodePart*> here_;
  std::map<Key, Call> calls_;
  std::set<std::pair<Group, std::int64_t>> uneven_;  // Groups and tags of which ranks make different numbers of calls.
  std::vector<Key> order_;
  CrossingsChecked made_;
};

}  // namespace

CrossingsChecked check_crossings(const StepIdentity& step, const std::vector<v1::NodePart>& parts) {
  return Checks(step, parts).run();
}

}  // namespace plumbline
