// plumbline.v1.VerdictService: what operators ask. Reads of the store run on one thread of the service's own, never in
// gRPC's.
#pragma once

#include <memory>

#include "plumbline/v1/query.grpc.pb.h"
#include "server/ingest/trace_store.h"
#include "server/store/store.h"

namespace plumbline {

class VerdictService {
 public:
  // Both must outlive the service; `kept` (traces of TYPE_II verdicts) may be null.
  explicit VerdictService(VerdictStore* store, const TraceStore* kept = nullptr);
  ~VerdictService();

  // For ServerBuilder::RegisterService.
  grpc::Service* service();

  // Ends every WatchVerdicts with UNAVAILABLE ("draining"), so that Server::Shutdown does not wait for them; later
  // watches are refused alike. Waits up to half a second for watchers that do not read, then cancels them. Call before
  // Server::Shutdown.
  void drain();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumbline
