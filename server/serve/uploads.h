// Files that clients are sending: so many at one time, and each must go on. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/status/statusor.h"

namespace plumbline {

class Uploads {
 public:
  // Calls whose client sends nothing for `pause` are cancelled.
  Uploads(std::size_t most, std::chrono::steady_clock::duration pause);
  ~Uploads();

  // One file that is being received; at its end its place is free.
  class Upload {
   public:
    Upload(Uploads* uploads, grpc::ServerContext* context) : uploads_(uploads), context_(context) {}
    ~Upload() { uploads_->end(context_); }
    Upload(const Upload&) = delete;
    Upload& operator=(const Upload&) = delete;
    void progress() { uploads_->touch(context_); }

   private:
    Uploads* const uploads_;
    grpc::ServerContext* const context_;
  };
  // RESOURCE_EXHAUSTED: too many are. `context` must outlive the upload.
  absl::StatusOr<std::unique_ptr<Upload>> begin(grpc::ServerContext* context);

 private:
  using Clock = std::chrono::steady_clock;
  void touch(grpc::ServerContext* context);
  void end(grpc::ServerContext* context);
  void watch();

  const std::size_t most_;
  const Clock::duration pause_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<grpc::ServerContext*, Clock::time_point> heard_;  // When something came last.
  bool stop_ = false;
  std::thread watcher_;  // Last: it uses the others.
};

}  // namespace plumbline
