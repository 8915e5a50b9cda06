#include "server/ingest/shared_regions.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "server/ingest/limits.h"

namespace plumbline {

using absl::StrCat;

namespace {

constexpr std::size_t kPieceBytes = 256u << 10;

}  // namespace

bool RegionReader::Next(const void** data, int* size) {
  if (backed_up_ > 0) {
    *data = piece_->data() + (piece_size_ - backed_up_);
    *size = std::exchange(backed_up_, 0);
    return true;
  }
  const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(left_, piece_->size()));
  ssize_t got = 0;
  do {
    got = pread(descriptor_, piece_->data(), wanted, static_cast<off_t>(at_));
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return false;
  at_ += static_cast<std::uint64_t>(got);
  left_ -= static_cast<std::uint64_t>(got);
  *bytes_read_ += static_cast<std::uint64_t>(got);
  taken_ += got;
  piece_size_ = static_cast<int>(got);
  *data = piece_->data();
  *size = piece_size_;
  return true;
}

bool RegionReader::Skip(int count) {
  const void* data = nullptr;
  int size = 0;
  while (count > 0 && Next(&data, &size)) {
    if (size > count) BackUp(size - count);
    count -= std::min(size, count);
  }
  return count == 0;
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
  if (wire.fd() < 0) return invalid("region.fd", "0 or more", wire.fd());

  // O_PATH looks at the file without opening it: opening a device or a pipe could do something.
  const std::string path = StrCat("/proc/", wire.process(), "/fd/", wire.fd());
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
  if (file.st_uid != owner_) {
    Violation wrong =
        invalid("region.fd", StrCat("memory of the daemon's own user, ", owner_), StrCat("user ", file.st_uid));
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
  regions_.emplace(wire.region(), Opened{descriptor, wire.size()});
  piece_.resize(kPieceBytes);
  return {};
}

Violation SharedRegions::drop(std::uint32_t id) {
  const auto found = regions_.find(id);
  if (found == regions_.end()) return invalid("drop_region", "a region that this stream registered", id);
  close(found->second.descriptor);
  regions_.erase(found);
  return {};
}

void SharedRegions::clear() {
  for (const auto& [id, region] : regions_) close(region.descriptor);
  regions_.clear();
}

Violation SharedRegions::check(const v1::TensorData& data) const {
  const auto found = regions_.find(data.region());
  if (found == regions_.end()) {
    return invalid("data.region", "a region that this stream registered", data.region());
  }
  if (!data.data().empty()) {
    return invalid("data.data", "no bytes beside those in a region", StrCat(data.data().size(), " bytes"));
  }
  const std::uint64_t size = found->second.size;
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
  return {regions_.at(data.region()).descriptor, data.region_offset(), data.length(), &piece_, &bytes_read_};
}

std::uint64_t SharedRegions::take_bytes_read() { return std::exchange(bytes_read_, 0); }

}  // namespace plumbline
