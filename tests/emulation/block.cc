#include "tests/emulation/block.h"

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

// What a kernel finds under the name of its dynamic shared memory (kernels/cuda/chain.cuh). Its initialiser is called:
// whoever knows it by an `extern` alone calls the function that does so, which is made only where it is needed.
namespace plumbline::cuda::internal {
unsigned long long nothing() { return 0; }
thread_local unsigned long long shared[emulation::kSharedBytes / sizeof(unsigned long long)] = {nothing()};
}  // namespace plumbline::cuda::internal

namespace emulation {
namespace {

namespace context = boost::context;

constexpr unsigned kWarp = 32, kThreadsMax = 1024;
constexpr std::size_t kStackBytes = 128 << 10;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "emulated kernel: %s; block (%u, %u), thread (%u, %u)\n", what, blockIdx.x, blockIdx.y,
               threadIdx.x, threadIdx.y);
  std::abort();
}

enum class State { kRuns, kAtWarp, kAtBlock, kEnded };

// A fiber that serves one thread after the other.
struct Thread {
  context::fiber fiber;
  State state = State::kEnded;
  uint3 index{};
  Word word{};
};

class Block {
 public:
  Block() {
    for (unsigned i = 0; i < kThreadsMax; ++i) {
      threads_.emplace_back().fiber = context::fiber(std::allocator_arg, context::fixedsize_stack(kStackBytes),
                                                     [this, i](context::fiber&& scheduler) {
                                                       for (scheduler_ = std::move(scheduler);;) {
                                                         (*kernel_)();
                                                         threads_[i].state = State::kEnded;
                                                         leave();
                                                       }
                                                       return std::move(scheduler_);
                                                     });
    }
  }

  void run(const dim3& size, const std::function<void()>& kernel) {
    kernel_ = &kernel;
    count_ = size.x * size.y * size.z;
    for (unsigned i = 0; i < count_; ++i) {
      threads_[i].state = State::kRuns;
      threads_[i].index = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
    }
    while (turn()) {
      for (Thread& thread : threads_)
        if (thread.state == State::kAtBlock) thread.state = State::kRuns;
    }
  }

  Thread& mine() { return threads_[current_]; }
  Thread& of_warp(int lane) { return threads_[current_ / kWarp * kWarp + static_cast<unsigned>(lane)]; }
  int lane() const { return static_cast<int>(current_ % kWarp); }

  // Other threads go on until this one may.
  void wait(State where) {
    mine().state = where;
    leave();
  }

 private:
  void leave() { scheduler_ = std::move(scheduler_).resume(); }

  // Each warp as far as it gets, first to last or last to first in turns: what one does without waiting for the others
  // is done before they come. Whether a thread is left, at the barrier then.
  bool turn() {
    bool left = false;
    const unsigned warps = (count_ + kWarp - 1) / kWarp;
    for (unsigned w = 0; w < warps; ++w) {
      const unsigned begin = (backwards_ ? warps - 1 - w : w) * kWarp, end = std::min(begin + kWarp, count_);
      while (run_warp(begin, end))
        for (unsigned i = begin; i < end; ++i) threads_[i].state = State::kRuns;
      for (unsigned i = begin; i < end; ++i) left = left || threads_[i].state != State::kEnded;
    }
    backwards_ = !backwards_;
    return left;
  }

  // Whether all of its threads wait for each other then.
  bool run_warp(unsigned begin, unsigned end) {
    unsigned at_warp = 0;
    for (current_ = begin; current_ < end; ++current_) {
      Thread& thread = threads_[current_];
      if (thread.state == State::kRuns) {
        threadIdx = thread.index;
        thread.fiber = std::move(thread.fiber).resume();
      }
      at_warp += thread.state == State::kAtWarp ? 1 : 0;
    }
    if (at_warp != 0 && at_warp != kWarp) fail("threads of a warp wait for others that have ended, or wait elsewhere");
    return at_warp != 0;
  }

  std::deque<Thread> threads_;
  context::fiber scheduler_;
  const std::function<void()>* kernel_ = nullptr;
  unsigned count_ = 0, current_ = 0;
  bool backwards_ = false;
};

Block& block() {
  static thread_local const std::unique_ptr<Block> mine = std::make_unique<Block>();
  return *mine;
}

}  // namespace

bool legal(const Launch& launch) {
  const auto product = [](const dim3& of) { return std::uint64_t{of.x} * of.y * of.z; };
  return product(launch.blocks) > 0 && product(launch.threads) > 0 && product(launch.threads) <= kThreadsMax &&
         launch.shared <= kSharedBytes;
}

void run(const Launch& launch, const std::function<void()>& kernel) {
  blockDim = launch.threads;
  gridDim = launch.blocks;
  for (unsigned z = 0; z < launch.blocks.z; ++z)
    for (unsigned y = 0; y < launch.blocks.y; ++y)
      for (unsigned x = 0; x < launch.blocks.x; ++x) {
        blockIdx = {x, y, z};
        std::memset(plumbline::cuda::internal::shared, 0xff, launch.shared);  // Not initialised: NaN.
        block().run(launch.threads, kernel);
      }
}

int lane() { return block().lane(); }
void wait_for_warp() { block().wait(State::kAtWarp); }
void wait_for_block() { block().wait(State::kAtBlock); }

Word exchange(unsigned mask, const Word& value, int lane) {
  if (mask != 0xffffffffU) fail("a shuffle without all threads of the warp");
  block().mine().word = value;
  wait_for_warp();
  const Word found = block().of_warp(lane).word;
  wait_for_warp();  // Nobody brings the next word before all have read this one.
  return found;
}

}  // namespace emulation
