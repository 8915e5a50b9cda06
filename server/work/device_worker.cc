#include "server/work/device_worker.h"

#include <exception>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline {

using absl::StrCat;

absl::StatusOr<std::unique_ptr<DeviceWorker>> DeviceWorker::open(std::string name, Open open, const Limit& limit) {
  std::unique_ptr<DeviceWorker> worker(new DeviceWorker(std::move(name), std::move(open)));
  auto device = worker->open_();
  if (!device.ok()) return device.status();
  worker->device_ = *std::move(device);
  worker->product_ = worker->device_->name();
  const auto limit_bytes = limit(worker->device_->total_bytes());
  if (!limit_bytes.ok()) return limit_bytes.status();
  worker->limit_bytes_ = *limit_bytes;
  worker->pool_ = std::make_unique<DevicePool>(*worker->device_, worker->limit_bytes_);
  return worker;
}

absl::Status DeviceWorker::run(const std::function<void()>& work) {
  const std::int64_t refused = pool_->use().refused;
  std::exception_ptr thrown;
  std::optional<DeviceError> error;
  {
    const DeviceScope scope(*device_, *pool_);
    try {
      work();
    } catch (const DeviceFailure& failure) {
      error = DeviceError{failure.what(), false};
    } catch (...) {
      thrown = std::current_exception();
    }
  }
  try {
    device_->wait();
  } catch (const DeviceFailure& failure) {
    if (!error) error = DeviceError{failure.what(), false};
  }
  if (auto reported = device_->take_error()) error = std::move(reported);
  if (error) return restart(*error);
  failures_ = 0;
  // Whatever was made of the missing memory on the way.
  if (pool_->use().refused > refused) {
    return absl::ResourceExhaustedError(
        StrCat(name_, ": out of memory within the ", limit_bytes_, " bytes of --gpu-memory-limit"));
  }
  if (thrown) std::rethrow_exception(thrown);
  return absl::OkStatus();
}

absl::Status DeviceWorker::restart(const DeviceError& error) {
  std::string message = StrCat(name_, ": ", error.message);
  std::unique_ptr<Device> device;
  {
    const std::lock_guard lock(mutex_);
    // Arrays that somebody still holds would free into what is gone: rather leak than crash.
    if (pool_->use().lent > 0) {
      static_cast<void>(pool_.release());
      static_cast<void>(device_.release());
    }
    pool_.reset();
    device_.reset();
  }
  if (++failures_ >= kFailuresMax) {
    absl::StrAppend(&message, "; it has failed ", failures_, " times in a row and is given up");
    return absl::InternalError(message);
  }
  auto again = open_();
  if (!again.ok()) {
    absl::StrAppend(&message, "; it cannot be opened again: ", again.status().message());
    return absl::InternalError(message);
  }
  const std::lock_guard lock(mutex_);
  device_ = *std::move(again);
  pool_ = std::make_unique<DevicePool>(*device_, limit_bytes_);
  ++restarts_;
  return absl::InternalError(message);
}

bool DeviceWorker::lost() const {
  const std::lock_guard lock(mutex_);
  return device_ == nullptr;
}

std::int64_t DeviceWorker::restarts() const {
  const std::lock_guard lock(mutex_);
  return restarts_;
}

DevicePool::Use DeviceWorker::memory() const {
  const std::lock_guard lock(mutex_);
  return pool_ == nullptr ? DevicePool::Use{} : pool_->use();
}

}  // namespace plumbline
