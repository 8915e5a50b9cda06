#include "server/fault/fault.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <exception>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumbline {
namespace {

std::atomic<std::uint64_t> count = 0;

std::string what_was_thrown() {
  try {
    throw;
  } catch (const std::exception& failure) {
    return failure.what();
  } catch (...) {
    return "something that is no std::exception";
  }
}

// The id tells this process and this fault, since logs of several daemons may come together.
std::string fresh_id(std::uint64_t number) {
  static const std::uint32_t process = std::random_device()();
  return absl::StrFormat("%08x-%d", process, number);
}

}  // namespace

absl::Status caught(std::string_view where) noexcept {
  const std::uint64_t number = ++count;
  try {
    const std::string id = fresh_id(number);
    spdlog::error("fault {} in {}: {}", id, where, what_was_thrown());
    return absl::InternalError(absl::StrCat("the daemon failed here; its log has the reason under fault ", id));
  } catch (...) {  // No memory to say more.
    return {absl::StatusCode::kInternal, ""};
  }
}

std::uint64_t faults() noexcept { return count; }

}  // namespace plumbline
