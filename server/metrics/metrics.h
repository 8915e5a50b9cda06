// Every Prometheus family of the daemon, declared once. Thread-safe. Labels are bounded: at most kJobsMax pairs of
// (project, job) at a time, those that were active last (job_series.h), kHazardsMax hazard kinds and a fixed set of
// everything else; what is past a bound counts as "other".
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/judge/verdict.h"

namespace plumbline {

enum class Transport { kGrpc, kSharedMemory, kCudaIpc };

// What became of a sampled step.
enum class StepOutcome {
  kAudited,  // It has a verdict.
  kRefused,  // It has an error.
  kMissed,   // The client dropped it.
};

// Why a step was not audited where it should have been, on a device, but on the host.
enum class Spill {
  kTooLarge,     // For every device.
  kFull,         // The device's memory was taken.
  kOutOfMemory,  // In the middle of the step: it was begun again.
  kDeviceError   // The same.
};

// A worker that is a GPU, as NVIDIA's DCGM exporter labels it: `gpu`, the number that nvidia-smi gives it, and `UUID`,
// by which series join. A label that is empty is left out, which is the same to Prometheus.
struct GpuLabels {
  std::string gpu, uuid;
};

class CallSeries;

class Metrics {
 public:
  static constexpr std::size_t kJobsMax = 200;
  static constexpr std::size_t kHazardsMax = 32;

  // For build_info; and a clock.
  Metrics(const std::string& version, const std::string& commit, const std::string& backend,
          std::function<absl::Time()> now = absl::Now);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Counts a stored verdict: verdicts_total, steps_total{outcome="audited"}, surprise, margin, math_resolution,
  // exec_resolution (values that are not finite are left out of the histograms: NaN is "not asked"), step_audit_seconds
  // by verdict.phase_seconds and "total", ops_total, hazards_total.
  void add_verdict(const Verdict& verdict);

  // A job has been opened: its series begin at 0, before anything is counted, so that a rate misses nothing.
  void open_job(const std::string& project, const std::string& job);

  // Counts steps without a verdict: steps_total only.
  void add_steps(const std::string& project, const std::string& job, StepOutcome outcome, std::int64_t steps = 1);

  // Steps that were dropped, by the reason of StepBegin.missed_reasons or one of ours: "queue_full", "disconnected",
  // "not_stored", "perturbing_op", "memory_limit", "stream_ended", "draining", "invalid"; any other counts as "other".
  void add_dropped_steps(std::string_view reason, std::int64_t steps = 1);

  // Counts the steps that a client dropped before the one at hand: steps_total{outcome="missed"} and, by reason,
  // dropped_steps_total (the steps without a reason as "other").
  void add_missed(const std::string& project, const std::string& job, std::int64_t steps,
                  const std::vector<std::string>& reasons);

  void add_ingest_bytes(Transport transport, std::uint64_t bytes);

  void set_queue_steps(std::int64_t steps);
  // Since the last scrape, in [0, 1]; over all workers. Memory: of the steps held and audited, in bytes.
  void set_worker_busy_ratio(double ratio);
  void set_worker_memory_bytes(std::uint64_t bytes);
  void set_memory_limit_bytes(std::uint64_t bytes);  // What steps and audits together may reserve.

  void set_streams(std::size_t open);
  // Steps that wait for their reference's step, and those of which some ranks' traces have not come.
  void set_steps_waiting(std::size_t for_references, std::size_t for_ranks);

  // A stream or a step was refused, as its project's or job's quota of this name was reached (server/access/quota.h);
  // 0: the series are there from then on. Of many projects those after the first kJobsMax count as "other".
  void add_quota_refusals(const std::string& project, std::string_view quota, std::int64_t refusals = 1);

  // The worker has the name that --workers gives it: "cpu", "cuda:0". Its GPU is told before its first series.
  void set_worker_gpu(const std::string& worker, const GpuLabels& labels);
  void set_worker_up(const std::string& worker, bool up);
  void set_worker_audit_bytes(const std::string& worker, std::uint64_t bytes);
  void add_worker_restart(const std::string& worker);
  void add_spill(Spill reason);

  // Open, and turned away since the daemon started.
  void set_connections(std::size_t open, std::size_t refused);
  // The number of the daemon's own faults since it started (server/fault/fault.h).
  void set_faults(std::uint64_t faults);
  // Whether the daemon does its work, by what may keep it from that ("store", "disk", ...).
  void set_ready(const std::string& check, bool ready);
  void set_disk_free_bytes(std::uint64_t bytes);  // Free space of the data directory's file system.

  // A group of records was written to the verdict database, or was not: then all its records were refused.
  void add_commit(double seconds, std::size_t records, bool written);
  // The traces of a step's ranks were joined, or found not to fit together.
  void add_join(double seconds);

  // Of the history that is shared with other daemons; the series are there from the first call on. Counts are since the
  // start. `errors` by reason.
  struct SharedHistory {
    bool up = false;
    std::int64_t backlog_records = 0;
    double backlog_seconds = 0;  // Age of the oldest.
    std::uint64_t shipped = 0, turned_away = 0;
    std::vector<std::pair<std::string_view, std::uint64_t>> errors;
  };
  void set_shared_history(const SharedHistory& history);

  // Of the stream that verdicts are published to, likewise.
  struct Publication {
    bool up = false;
    std::int64_t backlog_verdicts = 0;
    double backlog_seconds = 0;  // Age of the oldest.
    std::uint64_t published = 0, turned_away = 0, replays = 0;
    std::vector<std::pair<std::string_view, std::uint64_t>> errors;
  };
  void set_publication(const Publication& publication);

  CallSeries& calls();  // Of gRPC.

  // Called before each scrape, one scrape at a time: the place to set the gauges.
  void on_scrape(std::function<void()> refresh);

  // The families in the Prometheus text format, those of the process (process.h) among them.
  std::string scrape();

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace plumbline
