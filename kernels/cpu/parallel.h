// All cores for loops and products, of threads that come first and of those that come after them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace plumbline::cpu {

// Processors that the calling thread may run on: the machine's, or those of them that it was given.
int processors();

// Number of threads that parallel_for and matmul may use in this process (default: its processors). Set once at
// start, before any other use. Threads that stand back are one fewer (but one), so that who wakes up finds a processor
// that none of them has.
void set_threads(int threads);
int threads();  // That of threads that stand back is no other, so that work is cut alike.

// From now on, for its whole life, the calling thread has its share of the machine in long slices, so that others'
// threads that wake up (a job's, a stream's) need not wait for the end of one.
void give_way();

// From now on, for its whole life, the system runs the calling thread after others of the machine (10 more of nice),
// and so those that help in its loops.
void stand_back();

// While it lives, the calling thread computes, one loop after the other. Where that leaves a processor to each, those
// that help it look longer for its next loop before they sleep.
class Computing {
 public:
  Computing();
  ~Computing();
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

 private:
  std::atomic<int>* const computing_;
};

// Elements of a loop below which a second thread does not pay.
inline constexpr std::int64_t kGrain = 1 << 13;

// Calls both, at once where the calling thread computes on the host and a processor is left for it, otherwise `first`
// before `second`, which may run on another thread within the caller's CancelScope. The loops of either are cut for the
// processors that the other leaves. Throws what `first` or, if that does not throw, `second` throws, when both are
// over; where `first` throws, `second` is given up (cancel.h) or not begun.
void both(const std::function<void()>& first, const std::function<void()>& second);

// Calls body(begin, end) on disjoint ranges that cover [0, n), in parallel when n is at least twice `grain`. Bodies
// must not throw. Nested calls run serially.
void parallel_for(std::int64_t n, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace plumbline::cpu
