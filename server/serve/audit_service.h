// plumbline.v1.AuditService: opens runs, takes their streams. Thread-safe; no callback of it blocks.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "plumbline/v1/audit.grpc.pb.h"
#include "server/access/access.h"
#include "server/access/project_use.h"
#include "server/ingest/memory_budget.h"
#include "server/ingest/shared_regions.h"
#include "server/metrics/metrics.h"
#include "server/profile/profile_registry.h"
#include "server/store/store.h"
#include "server/work/run_registry.h"
#include "server/work/serial_executor.h"
#include "server/work/step_pipeline.h"

namespace plumbline {

class AuditStream;

// Streams carry raw messages: credit is counted in bytes as they came, whatever encoding the client chose.
class AuditService final : public v1::AuditService::WithRawCallbackMethod_Audit<
                               v1::AuditService::WithCallbackMethod_OpenJob<v1::AuditService::Service>> {
 public:
  // All must outlive the service; `metrics` may be null.
  struct Parts {
    VerdictStore* store = nullptr;
    RunRegistry* runs = nullptr;
    StepPipeline* pipeline = nullptr;
    SerialExecutor* disk = nullptr;
    const ProfileRegistry* profiles = nullptr;
    MemoryBudget* memory = nullptr;       // All steps that streams hold are charged to it.
    std::shared_ptr<BufferPool> buffers;  // For their payloads; may be null.
    Metrics* metrics = nullptr;
    GoldenStore* golden = nullptr;
    OpenDeviceMemory open_device_memory;  // It opens the memory of clients on this node, and may be empty.
    const Access* access = nullptr;
    ProjectUse* projects = nullptr;  // What each project takes.
    // Golden runs of other daemons; null: none. It is asked on a thread of its own, since its server may be slow.
    SharedGolden* shared_golden = nullptr;
    SerialExecutor* asking = nullptr;
  };
  struct Options {
    std::uint64_t step_bytes_max = 0;
    std::int64_t elements_max = INT64_MAX;
    std::size_t streams_max = SIZE_MAX, streams_of_a_user_max = SIZE_MAX;
    absl::Duration open_timeout = absl::InfiniteDuration();  // For a stream's first frame, and for its client to take
                                                             // the end of it.
    absl::Duration step_timeout = absl::InfiniteDuration();  // For an open step's end (audit_stream.h).
    std::string version;
    absl::Duration connection_age = absl::InfiniteDuration();  // Of a stream (audit_stream.h).
  };

  AuditService(Parts parts, Options options);
  ~AuditService() override;

  grpc::ServerUnaryReactor* OpenJob(grpc::CallbackServerContext* context, const v1::OpenJobRequest* request,
                                    v1::Job* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Audit(grpc::CallbackServerContext* context) override;

  // Takes no new runs, streams and steps; tells every stream to finish its open step.
  void begin_drain();
  // Whether all streams had ended by `deadline`, of steady_now().
  bool wait_for_streams(absl::Time deadline);

  const Parts& parts() const { return parts_; }
  const Options& options() const { return options_; }
  DeviceHandles* device_handles() { return &device_handles_; }
  bool draining() const;
  std::size_t streams() const;  // That are open.
  // Of all steps of the project, or of one of its jobs (empty: of all), that came and are not answered.
  std::uint64_t bytes_in_flight(const std::string& project, const std::string& job) const;
  // Bytes that a stream may send ahead: less, the less memory is left and the more streams there are.
  std::uint64_t window_bytes() const;
  // What the job's streams may hold of the memory together, within what those of its project may.
  std::shared_ptr<MemoryBudget::Share> share_of(const std::string& project, const std::string& job);
  // RESOURCE_EXHAUSTED: there are too many, in all or of its user. It is one all the same until it is removed.
  absl::Status add_stream(const std::shared_ptr<AuditStream>& stream);
  void remove_stream(const std::shared_ptr<AuditStream>& stream);

 private:
  v1::CapturePlan plan(const Run& run, bool regions_allowed) const;
  absl::StatusOr<StepMemory> remembered(const RunRegistry::Request& open) const;
  // With the disk: whether the caller may open the run, and be compared with what it names. Says whose the run is.
  absl::Status admit(const Caller& caller, RunRegistry::Request* open, std::string* field) const;
  // What the shared history says of the golden run that a run names; UNAVAILABLE also where there is none.
  using SharedOrigin = absl::StatusOr<SharedGolden::Origin>;
  SharedOrigin shared_origin(const RunRegistry::Request& open) const;
  Violation check_golden(const Caller& caller, const RunRegistry::Request& open, const SharedOrigin& shared) const;
  Violation begin_golden(const Run& run) const;
  void watch_deadlines();

  const Parts parts_;
  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::set<std::shared_ptr<AuditStream>> streams_;
  std::map<std::string, std::size_t> streams_of_users_;  // The key is Caller::name().
  // By project and job; an empty job: the project's.
  std::map<std::pair<std::string, std::string>, std::weak_ptr<MemoryBudget::Share>> shares_;
  DeviceHandles device_handles_;
  bool draining_ = false;
  bool stop_ = false;
  std::condition_variable tick_;
  std::thread deadlines_;  // Last: it uses the others.
};

}  // namespace plumbline
