// A build without libpq.
#include "server/store/shared_history.h"

namespace plumbline {

absl::Status check_store_url(const std::string&) {
  return absl::UnimplementedError(
      "this plumblined was built without PostgreSQL (libpq), so that it has its own history alone");
}

absl::StatusOr<std::unique_ptr<SharedHistory>> open_shared_history(SharedHistory::Options options, SqlStore*, Outbox*) {
  return check_store_url(options.url);
}

}  // namespace plumbline
