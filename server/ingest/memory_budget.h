// Bytes that all steps together may hold. Thread-safe.
//
// A step takes its memory before it allocates. When there is none it waits, unless everything that is taken belongs to
// steps that wait as well: then nobody would ever give any back, and the one that asks last is refused.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace plumbline {

class MemoryBudget {
 public:
  enum class Answer { kGranted, kWait, kDeadlock };

  // What one step holds; gives it back when destroyed. Movable. Not thread-safe by itself.
  class Reservation {
   public:
    Reservation() = default;
    explicit Reservation(MemoryBudget* budget) : budget_(budget) {}
    ~Reservation() { release(); }
    Reservation(Reservation&& other) noexcept;
    Reservation& operator=(Reservation&& other) noexcept;
    // Takes `bytes` more. kWait: ask again after a callback of when_released().
    Answer take(std::uint64_t bytes);
    // After kWait: calls back once, from whichever thread next gives memory back (at once if some came back since). The
    // callback must not block and must not call into the budget.
    void when_released(std::function<void()> callback);
    void release();
    std::uint64_t bytes() const { return bytes_; }

   private:
    MemoryBudget* budget_ = nullptr;
    std::uint64_t bytes_ = 0;
    bool waiting_ = false;
    std::uint64_t releases_seen_ = 0;  // The budget's count of releases when take() last answered kWait.
  };

  explicit MemoryBudget(std::uint64_t limit_bytes) : limit_(limit_bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;

  std::uint64_t limit() const { return limit_; }
  std::uint64_t used() const;

 private:
  const std::uint64_t limit_;
  mutable std::mutex mutex_;
  std::uint64_t used_ = 0;
  std::uint64_t waiting_ = 0;  // Part of used_ that belongs to reservations which wait.
  std::uint64_t releases_ = 0;
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace plumbline
