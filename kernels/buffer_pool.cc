#include "kernels/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <utility>

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
// A fault for each small page takes as long as filling it: smaller buffers are cut from a mapping that has huge ones.
constexpr std::size_t kHugePage = std::size_t{1} << 21;

void* allocate(std::size_t bytes) {
  if (bytes < kMapped) return ::operator new(bytes, kAlignment);
  void* const buffer = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffer == MAP_FAILED) throw std::bad_alloc();
  madvise(buffer, bytes, MADV_HUGEPAGE);  // Whether they can be had is the system's business.
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
    if (*bytes < kSmallest) return allocate(*bytes);
    const std::lock_guard lock(mutex_);
    void* buffer = take_kept(bytes);
    if (buffer == nullptr) {
      buffer = make(bytes);
    }
    used_ += *bytes;
    needed_ = std::max(needed_, used_);
    return buffer;
  }

  void give(void* buffer, std::size_t bytes) {
    if (bytes < kSmallest) return release(buffer, bytes);
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
    keep(static_cast<char*>(buffer), bytes);
  }

  void release_unneeded() {
    const std::lock_guard lock(mutex_);
    while (!kept_.empty() && used_ + reserved_ > needed_) drop(used_ + reserved_ - needed_);
    most_used_ = needed_;
    needed_ = used_;
  }

  std::size_t reserved() {
    const std::lock_guard lock(mutex_);
    return reserved_;
  }

 private:
  using Kept = std::set<std::pair<std::size_t, char*>>;  // Smallest first.

  // Mapped buffers that lie side by side become one: the pieces that several sizes were cut from serve a large one
  // again, where mapping it anew would cost a page fault for each page.
  void keep(char* buffer, std::size_t bytes) {
    reserved_ += bytes;
    if (bytes >= kMapped) {
      auto next = mapped_.lower_bound(buffer);
      if (next != mapped_.end() && buffer + bytes == next->first) {
        bytes += next->second;
        kept_.erase({next->second, next->first});
        next = mapped_.erase(next);
      }
      if (next != mapped_.begin()) {
        const auto [before, size] = *std::prev(next);
        if (before + size == buffer) {
          buffer = before;
          bytes += size;
          kept_.erase({size, before});
          mapped_.erase(std::prev(next));
        }
      }
      mapped_.emplace(buffer, bytes);
    }
    kept_.emplace(bytes, buffer);
  }

  char* remove(Kept::iterator at) {
    const auto [bytes, buffer] = *at;
    reserved_ -= bytes;
    if (bytes >= kMapped) mapped_.erase(buffer);
    kept_.erase(at);
    return buffer;
  }

  // A new one; the rest of a mapping stays where it can be one itself.
  char* make(std::size_t* bytes) {
    const bool mapped = *bytes >= kMapped;
    const std::size_t whole = mapped ? (*bytes + kHugePage - 1) / kHugePage * kHugePage : *bytes;
    exchange(whole);
    char* const buffer = static_cast<char*>(allocate(whole));
    if (mapped && whole - *bytes >= kMapped)
      keep(buffer + *bytes, whole - *bytes);
    else
      *bytes = whole;
    return buffer;
  }

  // The smallest that is large enough; the rest of a mapped one stays where it can be one itself. A small one that is
  // half as large again is left to others. Null: there is none.
  char* take_kept(std::size_t* bytes) {
    const auto found = kept_.lower_bound({*bytes, nullptr});
    if (found == kept_.end()) return nullptr;
    const std::size_t whole = found->first;
    if (*bytes < kMapped && whole > *bytes + *bytes / 2) return nullptr;
    char* const buffer = remove(found);
    if (*bytes >= kMapped && whole - *bytes >= kMapped)
      keep(buffer + *bytes, whole - *bytes);
    else
      *bytes = whole;
    return buffer;
  }

  // Gives one back, or of a mapped one about as much as is asked. Returns its bytes. The smallest that is worth the
  // system's trouble, so that the large ones stay whole, which serve any size; where there is none the largest.
  std::size_t drop(std::size_t asked) {
    auto given = kept_.lower_bound({std::min(asked, 2 * kMapped), nullptr});
    if (given == kept_.end()) given = std::prev(given);
    std::size_t bytes = given->first;
    char* const buffer = remove(given);
    if (bytes >= kMapped) {
      const std::size_t part = (asked + kMapped - 1) / kMapped * kMapped;
      if (part + kMapped <= bytes) {
        keep(buffer + part, bytes - part);
        bytes = part;
      }
    }
    release(buffer, bytes);
    return bytes;
  }

  // A buffer of a size that is not there takes the place of others where all together would exceed the most that was
  // ever used: what one pass leaves behind does not add to what the next one needs. A sixty-fourth more is allowed, so
  // that small changes of demand free nothing.
  void exchange(std::size_t bytes) {
    most_used_ = std::max(most_used_, used_ + bytes);
    const std::size_t most = most_used_ + most_used_ / 64;
    while (exchanged_ < bytes && !kept_.empty() && used_ + bytes + reserved_ > most)
      exchanged_ += drop(std::min(bytes - exchanged_, used_ + bytes + reserved_ - most));
    exchanged_ -= std::min(exchanged_, bytes);
  }

  std::mutex mutex_;
  Kept kept_;
  std::map<char*, std::size_t> mapped_;  // Those of `kept_` that the system gave, by their place.
  std::size_t used_ = 0, most_used_ = 0, reserved_ = 0;
  std::size_t needed_ = 0;     // The most that was used since the last release.
  std::size_t exchanged_ = 0;  // Bytes given up that no new buffer has taken the place of.
};

}  // namespace

void BufferReturn::operator()(double* buffer) const noexcept {
  if (memory != nullptr)
    memory->free(buffer, bytes);
  else
    Pool::instance().give(buffer, bytes);
}

Buffer allocate_buffer(std::int64_t count, MemoryResource* memory) {
  if (count < 0 || count > std::int64_t{1} << 58) throw std::bad_alloc();
  std::size_t bytes = size_class(std::max<std::size_t>(1, static_cast<std::size_t>(count)) * sizeof(double));
  void* const buffer = memory != nullptr ? memory->allocate(bytes) : Pool::instance().take(&bytes);
  if (buffer == nullptr) throw std::bad_alloc();
  return {static_cast<double*>(buffer), BufferReturn{memory, bytes}};
}

void release_unneeded_buffers() { Pool::instance().release_unneeded(); }

std::int64_t buffer_reserve_bytes() { return static_cast<std::int64_t>(Pool::instance().reserved()); }

}  // namespace plumbline
