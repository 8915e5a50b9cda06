#include "client/cpp/page/collect.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/format.h"
#include "client/cpp/page/columns.h"
#include "client/cpp/page/document.h"

namespace plumbline {
namespace {

constexpr std::size_t kRecent = 60;              // Verdicts in the timeline of a list of jobs.
constexpr std::size_t kDriftBytes = 256u << 20;  // Read of verdicts' taps for the drift of a job's steps.
constexpr std::size_t kDriftsKept = 16'384;
constexpr std::size_t kReproducerJobs = 1;  // A reproducer is an audit of its own.

v1::Filter filter_of(const std::string& project, const std::string& job) {
  v1::Filter filter;
  filter.set_project(project);
  filter.set_job(job);
  return filter;
}

// Passed taps come last; among equals the more surprising first.
bool more_telling(const v1::TapVerdict& a, const v1::TapVerdict& b) {
  const auto rank = [](const v1::TapVerdict& tap) {
    const int outcome = tap.outcome() == v1::OUTCOME_TYPE_II ? 2 : tap.outcome() == v1::OUTCOME_TYPE_I ? 0 : 1;
    const double surprise = tap.has_surprise() && !std::isnan(tap.surprise()) ? tap.surprise() : -1;
    return std::tuple(outcome, surprise, std::isnan(tap.margin()) ? -1 : tap.margin());
  };
  return rank(a) > rank(b);
}

double largest_drift(const v1::Verdict& verdict) {
  double largest = std::numeric_limits<double>::quiet_NaN();
  for (const v1::TapVerdict& tap : verdict.taps()) {
    if (std::isfinite(tap.drift()) && !(largest >= tap.drift())) largest = tap.drift();
  }
  return largest;
}

}  // namespace

absl::Status Collector::head(const std::string& server, page::Page* page) {
  const auto info = client_.server_info();
  if (!info.ok()) return info.status();
  page->set_server(server);
  page->set_server_version(info->version());
  page->set_history(std::string(absl::StripAsciiWhitespace(format_history(info->history()))));
  *page->mutable_made() = google::protobuf::util::TimeUtil::GetCurrentTime();
  page->mutable_made()->set_nanos(0);
  return absl::OkStatus();
}

absl::Status Collector::jobs(const std::string& project, page::Page* page) {
  auto jobs = client_.jobs(project);
  if (!jobs.ok()) return jobs.status();
  std::stable_sort(jobs->begin(), jobs->end(), [](const v1::JobSummary& a, const v1::JobSummary& b) {
    return a.last_seen().seconds() > b.last_seen().seconds();
  });
  if (jobs->size() > limits_.jobs) {
    page->add_left_out(
        absl::StrCat("Of ", jobs->size(), " jobs the ", limits_.jobs, " that were seen last are shown."));
    jobs->resize(limits_.jobs);
  }
  std::map<std::string, page::JobRow> rows;
  std::lock_guard lock(mutex_);
  for (v1::JobSummary& job : *jobs) {
    const std::string key = job.SerializeAsString();
    page::JobRow& row = *page->add_jobs();
    if (const auto known = rows_.find(key); known != rows_.end()) {
      row = known->second;
    } else {
      const auto recent = client_.verdicts(filter_of(job.project(), job.job()), "sequence desc", kRecent);
      if (!recent.ok()) return recent.status();
      for (auto each = recent->rbegin(); each != recent->rend(); ++each) row.add_recent(each->verdict());
      *row.mutable_summary() = std::move(job);
    }
    rows[key] = row;
  }
  rows_ = std::move(rows);
  return absl::OkStatus();
}

double Collector::drift(const v1::Verdict& verdict, std::size_t* bytes) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (verdict.reference().empty() || verdict.reference() == "exact") return kNone;
  const std::string key = verdict.id() + " " + verdict.digest();
  {
    std::lock_guard lock(mutex_);
    if (const auto known = drifts_.find(key); known != drifts_.end()) return known->second;
  }
  if (*bytes > kDriftBytes) return kNone;
  const auto whole = client_.verdict(verdict.id());
  if (!whole.ok()) return kNone;  // Removed meanwhile.
  *bytes += whole->ByteSizeLong();
  const double found = largest_drift(*whole);
  std::lock_guard lock(mutex_);
  if (drifts_.size() >= kDriftsKept) drifts_.clear();
  drifts_[key] = found;
  return found;
}

absl::Status Collector::job(const std::string& project, const std::string& name, bool reproducer, page::Page* page) {
  page::Job& job = *page->mutable_job();
  auto summary = client_.job(project, name);
  if (!summary.ok()) return summary.status();
  *job.mutable_summary() = *summary;
  const v1::Filter all = filter_of(summary->project(), name);
  auto last = client_.verdicts(all, "sequence desc", limits_.steps);
  if (!last.ok()) return last.status();
  v1::Filter wrong = all;
  wrong.set_verdict(v1::OUTCOME_TYPE_II);
  auto type_ii = client_.verdicts(wrong, "sequence", limits_.type_ii);
  if (!type_ii.ok()) return type_ii.status();

  // The steps in order of commit: accused ones that are older than the last, then the last.
  std::set<std::string> ids;
  for (const v1::Verdict& verdict : *last) ids.insert(verdict.id());
  std::vector<v1::Verdict> steps;
  for (v1::Verdict& verdict : *type_ii) {
    if (ids.insert(verdict.id()).second) steps.push_back(std::move(verdict));
  }
  const std::size_t older = steps.size();
  std::move(last->rbegin(), last->rend(), std::back_inserter(steps));
  if (summary->steps() > steps.size()) {
    job.add_left_out(absl::StrCat("Of ", summary->steps(), " judged steps the last ", steps.size() - older,
                                  " are shown, and of earlier ones ", older, " that are TYPE_II (", summary->type_ii(),
                                  " TYPE_II in all)."));
  }
  Columns columns(job.mutable_steps());
  std::size_t drift_bytes = 0;
  std::vector<double> drifts;  // The last steps come first, should there be too much to read.
  for (auto each = steps.rbegin(); each != steps.rend(); ++each) drifts.push_back(drift(*each, &drift_bytes));
  for (std::size_t i = 0; i < steps.size(); ++i) {
    columns.add(steps[i], drifts[steps.size() - 1 - i], limits_.text_bytes);
  }
  if (drift_bytes > kDriftBytes) job.add_left_out("The drift of the earlier steps was not read.");

  const auto audits = client_.audits(summary->project(), name, limits_.audits);
  // A daemon of before this question has no answer to it, and the page shows the rest.
  if (!audits.ok() && !absl::IsUnimplemented(audits.status())) return audits.status();
  if (audits.ok()) job.mutable_audits()->Assign(audits->begin(), audits->end());
  const auto runs = client_.runs(summary->project(), name, limits_.runs);
  if (!runs.ok()) return runs.status();
  job.mutable_runs()->Assign(runs->begin(), runs->end());
  const auto refused = client_.refused(summary->project(), name, limits_.refused);
  if (!refused.ok()) return refused.status();
  job.mutable_refused()->Assign(refused->begin(), refused->end());
  if (summary->errors() > refused->size()) {
    job.add_left_out(absl::StrCat("Of ", summary->errors(), " refused steps ", refused->size(), " are listed."));
  }
  return add_full(steps, reproducer, &job);
}

absl::Status Collector::add_full(const std::vector<v1::Verdict>& steps, bool reproducer, page::Job* job) {
  // TYPE_II first, the earliest ahead; then what is open, then what passed, the latest ahead.
  std::vector<const v1::Verdict*> order;
  for (const int urgency : {0, 1, 2}) {
    const std::size_t begin = order.size();
    for (const v1::Verdict& step : steps) {
      const int of_step = step.verdict() == v1::OUTCOME_TYPE_II ? 0 : step.verdict() == v1::OUTCOME_TYPE_I ? 2 : 1;
      if (of_step == urgency) order.push_back(&step);
    }
    if (urgency > 0) std::reverse(order.begin() + static_cast<std::ptrdiff_t>(begin), order.end());
  }
  std::size_t bytes = page_json(*job).size(), reproducers = 0;
  std::uint64_t wrong = 0;
  for (const v1::Verdict* each : order) {
    if (static_cast<std::size_t>(job->full_size()) == limits_.full) break;
    auto whole = step(each->id(), reproducer && reproducers < kReproducerJobs);
    if (absl::IsNotFound(whole.status())) continue;  // Removed meanwhile.
    if (!whole.ok()) return whole.status();
    const std::size_t size = page_json(*whole).size();
    if (job->full_size() > 0 && bytes + size > limits_.bytes) continue;
    bytes += size;
    reproducers += !whole->reproducer().empty();
    wrong += whole->verdict().verdict() == v1::OUTCOME_TYPE_II;
    *job->add_full() = *std::move(whole);
  }
  if (wrong < job->summary().type_ii()) {
    job->add_left_out(absl::StrCat("Of ", job->summary().type_ii(), " TYPE_II steps ", wrong,
                                   " are explained here; `plumb explain ID` explains any."));
  }
  return absl::OkStatus();
}

void Collector::take_taps(v1::Verdict* verdict, std::uint32_t* left_out) const {
  auto& taps = *verdict->mutable_taps();
  if (static_cast<std::size_t>(taps.size()) > limits_.taps) {
    // Those that stay keep the trace's order.
    std::vector<int> order(static_cast<std::size_t>(taps.size()));
    for (int i = 0; i < taps.size(); ++i) order[static_cast<std::size_t>(i)] = i;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return more_telling(taps[a], taps[b]); });
    *left_out = static_cast<std::uint32_t>(order.size() - limits_.taps);
    order.resize(limits_.taps);
    std::sort(order.begin(), order.end());
    google::protobuf::RepeatedPtrField<v1::TapVerdict> kept;
    for (const int i : order) *kept.Add() = std::move(taps[i]);
    taps = std::move(kept);
  }
}

void Collector::take_alignment(v1::Verdict* verdict) const {
  if (verdict->alignment().operations_size() <= limits_.aligned) return;
  v1::Alignment& alignment = *verdict->mutable_alignment();
  auto& operations = *alignment.mutable_operations();
  const int parts = alignment.has_parts() ? static_cast<int>(alignment.parts()) : 0;
  const int first = std::clamp(parts - limits_.aligned / 2, 0, operations.size() - limits_.aligned);
  const int after = operations.size() - first - limits_.aligned;
  operations.DeleteSubrange(first + limits_.aligned, after);
  operations.DeleteSubrange(0, first);
  alignment.set_before(alignment.before() + static_cast<std::uint64_t>(first));
  alignment.set_after(alignment.after() + static_cast<std::uint64_t>(after));
  if (alignment.has_parts()) alignment.set_parts(alignment.parts() - static_cast<std::uint32_t>(first));
}

absl::StatusOr<page::Step> Collector::step(const std::string& id, bool reproducer) {
  auto verdict = client_.verdict(id);
  if (!verdict.ok()) return verdict.status();
  page::Step step;
  std::uint32_t left_out = 0;
  take_taps(&*verdict, &left_out);
  take_alignment(&*verdict);
  step.set_taps_left_out(left_out);
  if (verdict->verdict() != v1::OUTCOME_TYPE_I) {
    std::lock_guard lock(mutex_);
    for (const SourceLines& lines : sources_.of(*verdict)) {
      page::Source& source = *step.add_sources();
      source.set_place(lines.place);
      source.set_reference(lines.reference);
      source.set_first(static_cast<std::uint32_t>(lines.first));
      source.mutable_lines()->Assign(lines.lines.begin(), lines.lines.end());
      source.set_missing(lines.missing);
    }
  }
  if (reproducer && verdict->verdict() == v1::OUTCOME_TYPE_II && verdict->trace() == v1::TRACE_STATE_KEPT) {
    std::string script;
    const auto take = [&](const std::string& bytes) { return (script += bytes).size() <= limits_.text_bytes; };
    bool beside = false;  // Operands too large for the script come in a file beside it.
    const auto data = [&](const std::string&) { return !(beside = true); };
    const absl::Status made = client_.reproduce(id, {}, "", take, data);
    if (made.ok() && !beside && script.size() <= limits_.text_bytes) step.set_reproducer(script);
  }
  *step.mutable_verdict() = *std::move(verdict);
  return step;
}

}  // namespace plumbline
