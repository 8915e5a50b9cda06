#include "server/store/fleet_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "server/store/merge.h"

namespace plumbline {
namespace {

using Time = google::protobuf::util::TimeUtil;

template <typename Number>
int sign(Number a, Number b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

// Where a verdict of the shared history comes beside one of ours: negative, before it. Where keys are equal, what is
// shared was committed first.
int compare_places(const Order& order, const ListPlace& shared, const ListPlace& own) {
  int by_key = 0;
  if (order.key == Order::Key::kSurprise) {
    double a = 0, b = 0;
    (void)absl::SimpleAtod(shared.key, &a);  // Both are ours.
    (void)absl::SimpleAtod(own.key, &b);
    by_key = sign(a, b);
  } else if (order.key != Order::Key::kSequence) {
    std::int64_t a = 0, b = 0;
    (void)absl::SimpleAtoi(shared.key, &a);
    (void)absl::SimpleAtoi(own.key, &b);
    by_key = sign(a, b);
  }
  if (by_key == 0) by_key = -1;
  return order.descending ? -by_key : by_key;
}

// Where a list that has come to a verdict of the other history goes on in this one: all of ours comes after what is
// shared with the same key.
ListPlace place_beside(const ListPlace& place, bool in_own) {
  if (place.own == in_own) return place;
  return {in_own ? 0 : std::numeric_limits<std::int64_t>::max(), place.key, place.cut, in_own};
}

void add(const JobCounts& counts, v1::JobSummary* job) {
  if (job->type_ii() == 0 && !counts.first_type_ii.empty()) job->set_worst_verdict_id(counts.first_type_ii);
  job->set_type_i(job->type_i() + counts.type_i);
  job->set_type_ii(job->type_ii() + counts.type_ii);
  job->set_inconclusive(job->inconclusive() + counts.inconclusive);
  job->set_steps(job->type_i() + job->type_ii() + job->inconclusive());
  const auto last = Time::MicrosecondsToTimestamp(counts.last_us);
  if (last > job->last_seen()) *job->mutable_last_seen() = last;
}

// What a run that streams here audited our own history knows sooner.
void take_newer(const google::protobuf::RepeatedPtrField<v1::RunCoverage>& own,
                google::protobuf::RepeatedPtrField<v1::RunCoverage>* shared) {
  for (const v1::RunCoverage& ours : own) {
    const auto same = std::find_if(shared->begin(), shared->end(), [&](const v1::RunCoverage& theirs) {
      return theirs.run() == ours.run() && theirs.rank() == ours.rank();
    });
    if (same != shared->end()) {
      if (ours.steps() >= same->steps()) *same = ours;
    } else if (shared->empty() || shared->Get(0).run() == ours.run()) {
      *shared->Add() = ours;
    }
  }
  std::sort(shared->begin(), shared->end(),
            [](const v1::RunCoverage& a, const v1::RunCoverage& b) { return a.rank() < b.rank(); });
}

// The lower median of two lists of numbers of which one is in another history: the longer one's numbers about its
// place are fetched alone.
absl::StatusOr<double> median(std::uint64_t there, std::uint64_t here,
                              const std::function<absl::StatusOr<std::vector<double>>(bool shared, std::int64_t from,
                                                                                      std::int64_t count)>& fetch) {
  if (there + here == 0) return std::numeric_limits<double>::quiet_NaN();
  const bool shared_is_longer = there >= here;
  const auto shorter = static_cast<std::int64_t>(std::min(there, here));
  if (shorter > FleetReader::kMedianMax) {
    return absl::ResourceExhaustedError(absl::StrCat("expected at most ", FleetReader::kMedianMax,
                                                     " verdicts that are not shipped yet, found ", shorter,
                                                     "; ask again later, or for less"));
  }
  const std::int64_t middle = (static_cast<std::int64_t>(there + here) - 1) / 2;
  const std::int64_t from = std::max<std::int64_t>(0, middle - shorter);
  auto all = fetch(!shared_is_longer, 0, shorter);
  if (!all.ok()) return all.status();
  const auto about = fetch(shared_is_longer, from, middle - from + 1);
  if (!about.ok()) return about.status();
  all->insert(all->end(), about->begin(), about->end());
  const auto place = static_cast<std::size_t>(middle - from);
  if (place >= all->size()) return std::numeric_limits<double>::quiet_NaN();  // Removed meanwhile.
  std::nth_element(all->begin(), all->begin() + static_cast<std::ptrdiff_t>(place), all->end());
  return (*all)[place];
}

double larger(double a, double b) { return std::isnan(a) || b > a ? b : a; }

}  // namespace

FleetReader::FleetReader(const SqlStore* own, SharedReader* shared, Clock::time_point patience)
    : own_(own), shared_(shared), patience_(patience), state_(shared == nullptr ? absl::OkStatus() : shared->state()) {}

Stop FleetReader::patient(const Stop& stop) const {
  return [this, stop] { return (stop && stop()) || Clock::now() >= patience_; };
}

v1::History FleetReader::history() const {
  v1::History history;
  history.set_scope(asks() ? v1::History::SCOPE_FLEET : v1::History::SCOPE_OWN);
  history.set_reason(std::string(state_.message()));
  if (shared_ != nullptr) history.set_node(shared_->name());
  return history;
}

bool FleetReader::lost(const absl::Status& status, const Stop& stop) const {
  if (absl::IsCancelled(status) && !(stop && stop())) {
    return lost(absl::UnavailableError("it does not answer in time"), stop);
  }
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kResourceExhausted:
      return false;
    default:
      shared_->failed(status);
      state_ = absl::UnavailableError(status.message());
      return true;
  }
}

FleetReader::Sides FleetReader::sides(const Visibility& seen, const Cut& cut) const {
  Sides sides{shared_->seen(seen), seen};
  sides.there.part.through = cut.shared_through;
  sides.here.part.after = cut.own_after;
  return sides;
}

// Mostly not: then nothing is counted.
absl::StatusOr<bool> FleetReader::anything_after(const Cut& cut) const {
  const auto last = own_->queries().last_sequence();
  if (!last.ok()) return last.status();
  return *last > cut.own_after;
}

absl::StatusOr<std::vector<StoredVerdict>> FleetReader::list(const v1::Filter& filter, const Order& order,
                                                             const ListPlace* after, int limit, bool whole,
                                                             const Visibility& seen, const Stop& stop) const {
  const bool goes_on = after != nullptr && !after->cut.empty();
  if (goes_on && !asks()) {
    return absl::UnavailableError(
        absl::StrCat("page_token: the shared history, which the pages before were from, is away: ",
                     shared_ == nullptr ? "the daemon has none (--store)" : std::string(state_.message())));
  }
  if (after != nullptr && !goes_on && asks()) {
    state_ = absl::UnavailableError("the list's first page was answered without the shared history");
  }
  if (asks()) {
    auto found = list_both(filter, order, after, limit, whole, seen, stop);
    if (!lost(found.status(), stop)) return found;
    if (goes_on) return found.status();
  }
  auto found = own_->queries().list(filter, order, after, limit, whole, seen, stop);
  if (found.ok() && shared_ != nullptr) {
    for (StoredVerdict& stored : *found) stored.verdict.set_node(shared_->name());
  }
  return found;
}

absl::StatusOr<std::vector<StoredVerdict>> FleetReader::list_both(const v1::Filter& filter, const Order& order,
                                                                  const ListPlace* after, int limit, bool whole,
                                                                  const Visibility& seen, const Stop& stop) const {
  auto cut = shared_->queries().cut(patient(stop));
  if (!cut.ok()) return cut.status();
  if (after != nullptr) {
    auto before = parse_cut(after->cut);
    if (!before.ok()) return before.status();
    if (before->history != cut->history) {
      return absl::AbortedError("page_token: the shared history was made anew since; begin the list again");
    }
    cut = std::move(before);
  }
  const std::string text = write_cut(*cut);
  const Sides both = sides(seen, *cut);
  const auto pages = [&](bool own) {
    return Pages<StoredVerdict>([&, own](const StoredVerdict* last) -> absl::StatusOr<std::vector<StoredVerdict>> {
      std::optional<ListPlace> place;
      if (last != nullptr) place = *last;
      if (last == nullptr && after != nullptr) place = place_beside(*after, own);
      const Queries& from = own ? own_->queries() : shared_->queries();
      auto page = from.list(filter, order, place ? &*place : nullptr, limit, whole, own ? both.here : both.there,
                            own ? stop : patient(stop));
      if (!page.ok()) return page.status();
      for (StoredVerdict& stored : *page) {
        stored.cut = text;
        stored.own = own;
        if (own) stored.verdict.set_node(shared_->name());
      }
      return page;
    });
  };
  return merge(
      pages(false), pages(true), limit, VerdictStore::kPageBytesMax,
      [&](const StoredVerdict& shared, const StoredVerdict& own) { return compare_places(order, shared, own); },
      [](StoredVerdict shared, const StoredVerdict&) { return shared; },
      [](const StoredVerdict& stored) { return stored.verdict.ByteSizeLong(); });
}

absl::StatusOr<v1::Verdict> FleetReader::find(const std::string& id, const Visibility& seen, const Stop& stop) const {
  auto own = own_->queries().find(id, seen, stop);
  if (own.ok() && shared_ != nullptr) own->set_node(shared_->name());
  if (!absl::IsNotFound(own.status()) || shared_ == nullptr) return own;
  if (asks()) {
    auto found = shared_->queries().find(id, shared_->seen(seen), patient(stop));
    if (!lost(found.status(), stop)) return found;
  }
  return absl::NotFoundError(absl::StrCat(own.status().message(), " in this daemon's own history, and the shared one ",
                                          "is away: ", state_.message()));
}

absl::StatusOr<std::vector<v1::JobSummary>> FleetReader::jobs(const std::string& project,
                                                              const std::string& after_project,
                                                              const std::string& after_job, int limit,
                                                              const Visibility& seen, const Stop& stop) const {
  if (asks()) {
    auto found = jobs_both(project, {after_project, after_job}, limit, seen, stop);
    if (!lost(found.status(), stop)) return found;
  }
  return own_->queries().jobs(project, after_project, after_job, limit, seen, stop);
}

absl::StatusOr<std::vector<v1::JobSummary>> FleetReader::jobs_both(const std::string& project,
                                                                   std::pair<std::string, std::string> after, int limit,
                                                                   const Visibility& seen, const Stop& stop) const {
  using Key = std::pair<std::string, std::string>;
  const Visibility there = shared_->seen(seen);
  Cut cut;
  auto listed = shared_->queries().jobs(project, after.first, after.second, limit, there, patient(stop), &cut);
  if (!listed.ok()) return listed.status();
  auto own = own_->queries().jobs(project, after.first, after.second, limit, seen, stop);
  if (!own.ok()) return own.status();
  const auto more = anything_after(cut);
  if (!more.ok()) return more.status();
  std::map<Key, JobCounts> counts;
  if (*more) {
    v1::Filter filter;
    filter.set_project(project);
    auto counted = own_->queries().counts(filter, sides(seen, cut).here, stop);
    if (!counted.ok()) return counted.status();
    counts = *std::move(counted);
  }
  // Beyond the end of either page there may be jobs that it does not have.
  std::optional<Key> end;
  const auto ends = [&](const Queries& from, const Visibility& may, const std::vector<v1::JobSummary>& page) {
    if (page.empty()) return absl::OkStatus();
    const Key last{page.back().project(), page.back().job()};
    const auto rest = from.jobs(project, last.first, last.second, 1, may, patient(stop));
    if (rest.ok() && !rest->empty()) end = end ? std::min(*end, last) : last;
    return rest.status();
  };
  if (auto ended = ends(shared_->queries(), there, *listed); !ended.ok()) return ended;
  if (auto ended = ends(own_->queries(), seen, *own); !ended.ok()) return ended;

  std::map<Key, v1::JobSummary> jobs;
  for (v1::JobSummary& job : *listed) {
    Key key{job.project(), job.job()};
    if (const auto counted = counts.find(key); counted != counts.end()) add(counted->second, &job);
    jobs.emplace(std::move(key), std::move(job));
  }
  // Nothing was shipped yet of the jobs that this adds, or the shared history did not take them.
  for (v1::JobSummary& job : *own) {
    Key key{job.project(), job.job()};
    const auto known = jobs.find(key);
    if (known == jobs.end()) {
      jobs.emplace(std::move(key), std::move(job));
    } else if (counts.count(key) > 0) {
      take_newer(job.coverage(), known->second.mutable_coverage());
    }
  }
  std::vector<v1::JobSummary> found;
  std::size_t bytes = 0;
  for (auto& [key, job] : jobs) {
    bytes += job.ByteSizeLong() + 8;
    if (found.size() == static_cast<std::size_t>(limit) || (end && key > *end)) break;
    if (!found.empty() && bytes > VerdictStore::kPageBytesMax) break;
    found.push_back(std::move(job));
  }
  return found;
}

absl::StatusOr<v1::JobSummary> FleetReader::job(const std::string& project, const std::string& job,
                                                const Visibility& seen, const Stop& stop) const {
  if (asks()) {
    auto found = job_both(project, job, seen, stop);
    if (!lost(found.status(), stop)) return found;
  }
  return own_->queries().job(project, job, seen, stop);
}

absl::StatusOr<v1::JobSummary> FleetReader::job_both(const std::string& project, const std::string& job,
                                                     const Visibility& seen, const Stop& stop) const {
  Cut cut;
  auto found = shared_->queries().job(project, job, shared_->seen(seen), patient(stop), &cut);
  if (absl::IsNotFound(found.status())) return own_->queries().job(project, job, seen, stop);
  if (!found.ok()) return found.status();
  const auto more = anything_after(cut);
  if (!more.ok()) return more.status();
  if (!*more) return found;
  v1::Filter filter;
  filter.set_project(project);
  filter.set_job(job);
  const auto counts = own_->queries().counts(filter, sides(seen, cut).here, stop);
  if (!counts.ok()) return counts.status();
  for (const auto& [key, counted] : *counts) add(counted, &*found);
  const auto own = own_->queries().job(project, job, seen, stop);
  if (own.ok()) take_newer(own->coverage(), found->mutable_coverage());
  return found;
}

absl::StatusOr<std::vector<v1::RunSummary>> FleetReader::runs(const std::string& project, const std::string& job,
                                                              const std::string& after_run, std::int32_t after_rank,
                                                              int limit, const Visibility& seen,
                                                              const Stop& stop) const {
  const auto pages = [&](bool own) {
    return Pages<v1::RunSummary>([&, own](const v1::RunSummary* last) -> absl::StatusOr<std::vector<v1::RunSummary>> {
      const Queries& from = own ? own_->queries() : shared_->queries();
      auto page = from.runs(project, job, last ? last->run() : after_run, last ? last->rank() : after_rank, limit,
                            own ? seen : shared_->seen(seen), own ? stop : patient(stop));
      if (!page.ok() || !own || shared_ == nullptr) return page;
      for (v1::RunSummary& run : *page) run.set_node(shared_->name());
      return page;
    });
  };
  const auto unite = [](v1::RunSummary run, const v1::RunSummary& own) {
    if (own.first_seen() < run.first_seen()) *run.mutable_first_seen() = own.first_seen();
    if (own.last_seen() >= run.last_seen()) {
      *run.mutable_last_seen() = own.last_seen();
      run.set_client_version(own.client_version());
    }
    run.set_last_step(std::max(run.last_step(), own.last_step()));
    return run;
  };
  if (asks()) {
    auto found = merge(
        pages(false), pages(true), limit, VerdictStore::kPageBytesMax,
        [](const v1::RunSummary& a, const v1::RunSummary& b) {
          const int by_run = sign<const std::string&>(a.run(), b.run());
          return by_run != 0 ? by_run : sign(a.rank(), b.rank());
        },
        unite, [](const v1::RunSummary& run) { return run.ByteSizeLong(); });
    if (!lost(found.status(), stop)) return found;
  }
  return pages(true).page(nullptr);
}

absl::StatusOr<std::vector<v1::RefusedStep>> FleetReader::errors(const std::string& project, const std::string& job,
                                                                 const v1::RefusedStep& after, int limit,
                                                                 const Visibility& seen, const Stop& stop) const {
  const auto pages = [&](bool own) {
    return Pages<v1::RefusedStep>(
        [&, own](const v1::RefusedStep* last) -> absl::StatusOr<std::vector<v1::RefusedStep>> {
          const Queries& from = own ? own_->queries() : shared_->queries();
          auto page = from.errors(project, job, last ? *last : after, limit, own ? seen : shared_->seen(seen),
                                  own ? stop : patient(stop));
          if (!page.ok() || !own || shared_ == nullptr) return page;
          for (v1::RefusedStep& error : *page) error.set_node(shared_->name());
          return page;
        });
  };
  if (asks()) {
    auto found = merge(
        pages(false), pages(true), limit, VerdictStore::kPageBytesMax,
        [](const v1::RefusedStep& a, const v1::RefusedStep& b) {
          const auto key = [](const v1::RefusedStep& e) { return std::tuple(e.run(), e.rank(), e.step(), e.digest()); };
          return sign(key(a), key(b));
        },
        [](const v1::RefusedStep&, v1::RefusedStep own) { return own; },  // It may be newer.
        [](const v1::RefusedStep& error) { return error.ByteSizeLong(); });
    if (!lost(found.status(), stop)) return found;
  }
  return pages(true).page(nullptr);
}

absl::StatusOr<v1::Stats> FleetReader::stats(const v1::Filter& filter, const Visibility& seen, const Stop& stop) const {
  if (asks()) {
    auto found = stats_both(filter, seen, stop);
    if (!lost(found.status(), stop)) return found;
  }
  return own_->queries().stats(filter, seen, stop);
}

absl::StatusOr<v1::Stats> FleetReader::stats_both(const v1::Filter& filter, const Visibility& seen,
                                                  const Stop& stop) const {
  Cut cut;
  auto stats = shared_->queries().stats(filter, shared_->seen(seen), patient(stop), &cut);
  if (!stats.ok()) return stats.status();
  const auto more = anything_after(cut);
  if (!more.ok()) return more.status();
  if (!*more) return stats;
  const Sides both = sides(seen, cut);
  const auto own = own_->queries().stats(filter, both.here, stop);
  if (!own.ok()) return own.status();
  if (own->verdicts() == 0) return stats;
  const auto medians = [&](const char* column, std::uint64_t there, std::uint64_t here) {
    return median(there, here, [&](bool shared, std::int64_t from, std::int64_t count) {
      return shared ? shared_->queries().values(column, filter, from, count, both.there, patient(stop))
                    : own_->queries().values(column, filter, from, count, both.here, stop);
    });
  };
  const auto margin = medians("margin", stats->margins(), own->margins());
  if (!margin.ok()) return margin.status();
  const auto surprise = medians("surprise", stats->surprises(), own->surprises());
  if (!surprise.ok()) return surprise.status();
  stats->set_margin_median(*margin);
  stats->set_surprise_median(*surprise);
  stats->set_margin_max(larger(stats->margin_max(), own->margin_max()));
  stats->set_surprise_max(larger(stats->surprise_max(), own->surprise_max()));
  stats->set_margins(stats->margins() + own->margins());
  stats->set_surprises(stats->surprises() + own->surprises());
  stats->set_verdicts(stats->verdicts() + own->verdicts());
  stats->set_type_i(stats->type_i() + own->type_i());
  stats->set_type_ii(stats->type_ii() + own->type_ii());
  stats->set_inconclusive(stats->inconclusive() + own->inconclusive());
  stats->set_operations(stats->operations() + own->operations());
  stats->set_opaque(stats->opaque() + own->opaque());
  stats->set_audit_seconds(stats->audit_seconds() + own->audit_seconds());
  take_newer(own->coverage(), stats->mutable_coverage());
  return stats;
}

}  // namespace plumbline
