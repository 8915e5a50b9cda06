// Bytes that all steps together may hold. Thread-safe.
//
// A step takes its memory before it allocates. When there is none it waits, unless everything that is taken belongs to
// steps that wait as well: then nobody would ever give any back, and the one that asks last is refused.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace plumbline {

class MemoryBudget {
 public:
  enum class Answer { kGranted, kWait, kDeadlock, kBeyondShare };

  // A part of the budget that some reservations have together, such as those of one project, or a part of another
  // share, such as a job's within its project's. Their budget's lock guards what is used.
  class Share {
   public:
    struct Of {
      std::string kind, name;  // "project", "llama".
      std::string quota = {};  // What its limit is called.
    };
    // `limit` is asked each time, with no lock held. What is taken of a share is taken of `within` too.
    Share(Of of, std::function<std::uint64_t()> limit, std::shared_ptr<Share> within = nullptr)
        : of_(std::move(of)), limit_(std::move(limit)), within_(std::move(within)) {}
    const Of& of() const { return of_; }
    std::uint64_t limit() const { return limit_(); }

   private:
    friend class MemoryBudget;
    const Of of_;
    const std::function<std::uint64_t()> limit_;
    const std::shared_ptr<Share> within_;
    std::uint64_t used_ = 0;
  };

  // What one step holds; gives it back when destroyed. Movable. Not thread-safe by itself.
  class Reservation {
   public:
    Reservation() = default;
    explicit Reservation(MemoryBudget* budget, std::shared_ptr<Share> share = nullptr)
        : budget_(budget), share_(std::move(share)) {}
    ~Reservation() { release(); }
    Reservation(Reservation&& other) noexcept;
    Reservation& operator=(Reservation&& other) noexcept;
    // Takes `bytes` more. kWait: ask again after a callback of when_released(). kBeyondShare: nothing was taken.
    Answer take(std::uint64_t bytes);
    // After kBeyondShare: the share that has no more, which lives as long as this reservation.
    const Share& beyond() const { return *beyond_; }
    // After kWait: calls back once, from whichever thread next gives memory back (at once if some came back since). The
    // callback must not block and must not call into the budget.
    void when_released(std::function<void()> callback);
    void release();
    // Gives a part of what it holds back: at most all of it.
    void give_back(std::uint64_t bytes);
    std::uint64_t bytes() const { return bytes_; }

   private:
    MemoryBudget* budget_ = nullptr;
    std::shared_ptr<Share> share_;  // Null: the budget's limit alone.
    const Share* beyond_ = nullptr;
    std::uint64_t bytes_ = 0;
    bool waiting_ = false;
    std::uint64_t releases_seen_ = 0;  // The budget's count of releases when take() last answered kWait.
  };

  explicit MemoryBudget(std::uint64_t limit_bytes) : limit_(limit_bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;

  std::uint64_t limit() const { return limit_; }
  std::uint64_t used() const;
  std::uint64_t used(const Share& share) const;  // A share of this budget.

 private:
  const std::uint64_t limit_;
  mutable std::mutex mutex_;
  std::uint64_t used_ = 0;
  std::uint64_t waiting_ = 0;  // Part of used_ that belongs to reservations which wait.
  std::uint64_t releases_ = 0;
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace plumbline
