#include "server/work/run_registry.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "server/ingest/limits.h"
#include "server/log/log.h"
#include "server/work/ranks_here.h"

namespace plumbline {
namespace {

using absl::StrCat;

Violation check_name(const std::string& name, const std::string& field) {
  const bool legal = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == ':' || c == '-';
  });
  if (legal && !name.empty() && name.size() <= limits::kIdentityBytesMax) return {};
  return invalid(field, StrCat("1 to ", limits::kIdentityBytesMax, " characters of [A-Za-z0-9._:-]"),
                 StrCat("\"", name.substr(0, 200), "\""));
}

}  // namespace

Violation RunRegistry::reference_of(const Request& request, std::optional<StepIdentity>* reference) {
  if (request.reference_run.empty()) return {};
  const std::vector<std::string> parts = absl::StrSplit(request.reference_run, '/');
  if (parts.size() > 2) {
    return invalid("reference_run", "\"run\" or \"job/run\"", StrCat("\"", request.reference_run.substr(0, 200), "\""));
  }
  StepIdentity identity = request.identity;
  identity.run = parts.back();
  if (parts.size() == 2) identity.job = parts.front();
  if (auto wrong = check_name(identity.job, "reference_run")) return wrong;
  if (auto wrong = check_name(identity.run, "reference_run")) return wrong;
  if (identity == request.identity) {
    return invalid("reference_run", "another run", StrCat("the run itself, \"", request.reference_run, "\""));
  }
  *reference = identity;
  return {};
}

namespace {

Violation check_owner(const RunRegistry::Request& request, const Run& run) {
  if (run.owner == request.owner) return {};
  return {absl::StatusCode::kPermissionDenied, "identity.run",
          StrCat("expected a run that ", request.owner, " opened, found \"", request.identity.run,
                 "\", which another did")};
}

// What a run, or another rank of it, was opened with must be asked for again.
Violation check_same(const RunRegistry::Request& request, const std::optional<StepIdentity>& reference, const Run& run,
                     const std::string& opened) {
  const auto differs = [&](const char* field, const std::string& expected, const std::string& found) {
    return invalid(field, StrCat("\"", expected, "\", with which ", opened, " was opened"), StrCat("\"", found, "\""));
  };
  if (run.profile_name != request.profile_name) return differs("profile", run.profile_name, request.profile_name);
  if (run.alpha != request.alpha) {
    return invalid("alpha", StrCat(run.alpha, ", with which ", opened, " was opened"), StrCat(request.alpha));
  }
  const auto run_of = [](const std::optional<StepIdentity>& identity) {
    return identity ? StrCat(identity->job, "/", identity->run) : std::string();
  };
  if (run_of(run.reference) != run_of(reference)) {
    return differs("reference_run", run.reference_name, request.reference_run);
  }
  if (!(run.budget == request.budget)) {
    return invalid("budget",
                   StrCat("a share of ", run.budget.step_share, " and ", run.budget.bytes_per_second,
                          " bytes per second, with which ", opened, " was opened"),
                   StrCat(request.budget.step_share, " and ", request.budget.bytes_per_second));
  }
  if (run.golden != request.golden) return differs("golden", run.golden, request.golden);
  if (run.record_golden != request.record_golden) {
    return differs("record_golden", run.record_golden, request.record_golden);
  }
  if (run.ranks != std::max(request.ranks, 1)) {
    return invalid("ranks", StrCat(run.ranks, ", with which ", opened, " was opened"), request.ranks);
  }
  if (run.replicated != request.replicated) {
    return invalid("replicated", StrCat(run.replicated, ", with which ", opened, " was opened"), request.replicated);
  }
  return {};
}

// What some ranks of a run cannot be judged with, while the others are judged by other daemons: what crosses daemons
// has no counterpart in another run that is sure to be the same call.
Violation check_alone(const RunRegistry::Request& request) {
  const auto none = [](const char* field, const std::string& found) {
    return invalid(field, "none where ranks of the run stream to other daemons (ranks_here)", found);
  };
  if (!request.reference_run.empty()) return none("reference_run", StrCat("\"", request.reference_run, "\""));
  if (!request.golden.empty()) return none("golden", StrCat("\"", request.golden, "\""));
  if (!request.record_golden.empty()) return none("record_golden", StrCat("\"", request.record_golden, "\""));
  if (request.keep_traces) {
    return invalid("reference", "false where ranks of the run stream to other daemons (ranks_here)", "true");
  }
  return {};
}

std::string job_of(const StepIdentity& identity) { return StrCat(identity.project, "/", identity.job); }

}  // namespace

StepIdentity Run::judged(std::int64_t step) const {
  StepIdentity judged = identity;
  judged.step = step;
  if (ranks > 1) judged.rank = here.front();
  return judged;
}

StepIdentity Run::reference_step(std::int64_t step) const {
  StepIdentity wanted = *reference;
  wanted.step = step;
  return wanted;
}

Violation RunRegistry::open(const Request& request, std::shared_ptr<Run>* opened) {
  if (auto wrong = check_name(request.identity.project, "identity.project")) return wrong;
  if (auto wrong = check_name(request.identity.job, "identity.job")) return wrong;
  if (auto wrong = check_name(request.identity.run, "identity.run")) return wrong;
  if (request.identity.rank < 0 || request.identity.rank >= limits::kRanksMax) {
    return invalid("identity.rank", StrCat("0 to ", limits::kRanksMax - 1), request.identity.rank);
  }
  const int ranks_max = request.ranks_here.empty() ? limits::kRanksJoinedMax : limits::kRanksMax;
  if (request.ranks < 0 || request.ranks > ranks_max) {
    return invalid("ranks", StrCat("0 to ", ranks_max), request.ranks);
  }
  const std::int32_t ranks = std::max(request.ranks, 1);
  if (ranks > 1 && request.identity.rank >= ranks) {
    return invalid("identity.rank", StrCat("0 to ", ranks - 1, ", since the run has ", ranks, " ranks"),
                   request.identity.rank);
  }
  std::vector<std::int32_t> here;
  if (auto wrong = check_ranks_here(request.ranks_here, ranks, request.identity.rank, &here)) return wrong;
  if (static_cast<std::int32_t>(here.size()) < ranks) {
    if (auto wrong = check_alone(request)) return wrong;
  }
  if (!(request.alpha > 0 && request.alpha < 1)) {
    return invalid("alpha", "a probability above 0 and below 1", StrCat(request.alpha));
  }
  if (!(request.budget.step_share >= 0 && request.budget.step_share < 1)) {
    return invalid("budget.step_share", "a share above 0 and below 1, or 0 for none",
                   StrCat(request.budget.step_share));
  }
  if (!(request.budget.bytes_per_second >= 0 && std::isfinite(request.budget.bytes_per_second))) {
    return invalid("budget.bytes_per_second", "a finite rate, or 0 for none", StrCat(request.budget.bytes_per_second));
  }
  std::optional<StepIdentity> reference;
  if (auto wrong = reference_of(request, &reference)) return wrong;

  if (!request.golden.empty() && (reference || !request.record_golden.empty())) {
    return invalid("golden", StrCat("no ", reference ? "reference_run" : "record_golden", " beside it"),
                   StrCat("\"", reference ? request.reference_run : request.record_golden, "\""));
  }

  const std::lock_guard lock(mutex_);
  const std::string id = request.identity.run_id();
  auto found = runs_.find(id);
  if (found == runs_.end()) {
    if (auto wrong = check_other_ranks(request, reference, here)) return wrong;
    if (!make_room()) {
      return exhausted("identity",
                       StrCat("at most ", limits::kRunsMax, " runs may have a stream or a step under way at a time"));
    }
    auto run = std::make_shared<Run>();
    run->identity = request.identity;
    run->handle = fresh_handle();
    run->owner = request.owner;
    run->pairs_with_any = request.pairs_with_any;
    run->profile = request.profile;
    run->profile_name = request.profile_name;
    run->alpha = request.alpha;
    run->reference = reference;
    run->reference_name = request.reference_run;
    run->golden = request.golden;
    run->record_golden = request.record_golden;
    run->budget = request.budget;
    run->ranks = ranks;
    run->here = std::move(here);
    run->replicated = request.replicated;
    run->memory = request.memory;
    handles_[run->handle] = id;
    if (reference) ++referenced_[reference->run_id()];
    found = runs_.emplace(id, Entry{std::move(run), false, false, ages_.insert(ages_.end(), id)}).first;
  } else {
    if (auto wrong = check_owner(request, *found->second.run)) return wrong;
    if (auto wrong = check_same(request, reference, *found->second.run, "the run")) return wrong;
    if (found->second.run->here != here) {
      return invalid("ranks_here", StrCat(ranks_text(found->second.run->here), ", with which the run was opened"),
                     ranks_text(here));
    }
    ages_.splice(ages_.end(), ages_, found->second.age);
  }
  if (request.keep_traces && !found->second.keep_traces) {
    found->second.keep_traces = true;
    ++referenced_[id];
  }
  *opened = found->second.run;
  return {};
}

// The ranks of a run that are judged together must agree. Those that are not, and stream to this daemon all the same,
// agree on all but on who is judged together.
Violation RunRegistry::check_other_ranks(const Request& request, const std::optional<StepIdentity>& reference,
                                         const std::vector<std::int32_t>& here) const {
  const StepIdentity& own = request.identity;
  const std::string run = StrCat(own.project, "/", own.job, "/", own.run, "/");
  for (auto found = runs_.lower_bound(run); found != runs_.end() && found->first.starts_with(run); ++found) {
    const Run& other = *found->second.run;
    if (other.identity.rank == own.rank) continue;
    if (auto wrong = check_owner(request, other)) return wrong;
    if (other.ranks <= 1 && request.ranks <= 1) return {};
    const std::string name = StrCat("rank ", other.identity.rank, " of the run");
    if (auto wrong = check_same(request, reference, other, name)) return wrong;
    if (other.here == here) continue;
    std::vector<std::int32_t> both;
    std::set_intersection(here.begin(), here.end(), other.here.begin(), other.here.end(), std::back_inserter(both));
    if (both.empty()) continue;
    return invalid("ranks_here", StrCat(ranks_text(other.here), ", with which ", name, " was opened, or others"),
                   ranks_text(here));
  }
  return {};
}

std::shared_ptr<Run> RunRegistry::find(const std::string& handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(handle);
  return found == handles_.end() ? nullptr : runs_.at(found->second).run;
}

bool RunRegistry::acquire(const Run& run) {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(run.identity.run_id());
  if (found == runs_.end() || found->second.streaming) return false;
  found->second.streaming = true;
  return true;
}

void RunRegistry::release(const Run& run) {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(run.identity.run_id());
  if (found != runs_.end()) found->second.streaming = false;
}

void RunRegistry::want(const StepIdentity& step, const std::vector<WantedResult>& results) {
  if (results.empty()) return;
  const std::lock_guard lock(mutex_);
  const std::string job = job_of(step);
  if (wanted_.count(job) == 0 && wanted_.size() >= kWantedJobsMax) wanted_.erase(wanted_.begin());
  std::set<WantedResult>& wanted = wanted_[job];
  for (const WantedResult& result : results)
    if (wanted.size() < kWantedMax) wanted.insert(result);
}

std::vector<WantedResult> RunRegistry::wanted(const StepIdentity& run) const {
  const std::lock_guard lock(mutex_);
  const auto found = wanted_.find(job_of(run));
  if (found == wanted_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

bool RunRegistry::keeps_traces(const StepIdentity& run) const {
  const std::lock_guard lock(mutex_);
  return referenced_.count(run.run_id()) > 0;
}

bool RunRegistry::is_reference(const StepIdentity& run) const {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(run.run_id());
  return found != runs_.end() && found->second.keep_traces;
}

bool RunRegistry::known(const StepIdentity& run) const {
  const std::lock_guard lock(mutex_);
  return runs_.count(run.run_id()) > 0;
}

std::string RunRegistry::fresh_handle() {
  std::string handle;
  for (int i = 0; i < 4; ++i) absl::StrAppendFormat(&handle, "%08x", random_());
  return handle;
}

// Forgets the run that was opened longest ago, of those that have no stream and that no step holds: a run that came
// back while a step of its former self is under way would not know of it. False: there is none.
bool RunRegistry::make_room() {
  if (runs_.size() < limits::kRunsMax) return true;
  for (const std::string& id : ages_) {
    const auto found = runs_.find(id);
    if (found->second.streaming || found->second.run.use_count() > 1) continue;
    log_event(LogLevel::kInfo, "run_forgotten", {{"run", id}});
    forget(found);
    return true;
  }
  return false;
}

void RunRegistry::forget(std::map<std::string, Entry>::iterator found) {
  const Run& run = *found->second.run;
  if (found->second.keep_traces) unreference(found->first);
  if (run.reference) unreference(run.reference->run_id());
  handles_.erase(run.handle);
  ages_.erase(found->second.age);
  runs_.erase(found);
}

bool RunRegistry::forget_job(const std::string& project, const std::string& job) {
  const std::lock_guard lock(mutex_);
  std::vector<std::map<std::string, Entry>::iterator> of_job;
  for (auto entry = runs_.begin(); entry != runs_.end(); ++entry) {
    const StepIdentity& run = entry->second.run->identity;
    if (run.project != project || run.job != job) continue;
    if (entry->second.streaming) return false;
    of_job.push_back(entry);
  }
  for (const auto& entry : of_job) forget(entry);
  wanted_.erase(StrCat(project, "/", job));
  return true;
}

void RunRegistry::unreference(const std::string& id) {
  const auto found = referenced_.find(id);
  if (found != referenced_.end() && --found->second == 0) referenced_.erase(found);
}

}  // namespace plumbline
