// plumbline.v1.VerdictService: what operators ask. Reads of the store run on threads of the service's own, never in
// gRPC's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "plumbline/v1/query.grpc.pb.h"
#include "server/access/access.h"
#include "server/access/project_use.h"
#include "server/ingest/golden_store.h"
#include "server/ingest/trace_store.h"
#include "server/store/shared_reader.h"
#include "server/store/sql_store.h"
#include "server/work/run_registry.h"
#include "server/work/step_pipeline.h"

namespace plumbline {

class VerdictService {
 public:
  // All must outlive the service; all but the store and the access may be null.
  struct Parts {
    SqlStore* store = nullptr;
    const Access* access = nullptr;
    TraceStore* kept = nullptr;  // It keeps the traces of TYPE_II verdicts.
    TraceStore* references = nullptr;
    RunRegistry* runs = nullptr;
    const StepPipeline* pipeline = nullptr;
    v1::ServerInfo info = {};
    std::function<void()> removed = nullptr;  // Called when a job was removed. May be empty.
    // What projects take; null: no quota is told. With it goes what their steps under way hold.
    const ProjectUse* use = nullptr;
    std::function<std::uint64_t(const std::string& project, const std::string& job)> bytes_in_flight = nullptr;
    SharedReader* shared = nullptr;  // The history that daemons share; null: none.
    GoldenStore* pairs = nullptr;    // Steps of reference runs, kept for other daemons; null: none.
  };
  static constexpr int kQueriesMax = 1024;         // Waiting for their turn; past it: RESOURCE_EXHAUSTED.
  static constexpr std::size_t kWatchesMax = 256;  // At one time; the same.

  explicit VerdictService(Parts parts);
  ~VerdictService();

  // For ServerBuilder::RegisterService.
  grpc::Service* service();

  // Ends every WatchVerdicts with UNAVAILABLE ("draining"), so that Server::Shutdown does not wait for them; later
  // watches are refused alike, and queries that run are given up. Waits up to half a second for watchers that do not
  // read, then cancels them. Call before Server::Shutdown.
  void drain();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumbline
