// One thread that runs what it is given, in order: disk and database work that must not block a stream's callbacks.
// Thread-safe. The destructor runs what is queued, then joins.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace plumbline {

class SerialExecutor {
 public:
  SerialExecutor();
  ~SerialExecutor();
  SerialExecutor(const SerialExecutor&) = delete;

  void post(std::function<void()> work);
  // Returns when everything posted before this call has run. Not from within the thread itself.
  void flush();

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool stop_ = false;
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace plumbline
