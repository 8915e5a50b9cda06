// A build without NATS's client.
#include "client/cpp/cli/follow.h"
#include "client/cpp/cli/output.h"
#include "client/cpp/nats/connect.h"

namespace plumbline {

int follow(const PlumbOptions& options, const v1::Filter&, std::ostream&, std::ostream& err) {
  return fail(err, check_nats_address(options.stream.address));
}

}  // namespace plumbline
