// Threads for operators' queries, apart from all that streams wait for, and behind it where processors are short.
// Thread-safe. The destructor runs what is queued, then joins.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace plumbline {

class QueryPool {
 public:
  QueryPool(int threads, std::size_t waiting_max);
  ~QueryPool();
  QueryPool(const QueryPool&) = delete;

  // False: too many wait already, and `query` will not run. It must not throw.
  bool post(std::function<void()> query);

 private:
  void loop();

  const std::size_t waiting_max_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> waiting_;
  bool stop_ = false;
  std::vector<std::thread> threads_;  // Last: they use the others.
};

}  // namespace plumbline
