// Sockets that systemd listened on before it started the daemon (sd_listen_fds(3)).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace plumbline {

struct InheritedSocket {
  int descriptor = -1;
  std::string path;  // Where it is bound.
};

// The sockets that $LISTEN_FDS counts, if $LISTEN_PID is this process; they are closed in programs that it starts, and
// accept() does not block on them. FAILED_PRECONDITION: one of them is not a listening unix socket. gRPC can listen on
// no TCP socket that somebody else opened. Call once.
absl::StatusOr<std::vector<InheritedSocket>> inherited_sockets();

}  // namespace plumbline
