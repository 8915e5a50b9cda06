#include "kernels/device.h"

#include <utility>

namespace plumbline {
namespace {

thread_local Device* device = nullptr;
thread_local MemoryResource* memory = nullptr;

}  // namespace

DeviceScope::DeviceScope(Device* of, MemoryResource* in)
    : device_(std::exchange(device, of)), memory_(std::exchange(memory, in)) {}

DeviceScope::~DeviceScope() {
  device = device_;
  memory = memory_;
}

Device* current_device() { return device; }
MemoryResource* current_memory() { return memory; }

}  // namespace plumbline
