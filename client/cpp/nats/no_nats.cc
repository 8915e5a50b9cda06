// A build without NATS's client.
#include "client/cpp/nats/connect.h"

namespace plumbline {

absl::Status check_nats_address(const std::string&) {
  return absl::UnimplementedError(
      "this program was built without NATS (libnats), so that it has no stream of verdicts");
}

absl::Status check_nats_settings(const NatsSettings& settings) { return check_nats_address(settings.address); }

}  // namespace plumbline
