// A thread that takes what a daemon's own history has somewhere else, again and again: at once when there is something,
// after a while that grows where that failed, and now and then all the same, to see whether the other side is there.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/store/ship_trouble.h"

namespace plumbline {

// Thread-safe.
class Courier {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    std::string name;  // For the log, where an exception ends an attempt.
    absl::Duration retry_min, retry_max;
    absl::Duration idle_max;  // Without news: how often it is tried.
    // When the other side is lost (and why), and when it is back (or there at first). May be empty.
    std::function<void(ShipTrouble, const std::string& why)> lost;
    std::function<void()> back;
  };

  // Begins. All run on the courier's thread: `deliver` takes everything there is; CANCELLED where the end came first.
  // They must be able to run until the destructor returns.
  Courier(Options options, std::function<absl::Status()> deliver);
  ~Courier();  // Ends at once, but waits for `deliver`.
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  void wake();                             // There may be something.
  void end_by(Clock::time_point end);      // One more attempt, and then none; the earliest end holds.
  void wait();                             // Until `deliver` was called for the last time and has returned,
  bool wait_until(Clock::time_point end);  // or until then: false.
  bool is_over() const;                    // The end has come: `deliver` is to give up.
  Delivery delivery() const;

 private:
  void run();
  void note(const absl::Status& status);

  const Options options_;
  const std::function<absl::Status()> deliver_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, done_;
  bool due_ = true, is_done_ = false;
  std::optional<Clock::time_point> end_;  // Once it is known.
  Delivery delivery_;
  bool lost_ = false;   // The last attempt failed.
  std::thread thread_;  // Last: it uses all of the above.
};

}  // namespace plumbline
