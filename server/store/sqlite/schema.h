// Opens verdicts.db and brings it to the version that FORMAT.md describes.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/store/sqlite/sqlite.h"

namespace plumbline {

inline constexpr int kApplicationId = 0x504C4D42;  // "PLMB".
inline constexpr int kSchemaVersion = 6;

// A connection that writes: WAL, synchronous=FULL, tables made or brought to our version, each version in a transaction
// of its own. A database that is refused is not written to. Errors as open_sqlite_store() documents them.
absl::StatusOr<std::unique_ptr<SqliteConnection>> open_writer(const std::string& path, const std::string& vfs);

// A connection that reads what open_writer() has prepared, and cannot write.
absl::StatusOr<std::unique_ptr<SqliteConnection>> open_reader(const std::string& path, const std::string& vfs);

}  // namespace plumbline
