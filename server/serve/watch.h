// One WatchVerdicts call. It pulls: a commit only wakes it, and it reads on from the last sequences it has
// (fleet_feed.h), a page at a time, when the page before is written. So there is no gap and no duplicate between past
// and new verdicts, and a watcher that reads slowly costs one page of memory however far it lags.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "plumbline/v1/query.grpc.pb.h"
#include "server/store/fleet_feed.h"
#include "server/work/serial_executor.h"

namespace plumbline {

class Watch final : public grpc::ServerWriteReactor<v1::Verdict>, public std::enable_shared_from_this<Watch> {
 public:
  using Seen = std::function<absl::StatusOr<Visibility>()>;  // What may be seen now.

  // `done` runs once, when gRPC has let go of the call. The caller keeps the watch alive until then.
  Watch(FleetFeed feed, SerialExecutor* disk, grpc::CallbackServerContext* context,
        const v1::WatchVerdictsRequest& request, Seen seen, std::function<void()> done);

  void start();                          // Once. Headers go out when everything from then on will be seen.
  void end(const grpc::Status& status);  // From any thread; after the message being written, if there is one.
  void cancel();                         // From any thread: ends it though the client does not read.

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void begin();  // begin() and fetch() run on the disk's thread.
  void fetch();

  // With mutex_ held:
  void want();  // There may be something to fetch.
  void write_next();
  void finish(const grpc::Status& status);

  FleetFeed feed_;  // Used on the disk's thread, but for subscriptions.
  SerialExecutor* const disk_;
  grpc::CallbackServerContext* const context_;
  const v1::WatchVerdictsRequest request_;
  const Seen seen_;
  const std::function<void()> done_;

  std::mutex mutex_;
  std::optional<std::pair<std::uint64_t, std::uint64_t>> subscription_;
  std::deque<v1::Verdict> page_;
  v1::Verdict written_;  // gRPC reads it until OnWriteDone.
  grpc::Status status_;  // Once finished.
  bool is_writing_ = false;
  bool is_fetching_ = true;  // begin() counts.
  bool is_stale_ = false;    // A commit came since the last fetch began.
  bool is_finished_ = false;
  bool is_done_ = false;
};

}  // namespace plumbline
