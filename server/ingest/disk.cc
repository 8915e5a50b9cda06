#include "server/ingest/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"

namespace plumbline {

using absl::StrCat;

absl::Status sync_directories(const std::string& directory, const std::string& root) {
  namespace fs = std::filesystem;
  const fs::path top = fs::path(root).lexically_normal();
  for (fs::path at = fs::path(directory).lexically_normal();; at = at.parent_path()) {
    const int descriptor = open(at.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool synced = descriptor >= 0 && fsync(descriptor) == 0;
    const int error = errno;
    if (descriptor >= 0) close(descriptor);
    if (!synced) return absl::UnavailableError(StrCat("cannot sync ", at.string(), ": ", strerror(error)));
    if (at == top || !at.has_relative_path()) return absl::OkStatus();
  }
}

absl::Status check_reserve(const std::string& directory, std::uint64_t bytes, std::uint64_t reserve) {
  struct statvfs disk = {};
  if (reserve == 0 || statvfs(directory.c_str(), &disk) != 0) return absl::OkStatus();
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  if (free >= bytes && free - bytes >= reserve) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat("the disk has ", free, " bytes left, of which --disk-reserve keeps ",
                                             reserve, " for verdicts, and ", bytes, " were to be written"));
}

}  // namespace plumbline
