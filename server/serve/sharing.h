// Where a daemon's verdicts go besides its own history: to the one that daemons share (--store), and to a stream
// (--publish). Thread-safe.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/metrics/metrics.h"
#include "server/serve/daemon.h"
#include "server/store/publication.h"
#include "server/store/shared_history.h"

namespace plumbline {

class Sharing {
 public:
  // What the daemon records for others: golden runs, and steps of its reference runs.
  struct Recorded {
    GoldenStore* golden = nullptr;
    GoldenStore* pairs = nullptr;
  };
  // Begins both, as far as the options say, or notes in the history that it is not so. Errors name the flag. `store`,
  // what is recorded and `metrics` outlive the object.
  static absl::StatusOr<std::unique_ptr<Sharing>> begin(const DaemonOptions& options, SqlStore* store,
                                                        Recorded recorded, Metrics* metrics);

  // Takes what other daemons are told of steps whose ranks stream to several; empty: no history is shared.
  std::function<void(NodePartRow)> tell_nodes() const;
  SharedReader* reader() const { return history_ == nullptr ? nullptr : history_->reader(); }  // Null: none is shared.
  SharedGolden* golden() const { return history_ == nullptr ? nullptr : history_->golden(); }  // The same.
  SharedGolden* pairs() const { return history_ == nullptr ? nullptr : history_->pairs(); }
  void show(Metrics* metrics) const;
  // Takes there what there is for at most `limit` each, and then nothing more.
  void finish(absl::Duration limit);

 private:
  Sharing() = default;
  absl::Status share(const DaemonOptions& options, SqlStore* store, Recorded recorded, Metrics* metrics);
  absl::Status publish(const DaemonOptions& options, SqlStore* store);
  void show_history(Metrics* metrics) const;
  void show_publication(Metrics* metrics) const;

  // What ships comes after what it ships from.
  std::unique_ptr<Outbox> outbox_;
  std::unique_ptr<GoldenOutbox> golden_outbox_, pairs_outbox_;
  std::unique_ptr<PublishCursor> cursor_;
  std::unique_ptr<SharedHistory> history_;
  std::unique_ptr<Publication> publication_;
};

}  // namespace plumbline
