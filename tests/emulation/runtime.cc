// Memory and streams (cuda_runtime.h).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <vector>

#include "sanitizer/asan_interface.h"
#include "tests/emulation/counts.h"
#include "tests/emulation/cuda_runtime.h"
#include "tests/emulation/memory.h"

namespace emulation {

struct Stream {
  std::deque<std::function<void()>> waiting;
  std::uint64_t put = 0, done = 0;
};

// The place in a stream that was reached when it was recorded.
struct Event {
  Stream* stream = nullptr;
  std::uint64_t place = 0;
};

namespace {

constexpr int kDevices = 2, kVersion = 13000;
constexpr std::size_t kTotalBytes = std::size_t{8} << 30;  // Each device has so much.
constexpr std::size_t kGuardBytes = 4096;
constexpr unsigned char kGuard = 0xa5, kFresh = 0xff;

struct Allocation {
  std::size_t bytes;
  int device;  // -1: pinned memory of the host.
};

// One for all devices: their work runs one after the other.
std::recursive_mutex mutex;
std::set<Stream*> streams;
std::map<const void*, Allocation> allocations;  // The key is the address that was handed out.
thread_local int device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t failed(cudaError_t error) { return last_error = error; }

void run_until(Stream& stream, std::uint64_t place) {
  const std::lock_guard lock(mutex);
  while (stream.done < place) {
    const std::function<void()> work = std::move(stream.waiting.front());
    stream.waiting.pop_front();
    ++stream.done;
    touch(work);
  }
}

// By the host, which is told where there is something to wait for.
void wait_for(Stream& stream, std::uint64_t place) {
  const std::lock_guard lock(mutex);
  if (stream.done < place) count(Kind::kWait);
  run_until(stream, place);
}

cudaError_t allocate(void** memory, std::size_t bytes, int where) {
  const std::lock_guard lock(mutex);
  std::size_t left = 0, total = 0;
  cudaMemGetInfo(&left, &total);
  if (where >= 0 && bytes > left) return failed(cudaErrorMemoryAllocation);
  count(Kind::kAllocation);
  const std::size_t all = bytes + 2 * kGuardBytes;
  auto* const raw = static_cast<unsigned char*>(where >= 0 ? take_pages(all) : ::operator new(all));
  if (raw == nullptr) return failed(cudaErrorMemoryAllocation);
  touch([=] {
    std::memset(raw, kGuard, kGuardBytes);
    std::memset(raw + kGuardBytes, kFresh, bytes);
    std::memset(raw + kGuardBytes + bytes, kGuard, kGuardBytes);
  });
  ASAN_POISON_MEMORY_REGION(raw, kGuardBytes);  // What is read there is told, too, by those builds.
  ASAN_POISON_MEMORY_REGION(raw + kGuardBytes + bytes, kGuardBytes);
  *memory = raw + kGuardBytes;
  allocations[*memory] = {bytes, where};
  return cudaSuccess;
}

bool intact(const unsigned char* guard) {
  ASAN_UNPOISON_MEMORY_REGION(guard, kGuardBytes);
  for (std::size_t i = 0; i < kGuardBytes; ++i)
    if (guard[i] != kGuard) return false;
  return true;
}

// Whether memory is a device's or pinned, so that a copy may run after its call returned.
bool known(const void* memory) {
  const std::lock_guard lock(mutex);
  const auto after = allocations.upper_bound(memory);
  if (after == allocations.begin()) return false;
  const auto& [begin, allocation] = *std::prev(after);
  return static_cast<const char*>(memory) < static_cast<const char*>(begin) + allocation.bytes;
}

}  // namespace

void put(Stream* stream, std::function<void()> work) {
  const std::lock_guard lock(mutex);
  stream->waiting.push_back(std::move(work));
  ++stream->put;
}

}  // namespace emulation

using namespace emulation;

cudaError_t cudaRuntimeGetVersion(int* version) { return *version = kVersion, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = kVersion, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { return *count = kDevices, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) {
  if (ordinal < 0 || ordinal >= kDevices) return failed(cudaErrorInvalidDevice);
  *properties = {"emulated device", {{static_cast<char>(ordinal)}}, kTotalBytes, 9, 0};
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int ordinal) {
  if (ordinal < 0 || ordinal >= kDevices) return failed(cudaErrorInvalidDevice);
  device = ordinal;
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNotSupported:
      return "operation not supported";
    default:
      return "invalid argument";
  }
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaMalloc(void** memory, std::size_t bytes) { return allocate(memory, bytes, device); }
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) { return allocate(memory, bytes, -1); }
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  const std::lock_guard lock(mutex);
  for (Stream* const stream : streams) run_until(*stream, stream->put);  // Which a device waits for, too.
  const auto found = allocations.find(memory);
  if (found == allocations.end()) return failed(cudaErrorInvalidValue);
  auto* const begin = static_cast<unsigned char*>(memory);
  const auto [bytes, where] = found->second;
  touch([begin, bytes = bytes] {
    if (intact(begin - kGuardBytes) && intact(begin + bytes)) return;
    std::fprintf(stderr, "emulated device: something was written beside memory of %zu bytes\n", bytes);
    std::abort();
  });
  allocations.erase(found);
  if (where >= 0)
    give_pages(begin - kGuardBytes, bytes + 2 * kGuardBytes);
  else
    ::operator delete(begin - kGuardBytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
cudaError_t cudaMemGetInfo(std::size_t* left, std::size_t* total) {
  const std::lock_guard lock(mutex);
  *left = *total = kTotalBytes;
  for (const auto& [memory, allocation] : allocations)
    if (allocation.device == device) *left -= allocation.bytes;
  return cudaSuccess;
}

// Memory that the driver does not know is read before the call returns, and written only when all that comes before
// has run ("API synchronization behavior").
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind == cudaMemcpyHostToDevice) count(Kind::kSend);
  if (kind == cudaMemcpyDeviceToHost) count(Kind::kFetch);
  if (!known(from)) {
    const std::shared_ptr<char[]> staged(new char[bytes]);
    std::memcpy(staged.get(), from, bytes);
    put(stream, [=] { std::memcpy(to, staged.get(), bytes); });
  } else {
    put(stream, [=] { std::memcpy(to, from, bytes); });
  }
  return known(to) ? cudaSuccess : cudaStreamSynchronize(stream);
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  put(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard lock(mutex);
  streams.insert(*stream = new Stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  cudaStreamSynchronize(stream);
  streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  wait_for(*stream, stream->put);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(mutex);
  if (event->stream != nullptr) put(stream, [of = event->stream, place = event->place] { run_until(*of, place); });
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = new Event, cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  *event = {stream, stream->put};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->stream != nullptr) wait_for(*event->stream, event->place);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t) { return failed(cudaErrorNotSupported); }

cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) { return failed(cudaErrorNotSupported); }
cudaError_t cudaIpcCloseMemHandle(void*) { return failed(cudaErrorNotSupported); }
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void**, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *found = cudaDriverEntryPointSymbolNotFound;
  return failed(cudaErrorNotSupported);
}
