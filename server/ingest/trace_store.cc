#include "server/ingest/trace_store.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/ingest/disk.h"
#include "server/log/log.h"

namespace plumbline {
namespace {

namespace fs = std::filesystem;
using absl::StrCat;

// The prefixes keep names such as ".." from being anything else than names.
fs::path path_of(const std::string& directory, const StepIdentity& step) {
  return fs::path(directory) / StrCat("p_", step.project) / StrCat("j_", step.job) / StrCat("r_", step.run) /
         std::to_string(step.rank) / StrCat(step.step, ".trace");
}

// What its file takes at most, but for what the payloads are not.
std::uint64_t payload_bytes(const Trace& trace) {
  std::uint64_t bytes = 0;
  for (const auto& [id, payload] : trace.payloads) bytes += payload->size();
  return bytes;
}

bool identity_of(const fs::path& directory, const fs::path& file, StepIdentity* step) {
  const std::vector<std::string> parts = absl::StrSplit(file.lexically_relative(directory).string(), '/');
  if (parts.size() != 5) return false;
  absl::string_view project = parts[0], job = parts[1], run = parts[2], number = parts[4];
  if (!absl::ConsumePrefix(&project, "p_") || !absl::ConsumePrefix(&job, "j_") || !absl::ConsumePrefix(&run, "r_") ||
      !absl::ConsumeSuffix(&number, ".trace")) {
    return false;
  }
  step->project = std::string(project);
  step->job = std::string(job);
  step->run = std::string(run);
  return absl::SimpleAtoi(parts[3], &step->rank) && absl::SimpleAtoi(number, &step->step);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TraceStore>> TraceStore::open(const std::string& directory, std::uint64_t quota_bytes,
                                                             TraceContent content, std::uint64_t reserve_bytes) {
  std::unique_ptr<TraceStore> store(new TraceStore(directory, quota_bytes, content, reserve_bytes));
  if (auto scanned = store->scan(); !scanned.ok()) return scanned;
  return store;
}

TraceStore::TraceStore(std::string directory, std::uint64_t quota_bytes, TraceContent content,
                       std::uint64_t reserve_bytes)
    : directory_(std::move(directory)), quota_(quota_bytes), content_(content), reserve_(reserve_bytes) {}

absl::Status TraceStore::scan() {
  const std::lock_guard lock(mutex_);
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) return absl::PermissionDeniedError(StrCat("cannot create ", directory_, ": ", error.message()));
  std::ifstream remembered(fs::path(directory_) / "evicted");
  for (std::string line; std::getline(remembered, line);) {
    if (!line.empty() && evicted_ids_.insert(line).second) evicted_.push_back(line);
  }
  std::vector<std::pair<fs::file_time_type, Entry>> found;
  for (fs::recursive_directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;  // A file that vanished meanwhile.
    if (!it->is_regular_file(ignored)) continue;
    if (it->path().extension() == ".part") {
      fs::remove(it->path(), ignored);
      continue;
    }
    Entry entry;
    if (!identity_of(directory_, it->path(), &entry.step)) continue;
    entry.bytes = it->file_size(ignored);
    const fs::file_time_type written = it->last_write_time(ignored);
    entry.written = std::chrono::file_clock::to_sys(written);
    found.emplace_back(written, std::move(entry));
  }
  if (error) return absl::PermissionDeniedError(StrCat("cannot read ", directory_, ": ", error.message()));
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second.step) < std::tie(b.first, b.second.step);
  });
  for (auto& [time, entry] : found) {
    used_ += entry.bytes;
    ++runs_[entry.step.run_id()];
    const std::string id = entry.step.id();
    by_id_[id] = entries_.insert(entries_.end(), std::move(entry));
  }
  evict_to(quota_);
  return absl::OkStatus();
}

absl::Status TraceStore::put(const TraceRecord& record, const std::string& trace_id) {
  const StepIdentity& step = record.trace->identity;
  const fs::path path = path_of(directory_, step);
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error)
    return absl::UnavailableError(StrCat("cannot create ", path.parent_path().string(), ": ", error.message()));
  std::uint64_t payloads = payload_bytes(*record.trace);
  if (record.reference != nullptr) payloads += payload_bytes(*record.reference);
  if (auto room = check_reserve(directory_, payloads, reserve_); !room.ok()) return room;
  const auto bytes = write_trace_file(record, content_, path.string(), trace_id);
  if (!bytes.ok()) return bytes.status();
  if (content_ == TraceContent::kWhole) {
    if (auto synced = sync_directories(path.parent_path().string(), directory_); !synced.ok()) {
      fs::remove(path, error);
      return synced;
    }
  }

  const Shares shares = shares_ ? shares_(step.project) : Shares{};
  const std::lock_guard lock(mutex_);
  const std::string id = step.id();
  if (const auto old = by_id_.find(id); old != by_id_.end()) {
    used_ -= old->second->bytes;
    entries_.erase(old->second);
    by_id_.erase(old);
  } else {
    ++runs_[step.run_id()];
  }
  if (evicted_ids_.erase(id) > 0) evicted_.remove(id);
  used_ += *bytes;
  by_id_[id] = entries_.insert(entries_.end(), {step, *bytes, std::chrono::system_clock::now()});
  evict_to(quota_);
  const auto of_job = [&](const StepIdentity& each) { return each.project == step.project && each.job == step.job; };
  evict_of_to(of_job, shares.job);
  evict_of_to([&](const StepIdentity& each) { return each.project == step.project; }, shares.project);
  if (by_id_.count(id) > 0) return absl::OkStatus();
  const std::string larger = StrCat("the trace's ", *bytes, " bytes are more than ");
  if (*bytes > shares.job) {
    return absl::ResourceExhaustedError(
        StrCat(larger, "the job's job_kept_trace_bytes, ", shares.job, " (quotas of --policy)"));
  }
  if (*bytes > shares.project) {
    return absl::ResourceExhaustedError(
        StrCat(larger, "the project's kept_trace_bytes, ", shares.project, " (quotas of --policy)"));
  }
  return absl::ResourceExhaustedError(StrCat(larger, "--trace-quota, ", quota_, " bytes"));
}

void TraceStore::evict_to(std::uint64_t bytes) {
  while (used_ > bytes && !entries_.empty()) evict(entries_.begin());
}

void TraceStore::evict_of_to(const std::function<bool(const StepIdentity&)>& counts, std::uint64_t bytes) {
  if (used_ <= bytes) return;
  std::uint64_t used = 0;
  for (const Entry& entry : entries_) used += counts(entry.step) ? entry.bytes : 0;
  for (auto entry = entries_.begin(); used > bytes && entry != entries_.end();) {
    const auto here = entry++;
    if (!counts(here->step)) continue;
    used -= here->bytes;
    evict(here);
  }
}

void TraceStore::evict(std::list<Entry>::iterator entry) {
  const StepIdentity step = entry->step;
  const std::string id = step.id(), trace_id = trace_id_of_file(path_of(directory_, step).string());
  remove(entry);
  remember_evicted(id);
  log_event(LogLevel::kInfo, "trace_evicted", {{"step", id}, {"trace_id", trace_id}});
}

void TraceStore::limit_projects(std::function<Shares(const std::string&)> shares) { shares_ = std::move(shares); }

void TraceStore::remove(std::list<Entry>::iterator entry) {
  std::error_code ignored;  // Gone already is as good.
  fs::remove(path_of(directory_, entry->step), ignored);
  used_ -= entry->bytes;
  by_id_.erase(entry->step.id());
  const auto run = runs_.find(entry->step.run_id());
  if (--run->second == 0) runs_.erase(run);
  entries_.erase(entry);
}

std::size_t TraceStore::remove_job(const std::string& project, const std::string& job) {
  const std::lock_guard lock(mutex_);
  std::size_t removed = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto here = entry++;
    if (here->step.project != project || here->step.job != job) continue;
    remove(here);
    ++removed;
  }
  return removed;
}

std::size_t TraceStore::remove_before(std::chrono::system_clock::time_point time) {
  const std::lock_guard lock(mutex_);
  std::size_t removed = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto here = entry++;
    if (here->written >= time) continue;
    const std::string id = here->step.id();
    remove(here);
    remember_evicted(id);
    ++removed;
  }
  return removed;
}

void TraceStore::remember_evicted(const std::string& id) {
  if (!evicted_ids_.insert(id).second) return;
  evicted_.push_back(id);
  const fs::path path = fs::path(directory_) / "evicted";
  if (evicted_.size() <= kEvictedMax) {
    std::ofstream(path, std::ios::app) << id << '\n';
    return;
  }
  while (evicted_.size() > kEvictedMax / 2) {  // Half at a time, so that the file is seldom written anew.
    evicted_ids_.erase(evicted_.front());
    evicted_.pop_front();
  }
  std::ofstream file(path, std::ios::trunc);
  for (const std::string& line : evicted_) file << line << '\n';
}

TraceStore::State TraceStore::state(const StepIdentity& step) const {
  const std::lock_guard lock(mutex_);
  const std::string id = step.id();
  if (by_id_.count(id) > 0) return State::kPresent;
  return evicted_ids_.count(id) > 0 ? State::kEvicted : State::kAbsent;
}

bool TraceStore::has_run(const StepIdentity& run) const {
  const std::lock_guard lock(mutex_);
  const std::string id = run.run_id();
  if (runs_.count(id) > 0) return true;
  return std::any_of(evicted_.begin(), evicted_.end(),
                     [&](const std::string& evicted) { return evicted.rfind(id + "/", 0) == 0; });
}

absl::StatusOr<TraceRecord> TraceStore::load(const StepIdentity& step,
                                             const std::shared_ptr<BufferPool>& buffers) const {
  auto record = read_trace_file(path(step), {.buffers = buffers});
  if (record.ok() && record->trace->identity != step) return absl::DataLossError("it is of another step");
  return record;
}

std::string TraceStore::path(const StepIdentity& step) const { return path_of(directory_, step).string(); }

std::uint64_t TraceStore::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::map<std::string, std::uint64_t> TraceStore::used_by_project() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::uint64_t> used;
  for (const Entry& entry : entries_) used[entry.step.project] += entry.bytes;
  return used;
}

std::map<std::string, std::uint64_t> TraceStore::used_by_job(const std::string& project) const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::uint64_t> used;
  for (const Entry& entry : entries_) {
    if (entry.step.project == project) used[entry.step.job] += entry.bytes;
  }
  return used;
}

}  // namespace plumbline
