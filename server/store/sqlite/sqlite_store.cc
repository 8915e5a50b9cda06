// The SQLite engine: verdicts.db in a data directory of one daemon.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/store/sql_store.h"
#include "server/store/sqlite/schema.h"
#include "server/store/store.h"

namespace plumbline {
namespace {

// A file descriptor, closed at the end; of the lock file, that is what gives the directory back.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::StatusOr<Descriptor> lock_directory(const std::string& data_dir) {
  std::error_code error;
  std::filesystem::create_directories(data_dir, error);
  if (error) {
    return absl::PermissionDeniedError(absl::StrCat("cannot create the data directory ", data_dir, ": ",
                                                    error.message(), "; choose another --data-dir"));
  }
  const std::string path = data_dir + "/lock";
  Descriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (lock.get() < 0) {
    return absl::PermissionDeniedError(absl::StrCat("cannot write to the data directory ", data_dir, ": ",
                                                    std::strerror(errno), "; choose another --data-dir"));
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::UnavailableError(
        absl::StrCat("the data directory ", data_dir, " is in use by another daemon; choose another --data-dir"));
  }
  return lock;
}

// Which file lies at a path.
class FileAt {
 public:
  explicit FileAt(std::string path) : path_(std::move(path)), found_(look(&before_)) {}

  // OK: it is the same yet. What is written to a file without a name, or on a disk that is no longer mounted, is gone
  // when the daemon ends, and SQLite does not mind.
  absl::Status check() const {
    struct stat now {};
    if (!found_ || (look(&now) && now.st_dev == before_.st_dev && now.st_ino == before_.st_ino))
      return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("the verdict database ", path_,
                                               " was removed, moved or unmounted: restart the daemon when it is back"));
  }

 private:
  bool look(struct stat* at) const { return ::stat(path_.c_str(), at) == 0; }

  const std::string path_;
  struct stat before_ {};
  const bool found_;  // False: of a VFS that has no files.
};

// SQLite syncs what a database holds; the names of new files are the directory's.
absl::Status sync_directory(const std::string& data_dir) {
  const Descriptor directory(::open(data_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || ::fsync(directory.get()) != 0) {
    return absl::PermissionDeniedError(absl::StrCat("cannot sync ", data_dir, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

// What a store holds while it is open.
struct Directory {
  Descriptor lock;
  FileAt file;
};

}  // namespace

absl::StatusOr<std::unique_ptr<VerdictStore>> open_sqlite_store(const std::string& data_dir, SqliteOptions options) {
  return open_local_store(data_dir, std::move(options));
}

absl::StatusOr<std::unique_ptr<SqlStore>> open_local_store(const std::string& data_dir, SqliteOptions options) {
  auto lock = lock_directory(data_dir);
  if (!lock.ok()) return lock.status();
  const std::string path = data_dir + "/verdicts.db";
  SqlParts parts;
  auto writer = open_writer(path, options.vfs);
  if (!writer.ok()) return writer.status();
  parts.writer = *std::move(writer);
  auto points = open_reader(path, options.vfs);
  if (!points.ok()) return points.status();
  parts.points = *std::move(points);
  for (int i = 0; i < VerdictStore::kReaders; ++i) {
    auto reader = open_reader(path, options.vfs);
    if (!reader.ok()) return reader.status();
    parts.readers.push_back(*std::move(reader));
  }
  if (auto synced = sync_directory(data_dir); !synced.ok()) return synced;
  auto directory = std::make_shared<Directory>(Directory{*std::move(lock), FileAt(path)});
  parts.lost = [directory] { return directory->file.check(); };
  parts.held = std::move(directory);
  parts.trouble = std::move(options.trouble);
  parts.timed = std::move(options.timed);
  return make_sql_store(std::move(parts));
}

}  // namespace plumbline
