// What a shared history is still to have of a daemon's own golden runs.
//
// Beside g_NAME.golden, g_NAME.shipped says in one line how much of it the history has: the history's identity, where
// the records begin that it has not, when the run began, and after a tab each the run that recorded it and whose it is.
// It stays when the golden run is removed, and tells that the history is to remove it; retention takes it along, since
// a daemon's limits are its own.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumbline/v1/archive.pb.h"
#include "server/ingest/golden_store.h"

namespace plumbline {

// Thread-safe; blocks on the disk.
class GoldenOutbox {
 public:
  // Of one golden run: steps that were recorded since, in order, or that it was removed.
  struct Shipment {
    v1::GoldenHeader header;  // With the project and name that it has here.
    std::string owner;
    bool removed = false;
    std::vector<v1::GoldenStep> steps;
    std::uint64_t through = 0;  // Where the records begin that are not in it.
  };

  explicit GoldenOutbox(GoldenStore* store) : store_(store) {}  // It outlives the outbox.

  // The next for that history; nullopt: it has everything. A damaged golden run is passed over.
  absl::StatusOr<std::optional<Shipment>> next(const std::string& history);
  absl::Status acknowledge(const std::string& history, const Shipment& shipment);

  static constexpr std::uint64_t kBytesMax = 4u << 20;  // Of a shipment's records; one step may be larger.

 private:
  struct Cursor {
    std::string history, run, owner;
    std::int64_t began_us = 0;
    std::uint64_t through = 0;
  };
  static std::optional<Cursor> read(const std::string& path);
  std::optional<Shipment> next_of(const GoldenStore::Name& name, const std::string& history) const;

  GoldenStore* const store_;
  std::mutex mutex_;
  std::uint64_t settled_ = UINT64_MAX;  // The store's changes() before nothing was found, for `of_`.
  std::string of_;
};

}  // namespace plumbline
