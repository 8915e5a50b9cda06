#include "server/nodes/combine.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "server/ingest/limits.h"
#include "server/nodes/checks.h"
#include "server/nodes/part.h"

namespace plumbline {
namespace {

using absl::StrCat;

constexpr std::size_t kNamedMax = 8;

std::string ranks_text(const std::vector<std::int32_t>& ranks) {
  if (ranks.size() == 1) return StrCat("rank ", ranks[0]);
  const std::int64_t span = std::int64_t{ranks.back()} - ranks[0] + 1;
  const bool run = ranks.size() > 2 && span == static_cast<std::int64_t>(ranks.size());
  if (run) return StrCat("ranks ", ranks[0], " to ", ranks.back());
  const std::vector<std::int32_t> named(ranks.begin(),
                                        ranks.begin() + static_cast<std::ptrdiff_t>(std::min(ranks.size(), kNamedMax)));
  return StrCat("ranks ", absl::StrJoin(named, ", "),
                ranks.size() > named.size() ? StrCat(" and ", ranks.size() - named.size(), " more") : "");
}

std::string capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::vector<std::int32_t> ranks_of(const v1::NodePart& part) {
  std::vector<std::int32_t> ranks(part.ranks().begin(), part.ranks().end());
  ranks.insert(ranks.end(), part.missing().begin(), part.missing().end());
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// Weakest last; what no grade was given to is as weak as it gets.
int weakness(v1::Grade grade) {
  switch (grade) {
    case v1::GRADE_MATCH:
      return 0;
    case v1::GRADE_PROVEN:
      return 1;
    case v1::GRADE_FIRST_ORDER:
      return 2;
    case v1::GRADE_EXPLAINED:
      return 3;
    case v1::GRADE_STATISTICAL:
      return 4;
    default:
      return 5;
  }
}

class Combination {
 public:
  explicit Combination(const StepOfNodes& of) : of_(of) {}

  v1::Verdict run() {
    verdict_.set_id(of_.step.id());
    verdict_.set_project(of_.step.project);
    verdict_.set_job(of_.step.job);
    verdict_.set_run(of_.step.run);
    verdict_.set_rank(of_.step.rank);
    verdict_.set_step(of_.step.step);
    verdict_.set_reference("exact");
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const auto set :
         {&v1::Verdict::set_deviation, &v1::Verdict::set_envelope, &v1::Verdict::set_margin,
          &v1::Verdict::set_math_resolution, &v1::Verdict::set_exec_resolution, &v1::Verdict::set_explained})
      (verdict_.*set)(nan);
    const std::string fault = read();
    add_ranks();
    add_digest();
    add_measures();
    if (!fault.empty()) {
      inconclusive("The nodes' parts are not those of one step: " + fault + ".");
      return std::move(verdict_);
    }
    const CrossingsChecked checked = check_crossings(of_.step, parts_);
    add_crossings(checked);
    if (!accuse(checked) && !miss_ranks() && !leave_open(checked)) pass(checked);
    return std::move(verdict_);
  }

 private:
  // Why the parts are not one step's; empty: they are.
  std::string read() {
    if (!of_.fault.empty()) return of_.fault;
    std::set<std::int32_t> met;
    for (const std::string& bytes : of_.parts) {
      v1::NodePart part;
      if (!part.ParseFromString(bytes)) return "one cannot be read";
      const auto ranks = ranks_of(part);
      if (part.version() > kNodePartVersion)
        return StrCat("that of ", ranks.empty() ? "no rank" : ranks_text(ranks), " is of version ", part.version(),
                      ", and this daemon reads up to ", kNodePartVersion);
      const v1::Outcome own = part.verdict().verdict();
      if (ranks.empty() || own < v1::OUTCOME_TYPE_I || own > v1::OUTCOME_INCONCLUSIVE) return "one cannot be read";
      if (part.ranks_of_run() != of_.ranks_of_run)
        return StrCat("that of ", ranks_text(ranks), " is of a run of ", part.ranks_of_run(),
                      " ranks, and others of one of ", of_.ranks_of_run);
      for (const std::int32_t rank : ranks) {
        if (rank < 0 || rank >= of_.ranks_of_run)
          return StrCat("rank ", rank, " is in one, and the run has ", of_.ranks_of_run, " ranks");
        if (!met.insert(rank).second) return StrCat("rank ", rank, " is in two");
      }
      parts_.push_back(std::move(part));
    }
    return "";
  }

  void add_ranks() {
    std::set<std::int32_t> there;
    for (const v1::NodePart& part : parts_) there.insert(part.ranks().begin(), part.ranks().end());
    for (std::int32_t rank = 0; rank < of_.ranks_of_run && missing_.size() < limits::kRanksMax; ++rank)
      if (there.count(rank) == 0) missing_.push_back(rank);
    verdict_.set_ranks(static_cast<std::int32_t>(there.size()));
    if (missing_.empty()) return;
    verdict_.mutable_ranks_here()->Assign(there.begin(), there.end());
    verdict_.set_ranks_of_run(of_.ranks_of_run);
  }

  void add_digest() {
    std::string all = of_.fault;
    for (const std::string& part : of_.parts) {
      v1::NodePart read;
      if (!read.ParseFromString(part)) continue;
      absl::StrAppend(&all, ";", absl::StrJoin(read.ranks(), ","), ":", absl::StrJoin(read.rank_digests(), ","));
    }
    const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
    verdict_.set_digest(absl::StrFormat("%016x%016x", hash.high64, hash.low64));
  }

  // What adds up over the nodes, and the coarsest of what each could tell.
  void add_measures() {
    double seconds = 0, surprise = -1;
    v1::Coverage* const coverage = verdict_.mutable_coverage();
    std::set<std::string> opaque;
    for (const v1::NodePart& part : parts_) {
      const v1::Verdict& own = part.verdict();
      if (verdict_.profile().empty()) verdict_.set_profile(own.profile());
      if (verdict_.backend().empty()) verdict_.set_backend(own.backend());
      if (verdict_.trace_id().empty()) verdict_.set_trace_id(own.trace_id());
      seconds = std::max(seconds, own.audit_seconds());
      if (own.has_surprise()) surprise = std::max(surprise, own.surprise());
      take_coarser(own.exec_resolution());
      const v1::Coverage& more = own.coverage();
      coverage->set_operations(coverage->operations() + more.operations());
      coverage->set_audited(coverage->audited() + more.audited());
      coverage->set_opaque(coverage->opaque() + more.opaque());
      coverage->set_decisions(coverage->decisions() + more.decisions());
      coverage->set_unstable(coverage->unstable() + more.unstable());
      coverage->set_elements(coverage->elements() + more.elements());
      coverage->set_work(coverage->work() + more.work());
      coverage->set_work_audited(coverage->work_audited() + more.work_audited());
      coverage->set_partial(coverage->partial() || more.partial());
      opaque.insert(more.opaque_names().begin(), more.opaque_names().end());
      for (const v1::Hazard& hazard : own.hazards()) *verdict_.add_hazards() = hazard;
      const std::string whose = capital(ranks_text(ranks_of(part)));
      verdict_.add_notes(StrCat(whose, ": ", v1::Outcome_Name(own.verdict()).substr(8), ", ", own.id(),
                                own.node().empty() ? "" : StrCat(", by ", own.node())));
      if (!(own.margin() <= worst_margin_)) {
        worst_margin_ = std::isnan(own.margin()) ? worst_margin_ : own.margin();
        if (!std::isnan(own.margin())) closest_ = &own;
      }
    }
    for (const std::string& name : opaque)
      if (coverage->opaque_names_size() < 16) coverage->add_opaque_names(name);
    verdict_.set_audit_seconds(seconds);
    // Whichever node it is somewhere.
    if (surprise >= 0)
      verdict_.set_surprise(
          std::max(0.0, surprise - std::log10(static_cast<double>(std::max<std::size_t>(1, parts_.size())))));
    if (closest_ != nullptr) {
      verdict_.set_deviation(closest_->deviation());
      verdict_.set_envelope(closest_->envelope());
      verdict_.set_margin(closest_->margin());
      verdict_.set_deciding_tap(closest_->deciding_tap());
      *verdict_.mutable_contributors() = closest_->contributors();
    }
  }

  void take_coarser(double resolution) {
    if (!(verdict_.exec_resolution() >= resolution) && !std::isnan(resolution))
      verdict_.set_exec_resolution(resolution);
  }

  void add_crossings(const CrossingsChecked& checked) {
    for (const v1::TapVerdict& tap : checked.taps) *verdict_.add_taps() = tap;
    take_coarser(checked.resolution);
    if (checked.results > 0) {
      std::string note = StrCat("between nodes: of ", checked.results, " results of collectives ", checked.compared,
                                " were compared with what was sent");
      if (!checked.in_full)
        absl::StrAppend(&note, ", sums of many elements by projections: one wrong element is found from ",
                        absl::StrFormat("%.2g", checked.of_mean),
                        " times the mean magnitude of what was added, errors that cancel may not be");
      verdict_.add_notes(note);
    }
    for (const auto& [why, results] : checked.not_compared)
      verdict_.add_notes(StrCat("between nodes: ", results, " results were not compared: ", why));
    if (parts_.size() > 1)
      verdict_.add_notes(
          "judged by the nodes' verdicts and what crossed between them: what rounding gathers over several "
          "nodes was not replayed as one");
  }

  void decide(v1::Outcome outcome, v1::Grade grade, v1::Cause cause, const std::string& sentence) {
    verdict_.set_verdict(outcome);
    verdict_.set_grade(grade);
    verdict_.set_cause(cause);
    verdict_.set_sentence(sentence);
  }

  void inconclusive(const std::string& sentence) {
    decide(v1::OUTCOME_INCONCLUSIVE, v1::GRADE_UNSPECIFIED, v1::CAUSE_UNANSWERED, sentence);
  }

  void suspect(const std::string& op, const std::string& source, const std::string& detail) {
    v1::Place* const place = verdict_.mutable_suspect();
    place->set_op(op);
    place->set_source(source);
    verdict_.set_suspect_detail(detail);
  }

  // A node's own verdict is that of the job.
  void take(const v1::NodePart& part) {
    const v1::Verdict& own = part.verdict();
    decide(own.verdict(), own.grade(), own.cause(), StrCat(capital(ranks_text(ranks_of(part))), ": ", own.sentence()));
    if (own.has_suspect()) *verdict_.mutable_suspect() = own.suspect();
    verdict_.set_suspect_detail(own.suspect_detail());
    *verdict_.mutable_advice() = own.advice();
    verdict_.set_deviation(own.deviation());
    verdict_.set_envelope(own.envelope());
    verdict_.set_margin(own.margin());
    verdict_.set_deciding_tap(own.deciding_tap());
    if (own.has_surprise()) verdict_.set_surprise(own.surprise());
  }

  // In the order in which one daemon asks: bits that changed between steps, operations, crossings, replicas, the rest.
  bool accuse(const CrossingsChecked& checked) {
    const auto find = [&](const std::function<bool(const v1::Verdict&)>& is) -> const v1::NodePart* {
      for (const v1::NodePart& part : parts_)
        if (part.verdict().verdict() == v1::OUTCOME_TYPE_II && is(part.verdict())) return &part;
      return nullptr;
    };
    if (const auto* part = find([](const v1::Verdict& own) {
          return own.cause() == v1::CAUSE_EXECUTION && own.grade() == v1::GRADE_PROVEN;
        })) {
      take(*part);
      return true;
    }
    if (checked.wrong) {
      const CrossingsChecked::Wrong& wrong = *checked.wrong;
      decide(v1::OUTCOME_TYPE_II, v1::GRADE_PROVEN, wrong.contradiction ? v1::CAUSE_MATHEMATICS : v1::CAUSE_EXECUTION,
             wrong.sentence);
      suspect(wrong.op, wrong.source, wrong.detail);
      if (!wrong.contradiction) {
        verdict_.set_deviation(wrong.deviation);
        verdict_.set_envelope(wrong.allowed);
        verdict_.set_margin(wrong.allowed > 0 ? wrong.deviation / wrong.allowed : HUGE_VAL);
        verdict_.set_surprise(HUGE_VAL);
        verdict_.set_deciding_tap(wrong.tap);
        verdict_.clear_contributors();
      }
      return true;
    }
    if (const auto* part = find([](const v1::Verdict& own) { return own.cause() == v1::CAUSE_INVARIANT; })) {
      take(*part);
      return true;
    }
    if (compare_replicas()) return true;
    if (const auto* part = find([](const v1::Verdict&) { return true; })) {
      take(*part);
      return true;
    }
    return false;
  }

  // Whether parameters that the run holds on all ranks are not the same on two nodes.
  bool compare_replicas() {
    struct Known {
      std::uint64_t digest = 0;
      const v1::NodePart* part = nullptr;
    };
    for (const bool after : {false, true}) {
      std::map<std::string, Known> known;
      for (const v1::NodePart& part : parts_) {
        if (!part.replicated()) continue;
        for (const v1::Replica& replica : part.replicas()) {
          const std::uint64_t digest = after ? replica.after() : replica.before();
          if (digest == 0) continue;
          const auto [found, fresh] = known.try_emplace(replica.name(), Known{digest, &part});
          if (fresh || found->second.digest == digest) continue;
          decide(v1::OUTCOME_TYPE_II, v1::GRADE_PROVEN, v1::CAUSE_INVARIANT,
                 StrCat("The ranks do not hold the same parameters ", after ? "after" : "before",
                        " the step: ", replica.name(), "."));
          suspect(
              StrCat("leaf ", replica.name()), "",
              StrCat(ranks_text(ranks_of(*found->second.part)), " and ", ranks_text(ranks_of(part)),
                     after ? " end the step with different bits of it" : " began the step with different bits of it"));
          verdict_.set_surprise(HUGE_VAL);
          return true;
        }
      }
    }
    return false;
  }

  bool miss_ranks() {
    if (missing_.empty()) return false;
    std::set<std::int32_t> silent(missing_.begin(), missing_.end());
    std::string why = of_.waited.empty() ? "" : StrCat("nothing came from its daemon within ", of_.waited);
    for (const v1::NodePart& part : parts_) {
      for (const std::int32_t rank : part.missing())
        if (silent.count(rank) != 0) why = part.verdict().sentence();
    }
    inconclusive(StrCat("Not judged as a whole: the trace of ", ranks_text(missing_), " is missing",
                        why.empty() ? "." : StrCat(": ", why, why.back() == '.' ? "" : ".")));
    return true;
  }

  bool leave_open(const CrossingsChecked& checked) {
    for (const v1::NodePart& part : parts_) {
      if (part.verdict().verdict() == v1::OUTCOME_TYPE_I) continue;
      take(part);
      return true;
    }
    if (checked.fault.empty()) return false;
    inconclusive(StrCat("The ranks' collectives do not fit together: ", checked.fault, "."));
    suspect("collective", checked.fault_source, checked.fault);
    return true;
  }

  void pass(const CrossingsChecked& checked) {
    v1::Grade grade = v1::GRADE_MATCH;
    for (const v1::NodePart& part : parts_)
      if (weakness(part.verdict().grade()) > weakness(grade)) grade = part.verdict().grade();
    const bool whole = checked.not_compared.empty();
    if ((!checked.in_full || !whole) && weakness(grade) < weakness(v1::GRADE_FIRST_ORDER))
      grade = v1::GRADE_FIRST_ORDER;
    // What one node found beside rounding, such as a range that was left, is that of the job.
    const v1::Verdict* found = nullptr;
    std::string sentence = StrCat("Rounding explains every deviation on ", parts_.size(), " nodes");
    for (const v1::NodePart& part : parts_) {
      const v1::Verdict& own = part.verdict();
      if (found != nullptr || own.cause() == v1::CAUSE_ROUNDING) continue;
      found = &own;
      sentence = StrCat(capital(ranks_text(ranks_of(part))), ": ", absl::StripSuffix(own.sentence(), "."));
    }
    if (checked.compared > 0) absl::StrAppend(&sentence, ", and what ranks got from other nodes is what was sent");
    if (!whole || !checked.in_full) absl::StrAppend(&sentence, ", as far as it was compared");
    sentence += ".";
    if (const v1::Coverage& coverage = verdict_.coverage(); coverage.opaque() > 0)
      absl::StrAppend(&sentence, " Of ", coverage.operations(), " operations ", coverage.opaque(),
                      " are not modelled.");
    decide(v1::OUTCOME_TYPE_I, grade, found != nullptr ? found->cause() : v1::CAUSE_ROUNDING, sentence);
  }

  const StepOfNodes& of_;
  std::vector<v1::NodePart> parts_;
  std::vector<std::int32_t> missing_;
  const v1::Verdict* closest_ = nullptr;
  double worst_margin_ = -1;
  v1::Verdict verdict_;
};

}  // namespace

v1::Verdict combine(const StepOfNodes& of) { return Combination(of).run(); }

}  // namespace plumbline
