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

char* allocate_small(std::size_t bytes) { return static_cast<char*>(::operator new(bytes, kAlignment)); }

char* map(std::size_t bytes) {
  void* const buffer = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffer == MAP_FAILED) throw std::bad_alloc();
  return static_cast<char*>(buffer);
}

char* next_huge_page(char* place) {
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(place) % kHugePage;
  return beyond == 0 ? place : place + (kHugePage - beyond);
}

// Whole huge pages of new memory. Newer kernels put them where huge pages begin.
char* map_huge_pages(std::size_t bytes) {
  char* buffer = map(bytes);
  if (next_huge_page(buffer) != buffer) {
    munmap(buffer, bytes);
    char* const wider = map(bytes + kHugePage);
    buffer = next_huge_page(wider);
    const auto before = static_cast<std::size_t>(buffer - wider);
    if (before > 0) munmap(wider, before);
    if (before < kHugePage) munmap(buffer + bytes, kHugePage - before);
  }
  madvise(buffer, bytes, MADV_HUGEPAGE);  // Whether they can be had is the system's business.
  return buffer;
}

void release(char* buffer, std::size_t bytes) {
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
    if (*bytes < kSmallest) return allocate_small(*bytes);
    const std::lock_guard lock(mutex_);
    void* buffer = take_kept(bytes);
    if (buffer == nullptr) {
      buffer = make(bytes);
    }
    used_ += *bytes;
    needed_ = std::max(needed_, used_);
    return buffer;
  }

  void give(char* buffer, std::size_t bytes) {
    if (bytes < kSmallest) return release(buffer, bytes);
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
    keep(buffer, bytes);
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
    if (*bytes < kMapped) {
      exchange(*bytes, *bytes);
      return allocate_small(*bytes);
    }
    const std::size_t whole = (*bytes + kHugePage - 1) / kHugePage * kHugePage;
    char* const buffer = map_huge_pages(whole);  // Without memory, until it is written to.
    exchange(whole, whole - gather(buffer, whole));
    if (whole - *bytes >= kMapped)
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

  // Moves huge pages of kept buffers, of which none is large enough, to the beginning of a new mapping, largest buffers
  // first: to clear a new page takes ten times as long, and where a virtual machine has to ask for it a hundred times.
  // Returns how many bytes of the mapping have memory now.
  std::size_t gather(char* place, std::size_t bytes) {
    std::size_t moved = 0;
    for (auto at = kept_.end(); moved < bytes && at != kept_.begin() && std::prev(at)->first >= kHugePage;) {
      --at;
      const auto [size, buffer] = *at;
      const auto [from, to] = movable(buffer, size, bytes - moved);
      if (from == to) continue;
      remove(at);
      char* next = from;
      // Page by page: what lies side by side may be several mappings. Where the process may have no more of them, the
      // kernel says so before it touches either place.
      while (next != to &&
             mremap(next, kHugePage, kHugePage, MREMAP_MAYMOVE | MREMAP_FIXED, place + moved) != MAP_FAILED) {
        next += kHugePage;
        moved += kHugePage;
      }
      if (from != buffer) keep(buffer, static_cast<std::size_t>(from - buffer));
      if (next != buffer + size) keep(next, static_cast<std::size_t>(buffer + size - next));
      if (next != to) break;
      at = kept_.lower_bound({size, buffer});
    }
    return moved;
  }

  // Huge pages of a kept buffer, at most so many bytes, that leave nothing on either side or what can be a buffer.
  static std::pair<char*, char*> movable(char* buffer, std::size_t size, std::size_t bytes_max) {
    char* const end = buffer + size;
    char* from = next_huge_page(buffer);
    if (from != buffer && from - buffer < static_cast<std::ptrdiff_t>(kMapped)) from += kHugePage;
    if (from >= end) return {buffer, buffer};
    const std::size_t pages = std::min(static_cast<std::size_t>(end - from), bytes_max) / kHugePage;
    char* to = from + pages * kHugePage;
    if (to != end && to != from && end - to < static_cast<std::ptrdiff_t>(kMapped)) to -= kHugePage;
    return {from, to};
  }

  // New memory takes the place of kept buffers where all together would exceed the most that was ever used: what one
  // pass leaves behind does not add to what the next one needs. A sixty-fourth more is allowed, so that small changes
  // of demand free nothing. `fresh`: what of the new buffer's bytes is new memory.
  void exchange(std::size_t bytes, std::size_t fresh) {
    most_used_ = std::max(most_used_, used_ + bytes);
    const std::size_t most = most_used_ + most_used_ / 64;
    while (exchanged_ < fresh && !kept_.empty() && used_ + bytes + reserved_ > most)
      exchanged_ += drop(std::min(fresh - exchanged_, used_ + bytes + reserved_ - most));
    exchanged_ -= std::min(exchanged_, fresh);
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
    Pool::instance().give(reinterpret_cast<char*>(buffer), bytes);
}

Buffer allocate_buffer(std::int64_t count, MemoryResource* memory) {
  if (count < 0 || count > std::int64_t{1} << 58) throw std::bad_alloc();
  std::size_t bytes = size_class(std::max<std::size_t>(1, static_cast<std::size_t>(count)) * sizeof(double));
  void* const buffer = memory != nullptr ? memory->allocate(bytes) : Pool::instance().take(&bytes);
  if (buffer == nullptr) throw std::bad_alloc();
  return {static_cast<double*>(buffer), BufferReturn{memory, bytes}};
}

void release_unneeded_buffers() { Pool::instance().release_unneeded(); }

bool buffers_are_pages() { return kMapped != SIZE_MAX; }

std::int64_t buffer_reserve_bytes() { return static_cast<std::int64_t>(Pool::instance().reserved()); }

}  // namespace plumbline
