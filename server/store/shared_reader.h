// The shared history as one that answers: connections that read, on which nothing but queries waits, and whether to
// ask it at all. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/store/listeners.h"
#include "server/store/queries.h"
#include "server/store/visibility.h"

namespace plumbline {

class SharedReader {
 public:
  struct Parts {
    std::vector<std::unique_ptr<SqlConnection>> readers;  // VerdictStore::kReaders of them.
    Listeners::Watch watch;
    std::string node, host;  // Of this daemon.
    // Whether an owner's name ("uid:1000", "token:ci") is the same person's on every node.
    bool same_users = false;
  };
  explicit SharedReader(Parts parts);

  const Queries& queries() const { return queries_; }
  const std::string& node() const { return node_; }
  const std::string& name() const { return name_; }  // As v1::Verdict::node.
  Visibility seen(Visibility here) const;            // Of who sees that much of the daemon's own history.

  // OK: ask it. UNAVAILABLE, with the reason: it was away when it was last tried.
  absl::Status state() const;
  // A query failed. It is not asked again until it has taken a shipment or a sign of life, so that no two queries wait
  // for a server that is frozen.
  void failed(const absl::Status& why);
  void answers();  // What is shipped arrives (again).

  // As VerdictStore's, of commits by whatever daemon, and also called when the history is back.
  std::uint64_t subscribe(std::function<void()> listener);
  void unsubscribe(std::uint64_t handle);

 private:
  const std::string node_, name_;
  const bool same_users_;
  const Queries queries_;
  mutable std::mutex mutex_;
  absl::Status state_ = absl::UnavailableError("it was not reached yet");
  Listeners listeners_;
};

}  // namespace plumbline
