#include "server/ingest/shared_regions.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "kernels/cpu/parallel.h"
#include "server/ingest/limits.h"

namespace plumbline {

using absl::StrCat;

namespace {

constexpr std::size_t kUuidBytes = 16;
constexpr std::size_t kHandleBytes = 64;

class Memfd final : public Region {
 public:
  Memfd(int descriptor, std::uint64_t size) : Region(size), descriptor_(descriptor) {}
  ~Memfd() override { close(descriptor_); }

  std::size_t piece_bytes() const override { return 1u << 20; }  // Stays in the cache.
  // A large piece in parallel, as looking up pages takes longer than their bytes do.
  std::size_t read(std::uint64_t offset, std::size_t bytes, void* to, const std::function<void()>& meanwhile,
                   std::string* failure) override {
    std::mutex mutex;
    const auto whole = static_cast<std::int64_t>(bytes);
    std::int64_t until = whole;  // Everything before it was read.
    const std::int64_t parts = whole < 2 * kPart ? 1 : whole / kPart;
    const auto read_part = [&](std::int64_t part) {
      std::int64_t begin = whole / parts * part;
      const std::int64_t end = part + 1 == parts ? whole : whole / parts * (part + 1);
      while (begin < end) {
        const ssize_t got = pread(descriptor_, static_cast<char*>(to) + begin, static_cast<std::size_t>(end - begin),
                                  static_cast<off_t>(offset) + begin);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
          const std::lock_guard lock(mutex);
          until = std::min(until, begin);
          return;
        }
        begin += got;
      }
    };
    const auto run = [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t task = first; task < last; ++task) task == 0 ? meanwhile() : read_part(task - 1);
    };
    if (parts == 1)
      run(0, 2);
    else
      cpu::parallel_for(1 + parts, 1, run);
    if (until > 0) return static_cast<std::size_t>(until);
    *failure = "the region has shrunk";
    return 0;
  }

 private:
  static constexpr std::int64_t kPart = 128 << 10;
  const int descriptor_;
};

class DeviceRegion final : public Region {
 public:
  DeviceRegion(std::unique_ptr<SharedDeviceMemory> memory, std::uint64_t size, std::shared_ptr<void> claim)
      : Region(size), claim_(std::move(claim)), memory_(std::move(memory)) {}

  std::size_t piece_bytes() const override { return 4u << 20; }  // Each copy waits for the device.
  std::size_t read(std::uint64_t offset, std::size_t bytes, void* to, const std::function<void()>& meanwhile,
                   std::string* failure) override {
    meanwhile();
    const absl::Status copied = memory_->copy(offset, bytes, to);
    if (copied.ok()) return bytes;
    *failure = StrCat("the device's memory cannot be read: ", copied.message());
    return 0;
  }

 private:
  const std::shared_ptr<void> claim_;
  const std::unique_ptr<SharedDeviceMemory> memory_;
};

}  // namespace

bool DeviceHandles::claim(const std::string& handle, pid_t process) {
  const std::lock_guard lock(mutex_);
  Claim& claim = claims_[handle];
  if (claim.times > 0 && claim.process != process) return false;
  claim.process = process;
  ++claim.times;
  return true;
}

void DeviceHandles::release(const std::string& handle) {
  const std::lock_guard lock(mutex_);
  const auto found = claims_.find(handle);
  if (found != claims_.end() && --found->second.times == 0) claims_.erase(found);
}

std::size_t RegionReader::read(std::size_t bytes_max, std::uint8_t* to, const std::function<void()>& meanwhile) {
  const std::size_t got = region_->read(at_, std::min(bytes_max, region_->piece_bytes()), to, meanwhile, failure_);
  at_ += got;
  region_->bytes_read += got;
  return got;
}

Violation SharedRegions::add(const v1::Region& wire) {
  if (wire.region() == 0) return invalid("region.region", "an id above 0", 0);
  if (regions_.count(wire.region()) > 0) {
    return invalid("region.region", "a fresh id", StrCat("region ", wire.region(), ", which is registered already"));
  }
  if (regions_.size() >= limits::kRegionsMax) {
    return exhausted("region", StrCat("a stream may have at most ", limits::kRegionsMax, " regions"));
  }
  if (wire.process() <= 0) return invalid("region.process", "a process id above 0", wire.process());
  std::unique_ptr<Region> opened;
  Violation wrong = wire.has_cuda() ? open_device(wire, &opened) : open_memfd(wire, &opened);
  if (!wrong) regions_.emplace(wire.region(), Opened{std::move(opened), wire.has_cuda()});
  return wrong;
}

Violation SharedRegions::open_device(const v1::Region& wire, std::unique_ptr<Region>* opened) const {
  const auto precondition = [](Violation wrong) {
    wrong.code = absl::StatusCode::kFailedPrecondition;
    return wrong;
  };
  if (open_device_memory_ == nullptr) {
    return precondition(invalid("region.cuda", "a memfd: this daemon has no CUDA device", "memory of a CUDA device"));
  }
  if (wire.cuda().device().size() != kUuidBytes) {
    return invalid("region.cuda.device", StrCat("a UUID of ", kUuidBytes, " bytes"),
                   StrCat(wire.cuda().device().size(), " bytes"));
  }
  if (wire.cuda().handle().size() != kHandleBytes) {
    return invalid("region.cuda.handle", StrCat("a handle of ", kHandleBytes, " bytes"),
                   StrCat(wire.cuda().handle().size(), " bytes"));
  }
  // A handle says nothing of whose it is; what it names dies with its process.
  struct stat process {};
  if (stat(StrCat("/proc/", owner_.process).c_str(), &process) != 0) {
    return precondition(invalid("region.process", "a process of this node that is alive", owner_.process));
  }
  const auto denied = [](Violation wrong) {
    wrong.code = absl::StatusCode::kPermissionDenied;
    return wrong;
  };
  if (process.st_uid != owner_.user) {
    return denied(invalid("region.process", StrCat("a process of user ", owner_.user, ", who made the connection"),
                          StrCat("one of user ", process.st_uid)));
  }
  const std::string handle = wire.cuda().device() + wire.cuda().handle();
  if (handles_ != nullptr && !handles_->claim(handle, owner_.process)) {
    return denied(invalid("region.cuda.handle", "memory of the process that connects", "that of another process"));
  }
  // Released with the last of its holders, whatever becomes of the memory.
  const std::shared_ptr<void> claim(nullptr, [handles = handles_, handle](void*) {
    if (handles != nullptr) handles->release(handle);
  });
  auto memory = open_device_memory_(wire.cuda().device(), wire.cuda().handle());
  if (!memory.ok()) {
    return precondition(invalid("region.cuda.handle", "memory that a process of this node shares",
                                StrCat("what cannot be opened: ", memory.status().message())));
  }
  const std::uint64_t size = (*memory)->size();
  if (wire.size() == 0 || wire.size() > size) {
    return invalid("region.size", StrCat("1 to the allocation's ", size, " bytes"), wire.size());
  }
  *opened = std::make_unique<DeviceRegion>(*std::move(memory), wire.size(), claim);
  return {};
}

Violation SharedRegions::open_memfd(const v1::Region& wire, std::unique_ptr<Region>* opened) const {
  if (wire.fd() < 0) return invalid("region.fd", "0 or more", wire.fd());

  // O_PATH looks at the file without opening it: opening a device or a pipe could do something.
  const std::string path = StrCat("/proc/", owner_.process, "/fd/", wire.fd());
  const int looked_at = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (looked_at < 0) {
    Violation wrong =
        invalid("region.fd", "a memfd of a process that the daemon may look into", StrCat(path, ": ", strerror(errno)));
    wrong.code = absl::StatusCode::kFailedPrecondition;
    return wrong;
  }
  const absl::Cleanup close_it = [looked_at] { close(looked_at); };
  struct stat file {};
  struct statfs system {};
  // In memory, and so never slow; without a name, and so gone with its last holder: a memfd.
  if (fstat(looked_at, &file) != 0 || fstatfs(looked_at, &system) != 0 || !S_ISREG(file.st_mode) ||
      system.f_type != TMPFS_MAGIC || file.st_nlink != 0) {
    return invalid("region.fd", "a memfd", "another kind of file");
  }
  if (file.st_uid != owner_.user) {
    Violation wrong = invalid("region.fd", StrCat("memory of user ", owner_.user, ", who made the connection"),
                              StrCat("user ", file.st_uid));
    wrong.code = absl::StatusCode::kPermissionDenied;
    return wrong;
  }
  if (file.st_ino != wire.inode()) {
    return invalid("region.inode", StrCat(wire.inode(), ", that of the client's memfd"), file.st_ino);
  }
  if (wire.size() == 0 || wire.size() > static_cast<std::uint64_t>(file.st_size)) {
    return invalid("region.size", StrCat("1 to the memfd's ", file.st_size, " bytes"), wire.size());
  }
  const int descriptor = open(StrCat("/proc/self/fd/", looked_at).c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return {absl::StatusCode::kUnavailable, "region.fd", StrCat("cannot open it: ", strerror(errno))};
  }
  *opened = std::make_unique<Memfd>(descriptor, wire.size());
  return {};
}

Violation SharedRegions::drop(std::uint32_t id) {
  const auto found = regions_.find(id);
  if (found == regions_.end()) return invalid("drop_region", "a region that this stream registered", id);
  (found->second.device ? dropped_.device : dropped_.memory) += found->second.region->bytes_read;
  regions_.erase(found);
  return {};
}

Violation SharedRegions::check(const v1::TensorData& data) const {
  const auto found = regions_.find(data.region());
  if (found == regions_.end()) {
    return invalid("data.region", "a region that this stream registered", data.region());
  }
  if (!data.data().empty()) {
    return invalid("data.data", "no bytes beside those in a region", StrCat(data.data().size(), " bytes"));
  }
  const std::uint64_t size = found->second.region->size();
  if (data.region_offset() > size) {
    return invalid("data.region_offset", StrCat("at most the region's ", size, " bytes"), data.region_offset());
  }
  if (data.length() > size - data.region_offset()) {
    return invalid("data.length", StrCat("at most the ", size - data.region_offset(), " bytes to the region's end"),
                   data.length());
  }
  return {};
}

RegionReader SharedRegions::reader(const v1::TensorData& data) {
  failure_.clear();
  return {regions_.at(data.region()).region.get(), data.region_offset(), &failure_};
}

SharedRegions::BytesRead SharedRegions::take_bytes_read() {
  BytesRead read = std::exchange(dropped_, {});
  for (auto& [id, opened] : regions_) {
    (opened.device ? read.device : read.memory) += std::exchange(opened.region->bytes_read, 0);
  }
  return read;
}

}  // namespace plumbline
