// One thread that runs what it is given, in order: disk and database work that must not block a stream's callbacks.
// Thread-safe. The destructor runs what is queued, then joins. What a task throws ends that task alone (fault.h).
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/status/status.h"

namespace plumbline {

class SerialExecutor {
 public:
  SerialExecutor();
  ~SerialExecutor();
  SerialExecutor(const SerialExecutor&) = delete;

  using Failed = std::function<void(const absl::Status&)>;

  // `failed`, if any, is told if `work` throws, in its place.
  void post(std::function<void()> work, Failed failed = nullptr);
  // Returns when everything posted before this call has run. Not from within the thread itself.
  void flush();

 private:
  struct Task {
    std::function<void()> work;
    Failed failed;
  };
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> queue_;
  bool stop_ = false;
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace plumbline
