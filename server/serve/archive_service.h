// plumbline.v1.ArchiveService: what is kept of steps, and audits of it again. Synchronous: its calls are rare, and wait
// for disks and workers; kCallsMax of them at a time, and kUploadsMax whose files are still coming.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>

#include "absl/time/time.h"
#include "plumbline/v1/archive.grpc.pb.h"
#include "server/access/access.h"
#include "server/ingest/golden_store.h"
#include "server/ingest/trace_store.h"
#include "server/judge/verdict.h"
#include "server/profile/profile_registry.h"
#include "server/serve/scratch_file.h"
#include "server/serve/uploads.h"
#include "server/store/store.h"
#include "server/work/workers.h"

namespace plumbline {

class ArchiveService final : public v1::ArchiveService::Service {
 public:
  static constexpr int kCallsMax = 8;                      // That work at one time.
  static constexpr int kUploadsMax = 8;                    // Files that are received, before their calls work.
  static constexpr std::chrono::seconds kUploadPause{30};  // Within which a client sends the next part.

  // All must outlive the service.
  struct Parts {
    const VerdictStore* store = nullptr;
    const TraceStore* kept = nullptr;
    GoldenStore* golden = nullptr;
    Workers* workers = nullptr;
    const ProfileRegistry* profiles = nullptr;
    const Access* access = nullptr;
  };
  struct Options {
    std::uint64_t step_bytes_max = UINT64_MAX;
    std::int64_t elements_max = INT64_MAX;
    absl::Duration audit_timeout = absl::InfiniteDuration();
    double work_per_second = std::numeric_limits<double>::infinity();  // As StepPipeline's,
    double work_limit = std::numeric_limits<double>::infinity();       // and this.
    std::string scratch;  // Directory for files that are being received; made anew.
  };

  ArchiveService(Parts parts, Options options);

  grpc::Status ExportTrace(grpc::ServerContext* context, const v1::ExportTraceRequest* request,
                           grpc::ServerWriter<v1::FileChunk>* writer) override;
  grpc::Status Replay(grpc::ServerContext* context, grpc::ServerReader<v1::ReplayRequest>* reader,
                      v1::Explanation* response) override;

  grpc::Status Reproduce(grpc::ServerContext* context,
                         grpc::ServerReaderWriter<v1::ReproducerChunk, v1::ReplayRequest>* stream) override;

  grpc::Status ListGolden(grpc::ServerContext* context, const v1::ListGoldenRequest* request,
                          v1::ListGoldenResponse* response) override;
  grpc::Status ExportGolden(grpc::ServerContext* context, const v1::GoldenName* request,
                            grpc::ServerWriter<v1::FileChunk>* writer) override;
  grpc::Status ImportGolden(grpc::ServerContext* context, grpc::ServerReader<v1::ImportGoldenRequest>* reader,
                            v1::GoldenSummary* response) override;
  grpc::Status RemoveGolden(grpc::ServerContext* context, const v1::GoldenName* request,
                            v1::GoldenSummary* response) override;

  // Calls that wait for a worker give up; new ones are refused. Call before Server::Shutdown.
  void drain();

 private:
  // What a client asks about: a verdict's trace, or that of a file.
  struct Sent {
    std::string id;
    std::string profile;
    std::unique_ptr<ScratchFile> file;
  };
  // A record that a call names or sends, and the profile that it asks for.
  struct Asked {
    TraceRecord record;
    const Profile* profile = nullptr;
  };
  absl::Status enter();
  void leave();
  // Counts the call, if it is known who makes it.
  grpc::Status in_turn(const absl::StatusOr<Caller>& caller, const std::function<absl::Status(const Caller&)>& call);
  absl::StatusOr<std::string> kept_path(const Caller& caller, const std::string& id) const;
  // Before a call has its turn: clients may send as slowly as they like without holding others up.
  absl::StatusOr<Sent> receive(grpc::ServerContext* context, const Caller& caller,
                               const std::function<bool(v1::ReplayRequest*)>& read);
  absl::StatusOr<Asked> read_asked(const Caller& caller, const Sent& sent) const;
  // NOT_FOUND: there is no such golden run that the caller may see.
  absl::StatusOr<std::string> golden_owner(const Caller& caller, const v1::GoldenName& name) const;
  // Runs `compute` on a worker, perhaps twice, and waits for it. The worker's name. It is given up at its deadline, and
  // when the caller leaves.
  absl::StatusOr<std::string> on_worker(const grpc::ServerContext& context, const Caller& caller,
                                        const TraceRecord& record, std::function<void()> compute);
  Verdict audit_again(const Asked& asked) const;

  const Parts parts_;
  const Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0;
  bool draining_ = false;
  Uploads uploads_{kUploadsMax, kUploadPause};
};

}  // namespace plumbline
