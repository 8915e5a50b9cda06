#include "server/serve/query_pool.h"

#include <sys/resource.h>

#include <utility>

namespace plumbline {
namespace {

constexpr int kNice = 10;

}  // namespace

QueryPool::QueryPool(int threads, std::size_t waiting_max) : waiting_max_(waiting_max) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { loop(); });
}

QueryPool::~QueryPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool QueryPool::post(std::function<void()> query) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= waiting_max_) return false;
    waiting_.push_back(std::move(query));
  }
  wake_.notify_one();
  return true;
}

void QueryPool::loop() {
  setpriority(PRIO_PROCESS, 0, kNice);  // On Linux: of the calling thread alone.
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    auto query = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    query();
    query = nullptr;
    lock.lock();
  }
}

}  // namespace plumbline
