// Giving up a computation from outside: what computes asks between nodes, and between loops, whether it is still
// wanted.
#pragma once

#include <functional>

namespace plumbline {

// Thrown where a computation is given up. No std::exception: what a trace holds was not at fault, and code that answers
// for such faults must not catch it.
struct GivenUp {};

// While it lives, what this thread computes is wanted only as long as `wanted` says so. Scopes nest: the inner one
// decides. `wanted` is asked a few hundred times a second at most by each thread that computes for this one (both,
// parallel.h), and must not throw.
class CancelScope {
 public:
  explicit CancelScope(std::function<bool()> wanted);
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;

 private:
  friend void cancel_point();
  friend std::function<bool()> wanted_here();
  const std::function<bool()> wanted_;
  CancelScope* const outer_;
  long long asked_ns_ = 0;
};

// What the calling thread's innermost scope asks, for as long as that lives; empty where there is none.
std::function<bool()> wanted_here();

// Throws GivenUp in a computation that is not wanted any more. Cheap.
void cancel_point();

}  // namespace plumbline
