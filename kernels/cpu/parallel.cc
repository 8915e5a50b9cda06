#include "kernels/cpu/parallel.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/cancel.h"
#include "kernels/device.h"

namespace plumbline::cpu {
namespace {

using Body = std::function<void(std::int64_t, std::int64_t)>;

constexpr int kBack = 10;  // This much nice leaves a tenth of the time where there is too little for all.
// How long a thread that computes runs at a time. Since Linux 6.12 a thread that wakes up and asks for less (3 ms
// unless it says otherwise) does not wait for the end of it. Nice alone makes it wait, at every wake-up.
constexpr std::uint64_t kSliceNs = 100'000'000;

// It is that of sched_setattr(2), whose header <linux/sched/types.h> cannot be included beside <sched.h>.
struct Attributes {
  std::uint32_t size, policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime_ns, deadline_ns, period_ns;
};

// An older kernel takes the nice alone.
void run_in_long_slices(int nice) {
  const Attributes attributes{sizeof(Attributes), SCHED_OTHER, 0, nice, 0, kSliceNs, 0, 0};
  if (syscall(SYS_sched_setattr, 0, &attributes, 0) != 0) setpriority(PRIO_PROCESS, 0, nice);
}

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// A loop of an audit follows the one before within microseconds, and to wake up a thread takes as long: a few threads
// look for the next one for a while before they sleep, and so does who waits for them. For long where no audit wants
// the processor that they take, not at all where one does. What else wants it, as a training beside, need not wait for
// them (give_way).
constexpr int kLookingMax = 3;
constexpr std::chrono::microseconds kLook{20}, kLookAlone{200};

template <class Found>
void look_for(const Found& found, std::chrono::microseconds most) {
  const auto end = std::chrono::steady_clock::now() + most;
  do {
    for (int i = 0; i < 32; ++i) {
      if (found()) return;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
}

thread_local bool inside_parallel_region = false;
thread_local bool stands_back = false;
thread_local bool counted = false;   // Among the pool's active ones, whatever it does.
thread_local bool computes = false;  // Computing lives.

// One parallel_for: chunks are handed out by a counter, so a thread that comes late takes what is left.
struct Task {
  const Body* body;
  std::int64_t n;
  std::int64_t chunk;
  std::int64_t chunks;
  bool has_loops = false;  // Of its own, which are cut too: one of `both`.
  std::atomic<std::int64_t> next{0};
  std::atomic<int> helpers{0};  // Pool threads inside this task.

  void work() {
    const bool before = std::exchange(inside_parallel_region, !has_loops);
    for (;;) {
      const std::int64_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= chunks) break;
      (*body)(i * chunk, std::min(n, (i + 1) * chunk));
    }
    inside_parallel_region = before;
  }
  bool exhausted() const { return next.load(std::memory_order_relaxed) >= chunks; }
};

// Persistent threads, one fewer than the limit: the caller of parallel_for works too. When several audits call at
// once, callers count against the limit, so that no more than `threads()` run (unless there are more callers).
class Pool {
 public:
  // That of the calling thread's kind. Never destroyed: its threads outlive static destructors.
  static Pool& instance() { return stands_back ? behind() : ahead(); }
  static Pool& ahead() {
    static Pool* const pool = new Pool(false);
    return *pool;
  }
  static Pool& behind() {
    static Pool* const pool = new Pool(true);
    return *pool;
  }

  std::atomic<int>& computing() { return computing_; }

  void set_limit(int limit) {
    const std::lock_guard lock(mutex_);
    limit_ = std::max(1, limit);
  }
  int limit() {
    const std::lock_guard lock(mutex_);
    return limit_;
  }

  void run(Task& task) {
    const int caller = counted ? 0 : 1;
    post(task, caller, task.chunks - 1);
    task.work();
    std::unique_lock lock(mutex_);
    std::erase(queue_, &task);
    active_ -= caller;
    if (looking_ == 0 && available(true) != nullptr) wake_.notify_one();  // Now there is a processor for another's.
    const auto left = [&] { return task.helpers.load(std::memory_order_acquire) == 0; };
    if (!left()) {
      const std::chrono::microseconds most = look(active_ + 1);
      lock.unlock();
      look_for(left, most);
      lock.lock();
    }
    done_.wait(lock, left);
  }

  // `second` is of one chunk, and has loops. The calling thread does it too where no other has begun to when `first` is
  // over; otherwise it helps in its loops.
  void run_both(const std::function<void()>& first, Task& second) {
    post(second, 0, 1);
    first();
    second.work();
    std::unique_lock lock(mutex_);
    std::erase(queue_, &second);
    const auto over = [&] { return second.helpers.load(std::memory_order_acquire) == 0; };
    const int caller = computes ? 1 : 0;  // It does not compute while it waits, and helps.
    computing_.fetch_sub(caller);
    serve(lock, over, false);
    computing_.fetch_add(caller);
  }

 private:
  explicit Pool(bool behind) : behind_(behind), limit_(processors()) {}

  // With the lock held. `busy`: threads that are at work in loops, and who asks if it waits for those.
  std::chrono::microseconds look(int busy) const {
    const int computing = computing_.load(std::memory_order_relaxed);
    if (computing == 0) return kLook;
    return std::max(computing, busy) + looking_ <= limit_ ? kLookAlone : std::chrono::microseconds(0);
  }

  // Wakes up threads for so many chunks of it at most. `callers`: one, unless it counts already.
  void post(Task& task, int callers, std::int64_t wanted) {
    std::int64_t asleep = 0;
    {
      const std::lock_guard lock(mutex_);
      active_ += callers;
      queue_.push_back(&task);
      while (static_cast<int>(workers_.size()) < limit_ - 1) {
        workers_.emplace_back([this] { serve(); });
        workers_.back().detach();
      }
      // No more than there is work for and processors are left, nor those that look for it.
      asleep = std::min<std::int64_t>(wanted, limit_ - in_use()) - looking_;
      posted_.fetch_add(1, std::memory_order_relaxed);
    }
    for (; asleep > 0; --asleep) wake_.notify_one();
  }

  // Processors. An audit has one whatever it does, and so has who helps it.
  int in_use() const { return std::max(active_, computing_.load(std::memory_order_relaxed) + helping_); }

  Task* available(bool with_loops) {
    if (in_use() >= limit_) return nullptr;
    for (Task* task : queue_) {
      if (!task->exhausted() && (with_loops || !task->has_loops)) return task;
    }
    return nullptr;
  }

  void serve() {
    if (behind_)
      stand_back();
    else
      give_way();
    std::unique_lock lock(mutex_);
    serve(
        lock, [] { return false; }, true);
  }

  // Works until `over`, with the lock held on entry and return; what has loops may take long.
  template <class Over>
  void serve(std::unique_lock<std::mutex>& lock, const Over& over, bool with_loops) {
    const bool before = std::exchange(counted, true);
    while (!over()) {
      Task* task = available(with_loops);
      if (task == nullptr && looking_ < kLookingMax) {
        ++looking_;
        const std::int64_t seen = posted_.load(std::memory_order_relaxed);
        const std::chrono::microseconds most = look(active_);
        lock.unlock();
        look_for([&] { return posted_.load(std::memory_order_relaxed) != seen || over(); }, most);
        lock.lock();
        --looking_;
        task = available(with_loops);
      }
      if (task == nullptr) wake_.wait(lock, [&] { return over() || (task = available(with_loops)) != nullptr; });
      if (task == nullptr) continue;
      const bool branch = task->has_loops;  // The task is gone once its last helper has left.
      task->helpers.fetch_add(1, std::memory_order_relaxed);
      ++active_;
      if (!branch) ++helping_;
      lock.unlock();
      task->work();
      lock.lock();
      --active_;
      if (!branch) --helping_;
      task->helpers.fetch_sub(1, std::memory_order_release);
      done_.notify_all();
      if (branch) wake_.notify_all();  // Who waits for it serves.
    }
    counted = before;
  }

  const bool behind_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::deque<Task*> queue_;
  std::vector<std::thread> workers_;
  int limit_;
  int active_ = 0;                       // Callers and pool threads at work,
  int helping_ = 0;                      // and of these, those in loops of others.
  int looking_ = 0;                      // Threads that look for work before they sleep.
  std::atomic<std::int64_t> posted_{0};  // Tasks so far.
  std::atomic<int> computing_{0};        // Threads that are (Computing).
};

}  // namespace

int processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));  // There are more than the set can tell.
}

void set_threads(int threads) {
  Pool::ahead().set_limit(threads);
  Pool::behind().set_limit(threads - 1);
}

void give_way() { run_in_long_slices(getpriority(PRIO_PROCESS, 0)); }

void stand_back() {
  stands_back = true;
  // The process's first thread is asked, since a thread begins with the priority of what made it and in Linux each has
  // its own.
  run_in_long_slices(std::min(19, getpriority(PRIO_PROCESS, static_cast<id_t>(getpid())) + kBack));
}

int threads() { return Pool::ahead().limit(); }

Computing::Computing() : computing_(&Pool::instance().computing()) {
  computing_->fetch_add(1);
  computes = true;
}
Computing::~Computing() {
  computes = false;
  computing_->fetch_sub(1);
}

void both(const std::function<void()>& first, const std::function<void()>& second) {
  Pool& pool = Pool::instance();
  const int limit = pool.limit();
  if (inside_parallel_region || current_device() != nullptr || limit < 2 || pool.computing() >= limit) {
    first();
    second();
    return;
  }
  std::exception_ptr thrown, thrown_by_second;
  std::atomic<bool> in_vain = false;  // `first` has thrown.
  const auto catching = [](const std::function<void()>& body, std::exception_ptr* thrown) {
    try {
      body();
    } catch (...) {
      *thrown = std::current_exception();
    }
  };
  const Body body = [&, wanted = wanted_here(), caller = std::this_thread::get_id()](std::int64_t, std::int64_t) {
    if (in_vain) return;
    std::optional<Computing> apart;
    if (std::this_thread::get_id() != caller) apart.emplace();
    const auto within_scope = [&] {
      const CancelScope scope([&] { return !in_vain && (!wanted || wanted()); });
      second();
    };
    catching(within_scope, &thrown_by_second);
  };
  const auto lead = [&] {
    catching(first, &thrown);
    in_vain = thrown != nullptr;
  };
  Task task{&body, 1, 1, 1, true};
  pool.run_both(lead, task);
  for (const std::exception_ptr& one : {thrown, thrown_by_second})
    if (one) std::rethrow_exception(one);
}

void parallel_for(std::int64_t n, std::int64_t grain, const Body& body) {
  if (n <= 0) return;
  if (!inside_parallel_region) cancel_point();
  if (n < 2 * grain || n < 2 || inside_parallel_region) {
    body(0, n);
    return;
  }
  Pool& pool = Pool::instance();
  const int limit = pool.limit();
  // Where every processor has an audit of its own, a short loop is not worth cutting.
  constexpr std::int64_t kShort = 16;
  if (limit < 2 || (n < kShort * grain && pool.computing() >= limit)) {
    body(0, n);
    return;
  }
  // Four chunks a thread even out cores that are not equally free.
  const std::int64_t chunks = std::min<std::int64_t>(4L * limit, n / std::max<std::int64_t>(1, grain));
  Task task{&body, n, (n + chunks - 1) / chunks, 0};
  task.chunks = (n + task.chunk - 1) / task.chunk;
  pool.run(task);
}

}  // namespace plumbline::cpu
