#include "tests/unit/store/power_loss_vfs.h"

#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace plumbline {
namespace {

// A write, or (with no data) a truncation to `offset`.
struct Change {
  std::int64_t offset = 0;
  bool truncates = false;
  std::string data;
};

struct Platter {
  std::string synced;
  std::vector<Change> pending;
};

std::mutex mutex;
std::map<std::string, Platter> disk;  // The key is the file's name without its directory.
bool disk_syncs = true;
std::atomic<int> write_error{SQLITE_OK};

void put(const Change& change, std::string* content) {
  if (change.truncates) {
    content->resize(std::min<std::size_t>(content->size(), static_cast<std::size_t>(change.offset)));
    return;
  }
  const std::size_t end = static_cast<std::size_t>(change.offset) + change.data.size();
  if (content->size() < end) content->resize(end, '\0');
  content->replace(static_cast<std::size_t>(change.offset), change.data.size(), change.data);
}

// The real file follows in memory.
struct File {
  sqlite3_file base;
  sqlite3_file* real;
  std::string* name;
};

File* of(sqlite3_file* file) { return reinterpret_cast<File*>(file); }
sqlite3_file* real(sqlite3_file* file) { return of(file)->real; }

int close_file(sqlite3_file* file) {
  const int code = real(file)->pMethods ? real(file)->pMethods->xClose(real(file)) : SQLITE_OK;
  delete of(file)->name;
  return code;
}
int read_file(sqlite3_file* file, void* data, int size, sqlite3_int64 offset) {
  return real(file)->pMethods->xRead(real(file), data, size, offset);
}
int write_file(sqlite3_file* file, const void* data, int size, sqlite3_int64 offset) {
  if (const int code = write_error.load(); code != SQLITE_OK) return code;
  {
    std::lock_guard lock(mutex);
    disk[*of(file)->name].pending.push_back(
        {offset, false, std::string(static_cast<const char*>(data), static_cast<std::size_t>(size))});
  }
  return real(file)->pMethods->xWrite(real(file), data, size, offset);
}
int truncate_file(sqlite3_file* file, sqlite3_int64 size) {
  {
    std::lock_guard lock(mutex);
    disk[*of(file)->name].pending.push_back({size, true, {}});
  }
  return real(file)->pMethods->xTruncate(real(file), size);
}
int sync_file(sqlite3_file* file, int) {
  std::lock_guard lock(mutex);
  if (!disk_syncs) return SQLITE_OK;
  Platter& platter = disk[*of(file)->name];
  for (const Change& change : platter.pending) put(change, &platter.synced);
  platter.pending.clear();
  return SQLITE_OK;
}
int file_size(sqlite3_file* file, sqlite3_int64* size) { return real(file)->pMethods->xFileSize(real(file), size); }
int lock_file(sqlite3_file* file, int level) { return real(file)->pMethods->xLock(real(file), level); }
int unlock_file(sqlite3_file* file, int level) { return real(file)->pMethods->xUnlock(real(file), level); }
int check_lock(sqlite3_file* file, int* held) { return real(file)->pMethods->xCheckReservedLock(real(file), held); }
int control(sqlite3_file* file, int operation, void* argument) {
  return real(file)->pMethods->xFileControl(real(file), operation, argument);
}
int sector_size(sqlite3_file* file) { return real(file)->pMethods->xSectorSize(real(file)); }
// No promise of the device: SQLite must not count on atomic or ordered writes.
int characteristics(sqlite3_file*) { return 0; }
int shm_map(sqlite3_file* file, int page, int size, int extend, void volatile** at) {
  return real(file)->pMethods->xShmMap(real(file), page, size, extend, at);
}
int shm_lock(sqlite3_file* file, int offset, int count, int flags) {
  return real(file)->pMethods->xShmLock(real(file), offset, count, flags);
}
void shm_barrier(sqlite3_file* file) { real(file)->pMethods->xShmBarrier(real(file)); }
int shm_unmap(sqlite3_file* file, int remove) { return real(file)->pMethods->xShmUnmap(real(file), remove); }

// Version 2: write-ahead logs, but no memory maps, which would go past xWrite.
const sqlite3_io_methods kMethods = {2,           close_file,  read_file,       write_file,  truncate_file,
                                     sync_file,   file_size,   lock_file,       unlock_file, check_lock,
                                     control,     sector_size, characteristics, shm_map,     shm_lock,
                                     shm_barrier, shm_unmap,   nullptr,         nullptr};

sqlite3_vfs* platform() { return sqlite3_vfs_find("unix"); }

int open_file(sqlite3_vfs*, const char* path, sqlite3_file* file, int flags, int* out_flags) {
  File* const opened = of(file);
  opened->base.pMethods = nullptr;
  opened->real = reinterpret_cast<sqlite3_file*>(opened + 1);
  opened->name = nullptr;
  const int code = platform()->xOpen(platform(), path, opened->real, flags, out_flags);
  if (code != SQLITE_OK) return code;
  opened->base.pMethods = &kMethods;
  opened->name = new std::string(path ? std::filesystem::path(path).filename().string() : "unnamed");
  return SQLITE_OK;
}
int delete_file(sqlite3_vfs*, const char* path, int sync_directory) {
  {
    std::lock_guard lock(mutex);
    disk.erase(std::filesystem::path(path).filename().string());
  }
  return platform()->xDelete(platform(), path, sync_directory);
}

}  // namespace

void reset_power_loss_vfs(bool syncs) {
  static sqlite3_vfs vfs;
  if (vfs.zName == nullptr) {
    vfs = *platform();
    vfs.zName = "power_loss";
    vfs.szOsFile = static_cast<int>(sizeof(File)) + platform()->szOsFile;
    vfs.xOpen = open_file;
    vfs.xDelete = delete_file;
    vfs.pNext = nullptr;
    sqlite3_vfs_register(&vfs, 0);
  }
  std::lock_guard lock(mutex);
  disk.clear();
  disk_syncs = syncs;
  write_error = SQLITE_OK;
}

void fail_writes(int code) { write_error = code; }

void lose_power(const std::string& dir, std::mt19937_64& random) {
  std::filesystem::create_directories(dir);
  std::lock_guard lock(mutex);
  for (const auto& [name, platter] : disk) {
    std::string content = platter.synced;
    const std::size_t written = random() % (platter.pending.size() + 1);
    const auto kind = random() % 3;
    for (std::size_t i = 0; i < platter.pending.size(); ++i) {
      const bool reached = kind == 0 ? false : kind == 1 ? i < written : random() % 2 == 0;
      if (!reached) continue;
      Change change = platter.pending[i];
      if (kind == 2 && random() % 4 == 0) change.data.resize(change.data.size() / 2);  // Torn.
      put(change, &content);
    }
    std::ofstream(dir + "/" + name, std::ios::binary) << content;
  }
}

}  // namespace plumbline
