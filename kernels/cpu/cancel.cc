#include "kernels/cpu/cancel.h"

#include <chrono>
#include <utility>

namespace plumbline {
namespace {

constexpr long long kAskedEveryNs = 5'000'000;

thread_local CancelScope* innermost = nullptr;

long long now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

CancelScope::CancelScope(std::function<bool()> wanted) : wanted_(std::move(wanted)), outer_(innermost) {
  innermost = this;
}

CancelScope::~CancelScope() { innermost = outer_; }

std::function<bool()> wanted_here() {
  if (innermost == nullptr) return {};
  return [scope = innermost] { return scope->wanted_(); };
}

void cancel_point() {
  CancelScope* const scope = innermost;
  if (scope == nullptr) return;
  const long long now = now_ns();
  if (now - scope->asked_ns_ < kAskedEveryNs) return;
  if (!scope->wanted_()) throw GivenUp{};
  scope->asked_ns_ = now;
}

}  // namespace plumbline
