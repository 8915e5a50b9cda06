#include "server/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "server/metrics/call_series.h"
#include "server/metrics/job_series.h"
#include "server/metrics/process.h"

namespace plumbline {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using Boundaries = Histogram::BucketBoundaries;

constexpr char kOther[] = "other";

constexpr std::array<std::string_view, 9> kDropReasons = {"queue_full",    "disconnected", "not_stored",
                                                          "perturbing_op", "memory_limit", "stream_ended",
                                                          "draining",      "invalid",      kOther};
// The audit's passes as bounds and judge name them; what is left of the total is the judgement itself.
constexpr std::array<std::string_view, 11> kPhases = {"lower",  "replay",  "range",   "interval", "adjoint", "pairing",
                                                      "policy", "hazards", "rounded", "total",    kOther};

// One legal step in 10^s is at s or beyond; 3 is where a single step deserves a look.
const Boundaries& surprise_boundaries() {
  static const Boundaries boundaries = {0, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 50, 100, 1000};
  return boundaries;
}

// A margin is a ratio to the envelope: 1 is the border between explained and not.
const Boundaries& margin_boundaries() {
  static const Boundaries boundaries = {1e-9, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3,
                                        0.5,  0.8,  1,    2,    10,   100,  1e4,  1e6};
  return boundaries;
}

// Relative errors, from the unit roundoff of binary64 up to 100%.
const Boundaries& resolution_boundaries() {
  static const Boundaries boundaries = {1e-16, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8,
                                        1e-7,  1e-6,  1e-5,  1e-4,  1e-3,  1e-2,  0.1,   1};
  return boundaries;
}

const Boundaries& seconds_boundaries() {
  static const Boundaries boundaries = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300};
  return boundaries;
}

// A commit is a sync to the disk, a join copies the tensors that ranks hold in parts: a millisecond where the disk is
// fast and the parts are small, seconds where it stalls and they take GiB.
const Boundaries& brief_boundaries() {
  static const Boundaries boundaries = {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30};
  return boundaries;
}

// A count that is kept elsewhere.
void raise_to(Counter& counter, std::uint64_t count) {
  counter.Increment(std::max(0.0, static_cast<double>(count) - counter.Value()));
}

template <std::size_t N>
std::string known(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::string(std::find(names.begin(), names.end(), name) != names.end() ? name : std::string_view(kOther));
}

const char* name_of(Transport transport) {
  switch (transport) {
    case Transport::kGrpc:
      return "grpc";
    case Transport::kSharedMemory:
      return "shared_memory";
    case Transport::kCudaIpc:
      return "cuda_ipc";
  }
  return kOther;
}

const char* name_of(Spill reason) {
  switch (reason) {
    case Spill::kTooLarge:
      return "too_large";
    case Spill::kFull:
      return "device_full";
    case Spill::kOutOfMemory:
      return "out_of_memory";
    case Spill::kDeviceError:
      return "device_error";
  }
  return kOther;
}

void observe(Histogram& histogram, const Boundaries& boundaries, double value) {
  if (std::isfinite(value)) {
    histogram.Observe(value);
  } else if (value > 0) {
    // Infinite: into the last bucket, but not into the sum, which would stay infinite for good.
    std::vector<double> increments(boundaries.size() + 1, 0);
    increments.back() = 1;
    histogram.ObserveMultiple(increments, 0);
  }
}

// Distinct values of a label, up to a bound.
template <typename Value>
class Bounded {
 public:
  explicit Bounded(std::size_t size_max) : size_max_(size_max) {}

  bool admit(const Value& value) {
    std::lock_guard lock(mutex_);
    if (seen_.contains(value)) return true;
    if (seen_.size() >= size_max_) return false;
    seen_.insert(value);
    return true;
  }

 private:
  const std::size_t size_max_;
  std::mutex mutex_;
  std::set<Value> seen_;
};

}  // namespace

struct Metrics::Families {
  prometheus::Registry registry;

  Histogram& surprise =
      histogram("plumbline_surprise",
                "Minus log10 of the probability that legal rounding deviates as much somewhere in the step.",
                surprise_boundaries());
  Histogram& margin = histogram(
      "plumbline_margin", "Deviation over envelope of the question that decided: above 1 is not explained by rounding.",
      margin_boundaries());
  Histogram& math_resolution = histogram("plumbline_math_resolution",
                                         "Smallest relative error that the question of mathematics would have flagged.",
                                         resolution_boundaries());
  Histogram& exec_resolution =
      histogram("plumbline_exec_resolution",
                "Smallest relative error that the question of execution would have flagged.", resolution_boundaries());
  Family<Histogram>& audit_seconds =
      prometheus::BuildHistogram()
          .Name("plumbline_step_audit_seconds")
          .Help("Seconds that auditing a step took, by phase; `total` is the whole audit.")
          .Register(registry);
  Family<Counter>& ingest_bytes = counter("plumbline_ingest_bytes_total", "Bytes of step data received, by transport.");
  Family<Counter>& ops = counter(
      "plumbline_ops_total", "Operations of audited steps, by coverage: audited, opaque (not modelled), unaudited.");
  Family<Counter>& hazards = counter("plumbline_hazards_total", "Hazards found in audited steps, by kind.");
  Gauge& queue_steps = gauge("plumbline_queue_steps", "Steps received that wait for a worker.");
  Gauge& worker_busy_ratio =
      gauge("plumbline_worker_busy_ratio", "Share of the time since the last scrape that workers audited.");
  Gauge& worker_memory_bytes = gauge("plumbline_worker_memory_bytes", "Bytes reserved for steps held and audited.");
  Gauge& memory_limit_bytes =
      gauge("plumbline_memory_limit_bytes", "Bytes that steps and audits together may reserve.");
  Gauge& streams = gauge("plumbline_streams", "Streams of ranks that are open.");
  Family<Gauge>& steps_waiting = gauges(
      "plumbline_steps_waiting", "Steps that wait for their reference's step, or for the traces of other ranks.");
  Family<Gauge>& worker_up = gauges("plumbline_worker_up", "1 while a worker takes steps, 0 once its device was lost.");
  Family<Gauge>& worker_audit_bytes =
      gauges("plumbline_worker_audit_bytes",
             "Bytes that audits take, by worker: reserved on the host, held by the pool of a device.");
  Family<Counter>& worker_restarts =
      counter("plumbline_worker_restarts_total", "Times that a worker's device was opened again after an error.");
  Family<Counter>& spills =
      counter("plumbline_worker_spills_total", "Steps audited on the host although there is a device, by reason.");
  Gauge& connections = gauge("plumbline_connections", "Connections of clients.");
  Counter& refused_connections =
      counter("plumbline_refused_connections_total", "Connections turned away: there were as many as may be.").Add({});
  Counter& faults = counter("plumbline_internal_faults_total",
                            "Exceptions within the daemon, each of which cost one step or call: the log has them.")
                        .Add({});
  Family<Counter>& dropped = counter("plumbline_dropped_steps_total", "Sampled steps that were dropped, by reason.");
  Family<Counter>& quota_refusals =
      counter("plumbline_quota_refusals_total", "Streams and steps that a quota refused, by project and quota.");
  Family<Gauge>& ready = gauges("plumbline_ready", "1 while the daemon does its work, by what may keep it from that.");
  Gauge& disk_free_bytes = gauge("plumbline_disk_free_bytes", "Free bytes of the data directory's file system.");
  Histogram& commit_seconds =
      histogram("plumbline_store_commit_seconds",
                "Seconds that the verdict database took to write and sync a group of records.", brief_boundaries());
  Histogram& join_seconds =
      histogram("plumbline_join_seconds", "Seconds that a worker took to join the traces of a step's ranks into one.",
                brief_boundaries());
  Counter& store_errors = counter("plumbline_store_errors_total",
                                  "Records that the verdict database did not take; jobs send their steps again.")
                              .Add({});
  Family<Gauge>& history_up = gauges("plumbline_history_up", "1 while records reach the shared history.");
  Family<Gauge>& backlog_records =
      gauges("plumbline_history_backlog_records", "Records that the shared history is still to have.");
  Family<Gauge>& backlog_seconds =
      gauges("plumbline_history_backlog_seconds", "Seconds since the oldest of them was written; 0: there is none.");
  Family<Counter>& history_shipped =
      counter("plumbline_history_shipped_total", "Records that were shipped to the shared history.");
  Family<Counter>& history_turned_away =
      counter("plumbline_history_turned_away_total",
              "Records that the shared history does not take: they are in this daemon's own alone, and in its log.");
  Family<Counter>& history_errors =
      counter("plumbline_history_errors_total", "Attempts to reach the shared history that failed, by reason.");
  Family<Gauge>& publish_up = gauges("plumbline_publish_up", "1 while verdicts reach the stream of --publish.");
  Family<Gauge>& publish_backlog =
      gauges("plumbline_publish_backlog_verdicts", "Verdicts that the stream is still to have.");
  Family<Gauge>& publish_backlog_seconds =
      gauges("plumbline_publish_backlog_seconds", "Seconds since the oldest of them was made; 0: there is none.");
  Family<Counter>& publish_verdicts =
      counter("plumbline_publish_verdicts_total", "Verdicts that the stream acknowledged.");
  Family<Counter>& publish_turned_away =
      counter("plumbline_publish_turned_away_total",
              "Verdicts that the stream does not take for their size: the log has them.");
  Family<Counter>& publish_replays = counter("plumbline_publish_replays_total",
                                             "Times that the stream had lost verdicts, which were published again.");
  Family<Counter>& publish_errors =
      counter("plumbline_publish_errors_total", "Attempts to reach the stream that failed, by reason.");
  Family<Gauge>& build_info =
      gauges("plumbline_build_info", "Always 1; its labels tell version, commit and backend of this daemon.");

  JobSeries jobs{&registry, kJobsMax};
  CallSeries calls{&registry};
  Bounded<std::string> hazard_kinds{kHazardsMax};
  Bounded<std::string> quota_projects{kJobsMax};

  std::mutex gpus_mutex;
  std::map<std::string, GpuLabels> gpus;  // By worker.

  std::function<absl::Time()> now;
  std::mutex refresh_mutex;
  std::function<void()> refresh;

  Family<Counter>& counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  Family<Gauge>& gauges(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
  }
  prometheus::Labels worker_labels(const std::string& worker) {
    prometheus::Labels labels = {{"worker", worker}};
    const std::lock_guard lock(gpus_mutex);
    const auto found = gpus.find(worker);
    if (found == gpus.end()) return labels;
    if (!found->second.gpu.empty()) labels["gpu"] = found->second.gpu;
    if (!found->second.uuid.empty()) labels["UUID"] = found->second.uuid;
    return labels;
  }
  Gauge& gauge(const char* name, const char* help) { return gauges(name, help).Add({}); }
  Histogram& histogram(const char* name, const char* help, const Boundaries& boundaries) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, boundaries);
  }
};

Metrics::Metrics(const std::string& version, const std::string& commit, const std::string& backend,
                 std::function<absl::Time()> now)
    : families_(std::make_unique<Families>()) {
  families_->now = std::move(now);
  families_->build_info.Add({{"version", version}, {"commit", commit}, {"backend", backend}}).Set(1);
  // Series of a fixed set exist from the start: a rate over a series that appears with its first event misses it.
  for (const std::string_view reason : kDropReasons) families_->dropped.Add({{"reason", std::string(reason)}});
  for (const std::string_view phase : kPhases) {
    families_->audit_seconds.Add({{"phase", std::string(phase)}}, seconds_boundaries());
  }
  for (const char* kind : {"overflow", "underflow", "lost_updates", "stagnation", "cancellation", "guard"})
    families_->hazards.Add({{"kind", kind}});
  for (const char* coverage : {"audited", "opaque", "unaudited"}) families_->ops.Add({{"coverage", coverage}});
  for (const Spill reason : {Spill::kTooLarge, Spill::kFull, Spill::kOutOfMemory, Spill::kDeviceError}) {
    families_->spills.Add({{"reason", name_of(reason)}});
  }
  for (const Transport transport : {Transport::kGrpc, Transport::kSharedMemory, Transport::kCudaIpc}) {
    families_->ingest_bytes.Add({{"transport", name_of(transport)}});
  }
}

Metrics::~Metrics() = default;

void Metrics::add_verdict(const Verdict& verdict) {
  families_->jobs.add_verdict(verdict, families_->now());

  observe(families_->surprise, surprise_boundaries(), verdict.surprise);
  observe(families_->margin, margin_boundaries(), verdict.margin);
  observe(families_->math_resolution, resolution_boundaries(), verdict.math_resolution);
  observe(families_->exec_resolution, resolution_boundaries(), verdict.exec_resolution);
  for (const auto& [phase, seconds] : verdict.phase_seconds) {
    observe(families_->audit_seconds.Add({{"phase", known(kPhases, phase)}}, seconds_boundaries()),
            seconds_boundaries(), seconds);
  }
  observe(families_->audit_seconds.Add({{"phase", "total"}}, seconds_boundaries()), seconds_boundaries(),
          verdict.audit_seconds);

  const Coverage& coverage = verdict.coverage;
  const std::uint64_t covered = coverage.audited + coverage.opaque;
  families_->ops.Add({{"coverage", "audited"}}).Increment(static_cast<double>(coverage.audited));
  families_->ops.Add({{"coverage", "opaque"}}).Increment(static_cast<double>(coverage.opaque));
  if (coverage.operations > covered) {
    families_->ops.Add({{"coverage", "unaudited"}}).Increment(static_cast<double>(coverage.operations - covered));
  }
  for (const Hazard& hazard : verdict.hazards) {
    const bool admitted = families_->hazard_kinds.admit(hazard.kind);
    families_->hazards.Add({{"kind", admitted ? hazard.kind : kOther}}).Increment();
  }
}

void Metrics::open_job(const std::string& project, const std::string& job) {
  families_->jobs.open(project, job, families_->now());
}

void Metrics::add_steps(const std::string& project, const std::string& job, StepOutcome outcome, std::int64_t steps) {
  families_->jobs.add_steps(project, job, outcome, steps, families_->now());
}

void Metrics::add_dropped_steps(std::string_view reason, std::int64_t steps) {
  families_->dropped.Add({{"reason", known(kDropReasons, reason)}})
      .Increment(static_cast<double>(std::max<std::int64_t>(steps, 0)));
}

void Metrics::add_missed(const std::string& project, const std::string& job, std::int64_t steps,
                         const std::vector<std::string>& reasons) {
  if (steps <= 0) return;
  add_steps(project, job, StepOutcome::kMissed, steps);
  std::int64_t rest = steps;
  for (const std::string& reason : reasons) {
    if (rest == 0) break;
    add_dropped_steps(reason);
    --rest;
  }
  add_dropped_steps(kOther, rest);
}

void Metrics::add_ingest_bytes(Transport transport, std::uint64_t bytes) {
  families_->ingest_bytes.Add({{"transport", name_of(transport)}}).Increment(static_cast<double>(bytes));
}

void Metrics::set_queue_steps(std::int64_t steps) { families_->queue_steps.Set(static_cast<double>(steps)); }

void Metrics::set_worker_busy_ratio(double ratio) { families_->worker_busy_ratio.Set(ratio); }

void Metrics::set_worker_memory_bytes(std::uint64_t bytes) {
  families_->worker_memory_bytes.Set(static_cast<double>(bytes));
}

void Metrics::add_quota_refusals(const std::string& project, std::string_view quota, std::int64_t refusals) {
  const bool admitted = families_->quota_projects.admit(project);
  families_->quota_refusals.Add({{"project", admitted ? project : kOther}, {"quota", std::string(quota)}})
      .Increment(static_cast<double>(refusals));
}

void Metrics::set_worker_gpu(const std::string& worker, const GpuLabels& labels) {
  const std::lock_guard lock(families_->gpus_mutex);
  families_->gpus[worker] = labels;
}

void Metrics::set_worker_up(const std::string& worker, bool up) {
  const prometheus::Labels labels = families_->worker_labels(worker);
  families_->worker_up.Add(labels).Set(up ? 1 : 0);
  families_->worker_restarts.Add(labels);  // There before its first event.
}

void Metrics::set_worker_audit_bytes(const std::string& worker, std::uint64_t bytes) {
  families_->worker_audit_bytes.Add(families_->worker_labels(worker)).Set(static_cast<double>(bytes));
}

void Metrics::set_memory_limit_bytes(std::uint64_t bytes) {
  families_->memory_limit_bytes.Set(static_cast<double>(bytes));
}

void Metrics::set_streams(std::size_t open) { families_->streams.Set(static_cast<double>(open)); }

void Metrics::set_steps_waiting(std::size_t for_references, std::size_t for_ranks) {
  families_->steps_waiting.Add({{"for", "reference"}}).Set(static_cast<double>(for_references));
  families_->steps_waiting.Add({{"for", "ranks"}}).Set(static_cast<double>(for_ranks));
}

void Metrics::add_worker_restart(const std::string& worker) {
  families_->worker_restarts.Add(families_->worker_labels(worker)).Increment();
}

void Metrics::add_spill(Spill reason) { families_->spills.Add({{"reason", name_of(reason)}}).Increment(); }

void Metrics::set_connections(std::size_t open, std::size_t refused) {
  families_->connections.Set(static_cast<double>(open));
  Counter& counted = families_->refused_connections;
  counted.Increment(std::max(0.0, static_cast<double>(refused) - counted.Value()));
}

void Metrics::set_faults(std::uint64_t faults) { raise_to(families_->faults, faults); }

void Metrics::set_shared_history(const SharedHistory& history) {
  families_->history_up.Add({}).Set(history.up ? 1 : 0);
  families_->backlog_records.Add({}).Set(static_cast<double>(history.backlog_records));
  families_->backlog_seconds.Add({}).Set(history.backlog_seconds);
  raise_to(families_->history_shipped.Add({}), history.shipped);
  raise_to(families_->history_turned_away.Add({}), history.turned_away);
  for (const auto& [reason, attempts] : history.errors) {
    raise_to(families_->history_errors.Add({{"reason", std::string(reason)}}), attempts);
  }
}

void Metrics::set_publication(const Publication& publication) {
  families_->publish_up.Add({}).Set(publication.up ? 1 : 0);
  families_->publish_backlog.Add({}).Set(static_cast<double>(publication.backlog_verdicts));
  families_->publish_backlog_seconds.Add({}).Set(publication.backlog_seconds);
  raise_to(families_->publish_verdicts.Add({}), publication.published);
  raise_to(families_->publish_turned_away.Add({}), publication.turned_away);
  raise_to(families_->publish_replays.Add({}), publication.replays);
  for (const auto& [reason, attempts] : publication.errors) {
    raise_to(families_->publish_errors.Add({{"reason", std::string(reason)}}), attempts);
  }
}

void Metrics::set_ready(const std::string& check, bool ready) {
  families_->ready.Add({{"check", check}}).Set(ready ? 1 : 0);
}

void Metrics::set_disk_free_bytes(std::uint64_t bytes) { families_->disk_free_bytes.Set(static_cast<double>(bytes)); }

void Metrics::add_commit(double seconds, std::size_t records, bool written) {
  families_->commit_seconds.Observe(seconds);
  if (!written) families_->store_errors.Increment(static_cast<double>(records));
}

void Metrics::add_join(double seconds) { families_->join_seconds.Observe(seconds); }

CallSeries& Metrics::calls() { return families_->calls; }

void Metrics::on_scrape(std::function<void()> refresh) {
  std::lock_guard lock(families_->refresh_mutex);
  families_->refresh = std::move(refresh);
}

std::string Metrics::scrape() {
  std::lock_guard lock(families_->refresh_mutex);
  if (families_->refresh) families_->refresh();
  families_->jobs.expire(families_->now());
  std::vector<prometheus::MetricFamily> families = families_->registry.Collect();
  for (auto& family : process_families()) families.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace plumbline
