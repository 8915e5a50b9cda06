// The one thread that writes: takes changes from a queue and commits them in groups, so that a sync to disk is paid
// once a group.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "server/store/sqlite.h"

namespace plumbline {

class CommitQueue {
 public:
  // Runs on the writer thread within the group's transaction. A status that is not OK takes back what this change did,
  // and is the answer; otherwise `answer` is, once the group is committed.
  using Change = std::function<absl::Status(absl::Status* answer)>;
  using Done = std::function<void(const absl::Status&)>;

  // `committed` runs on the writer thread after each commit, before the callbacks of its changes.
  CommitQueue(SqliteConnection* connection, std::size_t pending_max, std::function<void()> committed);
  ~CommitQueue();  // Commits what is queued first.

  // Thread-safe. Calls `done` exactly once: on the writer thread, or here with RESOURCE_EXHAUSTED when the queue is
  // full.
  void push(Change change, Done done);

 private:
  struct Item {
    Change change;
    Done done;
    absl::Status answer;
  };

  void run();
  void commit(std::deque<Item>& group);

  SqliteConnection* const connection_;
  const std::size_t pending_max_;
  const std::function<void()> committed_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Item> pending_;
  bool stopping_ = false;
  std::thread writer_;  // Last: it uses all of the above.
};

}  // namespace plumbline
