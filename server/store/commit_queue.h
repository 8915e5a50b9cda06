// The one thread that writes: takes changes from a queue and commits them in groups, so that a sync to disk is paid
// once a group.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "server/store/sql.h"

namespace plumbline {

class CommitQueue {
 public:
  // Runs on the writer thread within the group's transaction. A status that is not OK takes back what this change did,
  // and is the answer; otherwise `answer` is, once the group is committed.
  using Change = std::function<absl::Status(absl::Status* answer)>;
  using Done = std::function<void(const absl::Status&)>;

  // Both run on the writer thread: `committed` after each commit, before the callbacks of its changes; `trouble` with a
  // line for the log when commits begin to fail, once a minute while they do, and when they succeed again. So does
  // `lost`: why nothing may be committed any more (OK: it may), asked within each group's transaction.
  // `timed`, after each group, gets how long it took, how many records it has, and whether they are stored.
  CommitQueue(SqlConnection* connection, std::size_t pending_max, std::function<absl::Status()> lost,
              std::function<void()> committed, std::function<void(const std::string&)> trouble,
              std::function<void(double seconds, std::size_t records, bool stored)> timed);
  ~CommitQueue();  // Commits what is queued first.

  // Thread-safe. Calls `done` exactly once: on the writer thread, or here with RESOURCE_EXHAUSTED when the queue is
  // full.
  void push(Change change, Done done);

  // Whether the last group could not be committed. Thread-safe.
  bool failing() const { return refused_ > 0; }

 private:
  struct Item {
    Change change;
    Done done;
    absl::Status answer;
  };

  void run();
  absl::Status commit(std::deque<Item>& group);  // Commits the group as a whole.
  void report(const absl::Status& status, std::size_t records);

  SqlConnection* const connection_;
  const std::size_t pending_max_;
  const std::function<absl::Status()> lost_;
  const std::function<void()> committed_;
  const std::function<void(const std::string&)> trouble_;
  const std::function<void(double, std::size_t, bool)> timed_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Item> pending_;
  bool stopping_ = false;
  // The writer thread sets these: since when commits fail, and how many records they did not take.
  std::atomic<std::size_t> refused_ = 0;
  std::chrono::steady_clock::time_point reported_;
  std::thread writer_;  // Last: it uses all of the above.
};

}  // namespace plumbline
