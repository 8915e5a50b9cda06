#include "server/work/serial_executor.h"

#include <future>
#include <utility>

#include "server/fault/fault.h"

namespace plumbline {

SerialExecutor::SerialExecutor() : thread_([this] { loop(); }) {}

SerialExecutor::~SerialExecutor() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void SerialExecutor::post(std::function<void()> work, Failed failed) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(work), std::move(failed)});
  }
  wake_.notify_one();
}

void SerialExecutor::flush() {
  std::promise<void> done;
  post([&done] { done.set_value(); });
  done.get_future().wait();
}

void SerialExecutor::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Task task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    const absl::Status fault = contained("the disk's thread", task.work);
    if (!fault.ok() && task.failed) contained("the disk's thread", [&] { task.failed(fault); }).IgnoreError();
    task = {};
    lock.lock();
  }
}

}  // namespace plumbline
