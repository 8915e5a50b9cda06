#include "tests/unit/work/fake_device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

#include "kernels/operations.h"

namespace plumbline::test {

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(FakeBoard* board) : board_(board) {}

  std::string name() const override { return "Fake 9000"; }
  std::int64_t total_bytes() const override { return board_->total_; }
  void* allocate(std::size_t bytes) override {
    const std::lock_guard lock(board_->mutex_);
    const int number = ++board_->allocations_;
    if (number == board_->fail_at_) board_->error_ = DeviceError{board_->failure_, board_->lost_};
    const auto size = static_cast<std::int64_t>(bytes);
    if (board_->refuse_from_ > 0 && number >= board_->refuse_from_) return nullptr;
    if (size > board_->total_ - board_->allocated_) return nullptr;
    void* const memory = std::aligned_alloc(256, bytes);
    if (memory == nullptr) return nullptr;
    board_->blocks_[memory] = size;
    board_->allocated_ += size;
    board_->most_ = std::max(board_->most_, board_->allocated_);
    return memory;
  }
  void free(void* memory, std::size_t bytes) noexcept override {
    const std::lock_guard lock(board_->mutex_);
    const auto found = board_->blocks_.find(memory);
    if (found == board_->blocks_.end() || found->second != static_cast<std::int64_t>(bytes)) std::abort();
    board_->blocks_.erase(found);
    board_->allocated_ -= static_cast<std::int64_t>(bytes);
    std::free(memory);
  }
  std::optional<DeviceError> take_error() override {
    const std::lock_guard lock(board_->mutex_);
    if (board_->lost_) return DeviceError{"the device is lost", true};
    return std::exchange(board_->error_, std::nullopt);
  }
  const Operations& operations() const override { return host_operations(); }

 protected:
  void synchronise() override {
    idle();
    const std::lock_guard lock(board_->mutex_);
    if (board_->error_ || board_->lost_) throw DeviceFailure("the work did not run");
  }

 private:
  FakeBoard* const board_;
};

FakeBoard::~FakeBoard() { EXPECT_TRUE(blocks_.empty()) << blocks_.size() << " blocks were never freed"; }

void FakeBoard::refuse_allocation(int number) {
  const std::lock_guard lock(mutex_);
  refuse_from_ = allocations_ + number;
}

void FakeBoard::fail_at_allocation(int number, const std::string& what) {
  const std::lock_guard lock(mutex_);
  fail_at_ = allocations_ + number;
  failure_ = what;
}

void FakeBoard::fail(const std::string& what) {
  const std::lock_guard lock(mutex_);
  error_ = DeviceError{what, false};
}

void FakeBoard::lose() {
  const std::lock_guard lock(mutex_);
  lost_ = true;
}

void FakeBoard::mend() {
  const std::lock_guard lock(mutex_);
  refuse_from_ = fail_at_ = 0;
  error_.reset();
}

void FakeBoard::run(absl::Duration kernel) {
  if (current_device() != nullptr) current_device()->launched();
  const std::lock_guard lock(mutex_);
  now_ += kernel;
}

absl::Time FakeBoard::now() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

std::int64_t FakeBoard::allocated() const {
  const std::lock_guard lock(mutex_);
  return allocated_;
}

std::int64_t FakeBoard::most() const {
  const std::lock_guard lock(mutex_);
  return most_;
}

int FakeBoard::opened() const {
  const std::lock_guard lock(mutex_);
  return opened_;
}

absl::StatusOr<std::unique_ptr<Device>> FakeBoard::open() {
  const std::lock_guard lock(mutex_);
  if (lost_) return absl::NotFoundError("expected a device, found none");
  ++opened_;
  error_.reset();  // A new context knows nothing of the old one's errors.
  return std::make_unique<FakeDevice>(this);
}

std::unique_ptr<DeviceWorker> FakeBoard::worker(const std::string& name, std::int64_t limit_bytes) {
  auto worker = DeviceWorker::open(
      name, [this] { return open(); },
      [limit_bytes](std::int64_t) -> absl::StatusOr<std::int64_t> { return limit_bytes; });
  EXPECT_TRUE(worker.ok()) << worker.status();
  return *std::move(worker);
}

}  // namespace plumbline::test
