#include "kernels/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "kernels/device.h"

namespace plumbline {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr std::size_t kSmallest = 4096;  // Bytes; smaller buffers are left to the allocator.

// Large buffers come from the system and go back to it at once: an allocator would keep what they leave, in pieces that
// fit no other size. (The address sanitizer watches its own alone.)
#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kMapped = SIZE_MAX;
#else
constexpr std::size_t kMapped = std::size_t{1} << 18;
#endif
constexpr std::size_t kHugeFrom = std::size_t{1} << 22;

void* allocate(std::size_t bytes) {
  if (bytes < kMapped) return ::operator new(bytes, kAlignment);
  void* const buffer = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffer == MAP_FAILED) throw std::bad_alloc();
  // A fault for each small page takes as long as filling it. (Whether huge ones can be had is the system's business.)
  if (bytes >= kHugeFrom) madvise(buffer, bytes, MADV_HUGEPAGE);
  return buffer;
}

void release(void* buffer, std::size_t bytes) {
  if (bytes < kMapped)
    ::operator delete(buffer, kAlignment);
  else
    munmap(buffer, bytes);
}

// Sizes are rounded up to eight steps a power of two, so that similar ones are exchanged.
std::size_t size_class(std::size_t bytes) {
  const std::size_t step = std::max<std::size_t>(64, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

class Pool {
 public:
  static Pool& instance() {
    static Pool* const pool = new Pool;  // Outlives every array.
    return *pool;
  }

  // The buffer holds at least `*bytes`, which is set to what it really holds.
  void* take(std::size_t* bytes) {
    if (*bytes >= kSmallest) {
      const std::lock_guard lock(mutex_);
      const auto found = free_.lower_bound(*bytes);
      if (found != free_.end() && found->first <= *bytes + *bytes / 2) {
        *bytes = found->first;
        use(*bytes);
        return take_from(found);
      }
      if (void* const piece = split(*bytes)) {
        use(*bytes);
        return piece;
      }
      exchange(*bytes);
      void* const buffer = allocate(*bytes);
      use(*bytes);
      return buffer;
    }
    return allocate(*bytes);
  }

  void give(void* buffer, std::size_t bytes) {
    if (bytes >= kSmallest) {
      const std::lock_guard lock(mutex_);
      used_ -= bytes;
      free_[bytes].push_back(buffer);
      reserved_ += bytes;
      return;
    }
    release(buffer, bytes);
  }

  void release_unneeded() {
    const std::lock_guard lock(mutex_);
    while (!free_.empty() && used_ + reserved_ > needed_) drop_largest();
    most_used_ = needed_;
    needed_ = used_;
  }

  std::size_t reserved() {
    const std::lock_guard lock(mutex_);
    return reserved_;
  }

 private:
  // The key is the buffers' size. A list that became empty is removed.
  using Free = std::map<std::size_t, std::vector<void*>>;

  void use(std::size_t bytes) {
    used_ += bytes;
    needed_ = std::max(needed_, used_);
  }

  void* take_from(Free::iterator size) {
    void* const buffer = size->second.back();
    size->second.pop_back();
    reserved_ -= size->first;
    if (size->second.empty()) free_.erase(size);
    return buffer;
  }

  // The front of a larger buffer, whose rest stays, where a new one would add to the most that was ever used. Null: not
  // so, or there is none.
  void* split(std::size_t bytes) {
    if (bytes < kMapped || !exceeds_most_used(bytes)) return nullptr;
    const auto from = free_.lower_bound(bytes + kMapped);
    if (from == free_.end()) return nullptr;
    const std::size_t whole = from->first;
    char* const buffer = static_cast<char*>(take_from(from));
    free_[whole - bytes].push_back(buffer + bytes);
    reserved_ += whole - bytes;
    return buffer;
  }

  // Returns its bytes.
  std::size_t drop_largest() {
    const auto largest = std::prev(free_.end());
    const std::size_t bytes = largest->first;
    release(take_from(largest), bytes);
    return bytes;
  }

  // A sixteenth more is allowed, so that small changes of demand free nothing.
  bool exceeds_most_used(std::size_t bytes) const { return used_ + bytes + reserved_ > most_used_ + most_used_ / 16; }

  // A buffer of a size that is not there takes the place of others where all together would exceed the most that was
  // ever used: what one pass leaves behind does not add to what the next one needs.
  void exchange(std::size_t bytes) {
    most_used_ = std::max(most_used_, used_ + bytes);
    while (exchanged_ < bytes && !free_.empty() && exceeds_most_used(bytes)) exchanged_ += drop_largest();
    exchanged_ -= std::min(exchanged_, bytes);
  }

  std::mutex mutex_;
  Free free_;
  std::size_t used_ = 0, most_used_ = 0, reserved_ = 0;
  std::size_t needed_ = 0;     // The most that was used since the last release.
  std::size_t exchanged_ = 0;  // Bytes given up that no new buffer has taken the place of.
};

}  // namespace

std::shared_ptr<double[]> allocate_buffer(std::int64_t count) {
  if (count < 0 || count > std::int64_t{1} << 58) throw std::bad_alloc();
  std::size_t bytes = size_class(std::max<std::size_t>(1, static_cast<std::size_t>(count)) * sizeof(double));
  if (MemoryResource* const memory = current_memory()) {
    auto* const buffer = static_cast<double*>(memory->allocate(bytes));
    if (buffer == nullptr) throw std::bad_alloc();
    return {buffer, [memory, bytes](double* freed) { memory->free(freed, bytes); }};
  }
  auto* const buffer = static_cast<double*>(Pool::instance().take(&bytes));
  return {buffer, [bytes](double* freed) { Pool::instance().give(freed, bytes); }};
}

void release_unneeded_buffers() { Pool::instance().release_unneeded(); }

std::int64_t buffer_reserve_bytes() { return static_cast<std::int64_t>(Pool::instance().reserved()); }

}  // namespace plumbline
