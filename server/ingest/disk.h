// What files need of the disk beside their content: that their names are durable, and that room is left for verdicts.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace plumbline {

// Makes the names in `directory`, and of it and its parents up to `root`, durable. Blocks on the disk.
absl::Status sync_directories(const std::string& directory, const std::string& root);

// RESOURCE_EXHAUSTED where writing `bytes` would leave less than `reserve` bytes of the file system that holds
// `directory`; OK where its size cannot be told.
absl::Status check_reserve(const std::string& directory, std::uint64_t bytes, std::uint64_t reserve);

}  // namespace plumbline
