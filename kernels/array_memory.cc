#include "kernels/array_memory.h"

namespace plumbline {

// What is too large for the host to work on has its memory of the device at once: who asks for too much is told here.
ArrayMemory::ArrayMemory(std::int64_t count) : count_(count), device_(current_device()), memory_(current_memory()) {
  if (device_ == nullptr)
    host_ = allocate_buffer(count, nullptr);
  else if (count > device_->host_work())
    of_device_ = allocate_buffer(count, memory_);
}

double* ArrayMemory::on_host(bool write) {
  const std::lock_guard lock(mutex_);
  if (!host_) host_ = allocate_buffer(count_, nullptr);
  if (away()) {
    device_->fetch(of_device_.get(), bytes(), host_.get());
    state_.store(kBoth, std::memory_order_release);
  }
  if (write) state_.store(kHost, std::memory_order_release);
  return host_.get();
}

double* ArrayMemory::on_device(bool write) {
  const std::lock_guard lock(mutex_);
  // The scope's memory, if it is the device's: that of its beginning may be gone, where the device was opened again.
  if (!of_device_) of_device_ = allocate_buffer(count_, current_device() == device_ ? current_memory() : memory_);
  if (state() == kHost) {
    device_->send(host_.get(), bytes(), of_device_.get());
    state_.store(kBoth, std::memory_order_release);
  }
  if (write) state_.store(kDevice, std::memory_order_release);
  return of_device_.get();
}

double ArrayMemory::element(std::int64_t place) {
  if (device_ == nullptr || !away() || keeps_copy()) return read()[place];
  return device_->read(of_device_.get() + place);
}

}  // namespace plumbline
