// Removes rows, a few hundred at a time, so that no commit of it keeps others waiting. On the writer's thread, within
// its transaction; the space comes back with it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "server/store/sql.h"
#include "server/store/store.h"

namespace plumbline {

// Some of what is beyond the limits, and may go (SqlConnection::removable). Whether there may be more.
absl::StatusOr<bool> expire_some(const SqlConnection& connection, const Retention& retention, std::int64_t now_us);

// Some of one rank of a run, likewise.
absl::StatusOr<bool> remove_some(const SqlConnection& connection, const StepIdentity& run);

// Some of a job: its verdicts, errors and gaps, and with the last of them its runs. Whether there is more.
absl::StatusOr<bool> remove_some(const SqlConnection& connection, const std::string& project, const std::string& job);

}  // namespace plumbline
