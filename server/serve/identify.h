// Who makes a call, and whether he may see what he asks for.
#pragma once

#include <grpcpp/server_context.h>

#include "absl/status/statusor.h"
#include "server/access/access.h"
#include "server/store/store.h"

namespace plumbline {

// A bearer token, where one is sent; otherwise the user at the other end of a unix socket, as the kernel tells him, or
// the client's certificate. Without any of these, by TCP that is not encrypted (--insecure), somebody: "anonymous".
// UNAUTHENTICATED: a token that is not known, or none where one is needed.
absl::StatusOr<Caller> identify(const grpc::ServerContextBase& context, const Access& access);

// NOT_FOUND, as for a verdict that is not there, unless the caller may see it. INVALID_ARGUMENT: no id.
absl::Status check_seen(const VerdictStore& store, const Access& access, const Caller& caller, const std::string& id);

}  // namespace plumbline
