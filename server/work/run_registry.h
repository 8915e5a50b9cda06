// Runs that the daemon knows: what they were opened with, who streams them, what the invariants remember of them.
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/profile.h"
#include "server/ingest/trace.h"
#include "server/ingest/violation.h"
#include "server/pipeline/audit.h"
#include "server/work/steering.h"

namespace plumbline {

struct Run {
  // Set when the run is opened.
  StepIdentity identity;  // Without step.
  std::string handle;     // Opaque; names the run on a stream.
  std::string owner;      // Who opened it.
  const Profile* profile = nullptr;
  std::string profile_name;
  double alpha = kDefaultAlpha;
  std::optional<StepIdentity> reference;  // The run to pair with, without step.
  std::string reference_name;             // As the client wrote it.
  std::string golden, record_golden;      // Names of golden runs; empty: none.
  Budget budget;
  std::int32_t ranks = 1;                // Judged together.
  std::vector<std::int32_t> here = {0};  // Those of them that stream to this daemon, ascending.
  bool replicated = false;
  bool pairs_with_any = false;  // Its owner may see the runs of others, and so be compared with them.

  // The identity of a step's verdict: all ranks of a run that are judged together have that of the lowest one, rank 0's
  // where all stream to this daemon.
  StepIdentity judged(std::int64_t step) const;
  StepIdentity reference_step(std::int64_t step) const;  // Where it has a reference.
  // Whether ranks of the run stream to other daemons.
  bool elsewhere() const { return here.size() < static_cast<std::size_t>(ranks); }

  StepMemory memory;            // The scheduler's tasks of this run use it, which never run at the same time.
  std::int64_t last_step = -1;  // The disk thread sets it: the last step that was admitted.
};

class RunRegistry {
 public:
  struct Request {
    StepIdentity identity;
    std::string owner;
    bool pairs_with_any = false;
    const Profile* profile = nullptr;
    std::string profile_name;
    double alpha = kDefaultAlpha;
    std::string reference_run;  // "run" or "job/run"; empty: none.
    bool keep_traces = false;
    std::string golden, record_golden;
    Budget budget;
    std::int32_t ranks = 0;                // 0: 1.
    std::vector<std::int32_t> ranks_here;  // Of `ranks`, those that stream to this daemon; empty: all.
    bool replicated = false;
    StepMemory memory;  // What a run that this daemon has not seen yet left with an earlier one.
  };

  // Opens a run, or finds it again. What is wrong otherwise: names, alpha, a reference to itself, another owner,
  // profile, alpha or reference than the run was opened with, too many runs with a stream.
  Violation open(const Request& request, std::shared_ptr<Run>* run);
  // The run that the request names to pair with, if any.
  static Violation reference_of(const Request& request, std::optional<StepIdentity>* reference);
  std::shared_ptr<Run> find(const std::string& handle) const;

  // One stream at a time holds a run. False: another one does.
  bool acquire(const Run& run);
  void release(const Run& run);

  // Results that a step's audit lacked; later runs of the job are asked for them from their first step on.
  void want(const StepIdentity& step, const std::vector<WantedResult>& results);
  std::vector<WantedResult> wanted(const StepIdentity& run) const;
  static constexpr std::size_t kWantedJobsMax = 4096, kWantedMax = 1024;

  // Whether traces of this run must be kept: it was opened as a reference, or another run named it as its reference.
  bool keeps_traces(const StepIdentity& run) const;
  bool is_reference(const StepIdentity& run) const;  // It was opened as one.
  bool known(const StepIdentity& run) const;

  // Forgets all runs of a job. False: one of them has a stream, and none is forgotten.
  bool forget_job(const std::string& project, const std::string& job);

 private:
  struct Entry {
    std::shared_ptr<Run> run;
    bool streaming = false;
    bool keep_traces = false;
    std::list<std::string>::iterator age;
  };
  Violation check_other_ranks(const Request& request, const std::optional<StepIdentity>& reference,
                              const std::vector<std::int32_t>& here) const;
  std::string fresh_handle();
  bool make_room();
  void forget(std::map<std::string, Entry>::iterator found);
  void unreference(const std::string& id);

  mutable std::mutex mutex_;
  std::map<std::string, Entry> runs_;           // The key is run_id().
  std::map<std::string, std::string> handles_;  // To run_id().
  // The runs, least recently opened first.
  std::list<std::string> ages_;
  // The key is a job; there are at most kWantedJobsMax jobs, with kWantedMax results each.
  std::map<std::string, std::set<WantedResult>> wanted_;
  std::map<std::string, int> referenced_;  // run_id() of references to the number of reasons why they are.
  std::random_device random_;
};

}  // namespace plumbline
