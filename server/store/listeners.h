// Who is told of commits to a history, by whatever process. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace plumbline {

class Listeners {
 public:
  // Begins to watch for other processes' commits, until what it returns goes. May be empty.
  using Watch = std::function<std::shared_ptr<void>(std::function<void()> notify)>;
  explicit Listeners(Watch watch) : watch_(std::move(watch)) {}

  // The first one begins the watch. Listeners are called one at a time, on any thread.
  std::uint64_t add(std::function<void()> listener) {
    std::uint64_t handle = 0;
    {
      const std::lock_guard lock(mutex_);
      handle = ++last_handle_;
      listeners_.emplace(handle, std::move(listener));
    }
    const std::lock_guard lock(watch_mutex_);
    if (watch_ && !watching_) watching_ = watch_([this] { notify(); });
    return handle;
  }

  // Waits for a call that runs.
  void remove(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    listeners_.erase(handle);
  }

  void notify() {
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, listener] : listeners_) listener();
  }

 private:
  std::mutex mutex_;  // Held while listeners run.
  std::map<std::uint64_t, std::function<void()>> listeners_;
  std::uint64_t last_handle_ = 0;
  std::mutex watch_mutex_;
  const Watch watch_;
  std::shared_ptr<void> watching_;  // Last: it calls notify().
};

}  // namespace plumbline
