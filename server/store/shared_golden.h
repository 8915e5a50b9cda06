// Golden runs of all daemons that share a history: a run is judged against one wherever it was recorded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/ingest/golden_step.h"
#include "server/store/visibility.h"

namespace plumbline {

// Thread-safe; waits for the server, within the limits of a query (shared_history.h). UNAVAILABLE, at once where that
// is known: the history is away.
class SharedGolden {
 public:
  struct Origin {
    std::string owner, node;  // Who recorded it, and on which daemon.
    std::string run;          // "job/run"
  };

  enum class Reach { kNotYet, kThere, kPassed };

  virtual ~SharedGolden() = default;
  // How far what is recorded has come; kPassed: a later step of the rank is there, and this one is not.
  virtual absl::StatusOr<Reach> reach(const std::string& project, const std::string& name, std::int32_t rank,
                                      std::int64_t step) = 0;
  virtual absl::StatusOr<Origin> origin(const std::string& project, const std::string& name) = 0;  // NOT_FOUND
  // NOT_FOUND: no such golden run (of `run`, unless that is empty), or it does not hold the step; DATA_LOSS: what the
  // history has is no golden step.
  virtual absl::StatusOr<std::shared_ptr<const GoldenStep>> load(const std::string& project, const std::string& name,
                                                                 const std::string& run, std::int32_t rank,
                                                                 std::int64_t step) = 0;
  // Whether who sees that much of this daemon's own history sees a record of this owner on that daemon.
  virtual bool sees(const Visibility& here, const std::string& project, const Origin& origin) const = 0;
};

}  // namespace plumbline
