// What work on a device finds out in a few numbers, and the host asks for later: who asks waits for the device once,
// and has with that all that was on its way before. On the host it is known at once.
//
//   std::vector<Later<double>> norms;
//   for (const Array& x : arrays) norms.push_back(norm2(x));    // Puts work into the device's queue.
//   for (const Later<double>& norm : norms) sum += norm.get();  // Waits with the first of them.
//
// To be asked by one thread, before the device is given up.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "kernels/array.h"

namespace plumbline {

template <class T>
class Later {
 public:
  using Type = T;

  Later(T known) : known_(std::move(known)) {}
  explicit Later(std::function<T()> find) : found_(std::make_shared<Found>(Found{{}, std::move(find)})) {}

  bool known() const { return found_ == nullptr; }
  const T& get() const {
    if (known()) return *known_;
    if (!found_->value) found_->value = std::exchange(found_->find, nullptr)();
    return *found_->value;
  }
  operator const T&() const { return get(); }

  // f of it, as late.
  template <class F>
  auto then(F f) const {
    using Result = std::decay_t<decltype(f(std::declval<const T&>()))>;
    if (known()) return Later<Result>(f(*known_));
    return Later<Result>(std::function<Result()>([found = *this, f] { return f(found.get()); }));
  }

 private:
  struct Found {
    std::optional<T> value;
    std::function<T()> find;
  };
  std::optional<T> known_;
  std::shared_ptr<Found> found_;  // Of all copies.
};

// f of an array's few numbers, row-major, which may be written again at once.
template <class F>
auto later(const Array& numbers, F f) {
  using Result = std::decay_t<decltype(f(numbers.data()))>;
  if (!numbers.away()) return Later<Result>(f(numbers.data()));
  return Later<Result>(std::function<Result()>(
      [brought = numbers.device()->bring(numbers.device_read(), numbers.count()), f] { return f(brought.get()); }));
}

}  // namespace plumbline
