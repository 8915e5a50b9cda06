// A build without NATS's client.
#include "server/store/publication.h"

namespace plumbline {

absl::StatusOr<std::unique_ptr<Publication>> open_publication(Publication::Options options, SqlStore*, PublishCursor*) {
  return check_nats_settings(options.server);
}

}  // namespace plumbline
