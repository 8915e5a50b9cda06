// Traces of steps under a directory, within a quota. Thread-safe; blocks on the disk.
//
// A trace is at DIRECTORY/p_PROJECT/j_JOB/r_RUN/RANK/STEP.trace (format: trace_file.h). Past the quota the oldest go;
// DIRECTORY/evicted remembers which, a line each, so that "evicted" and "never existed" stay apart over restarts.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/ingest/trace.h"
#include "server/ingest/trace_file.h"

namespace plumbline {

class TraceStore {
 public:
  enum class State { kPresent, kEvicted, kAbsent };

  // Opens or creates the directory; files that a crash left half-written are removed. Nothing is written that would
  // leave less than `reserve_bytes` of the file system.
  static absl::StatusOr<std::unique_ptr<TraceStore>> open(const std::string& directory, std::uint64_t quota_bytes,
                                                          TraceContent content, std::uint64_t reserve_bytes = 0);

  // Keeps a trace, in place of an earlier one of the same identity; TraceContent::kWhole: it survives power loss when
  // this returns OK. RESOURCE_EXHAUSTED: larger than the whole quota (it counts as evicted), or the disk is full.
  // The log names `trace_id` when the trace is evicted.
  absl::Status put(const TraceRecord& record, const std::string& trace_id = "");
  struct Shares {
    std::uint64_t project = UINT64_MAX, job = UINT64_MAX;  // Bytes of the whole project, and of each of its jobs.
  };
  // The traces of a project, and of each of its jobs, take no more than these shares, which are asked at each put():
  // the oldest of the project, or of the job, go. Before the first put(); without it there is no such limit.
  void limit_projects(std::function<Shares(const std::string& project)> shares);
  State state(const StepIdentity& step) const;
  bool has_run(const StepIdentity& run) const;  // A step of it is or was here.
  // NOT_FOUND; DATA_LOSS: damaged. Payloads get their memory from `buffers` (TraceReading).
  absl::StatusOr<TraceRecord> load(const StepIdentity& step,
                                   const std::shared_ptr<BufferPool>& buffers = nullptr) const;
  // Removes the traces of a job, or those that were written before `time`; as if they had never been. How many.
  std::size_t remove_job(const std::string& project, const std::string& job);
  std::size_t remove_before(std::chrono::system_clock::time_point time);
  std::string path(const StepIdentity& step) const;  // The path of the step's file, whether it is there or not.
  std::uint64_t used_bytes() const;
  std::map<std::string, std::uint64_t> used_by_project() const;                        // Bytes.
  std::map<std::string, std::uint64_t> used_by_job(const std::string& project) const;  // Bytes.

  static constexpr std::size_t kEvictedMax = 1u << 16;  // Remembered.

 private:
  struct Entry {
    StepIdentity step;
    std::uint64_t bytes = 0;
    std::chrono::system_clock::time_point written;
  };
  TraceStore(std::string directory, std::uint64_t quota_bytes, TraceContent content, std::uint64_t reserve_bytes);
  absl::Status scan();
  // With the lock held.
  void evict_to(std::uint64_t bytes);
  void evict_of_to(const std::function<bool(const StepIdentity&)>& counts, std::uint64_t bytes);
  void evict(std::list<Entry>::iterator entry);
  void remove(std::list<Entry>::iterator entry);
  void remember_evicted(const std::string& id);

  const std::string directory_;
  const std::uint64_t quota_;
  const TraceContent content_;
  const std::uint64_t reserve_;
  std::function<Shares(const std::string&)> shares_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // Oldest first.
  std::map<std::string, std::list<Entry>::iterator> by_id_;
  std::map<std::string, std::size_t> runs_;  // Steps of each run_id() here.
  std::list<std::string> evicted_;           // Oldest first.
  std::unordered_set<std::string> evicted_ids_;
  std::uint64_t used_ = 0;
};

}  // namespace plumbline
