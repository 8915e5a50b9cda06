// Errors of queries as gRPC statuses.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/serve/status.h"

namespace plumbline {

// An INVALID_ARGUMENT whose message has the store's form "FIELD: expected ..., found ..." carries a BadRequest that
// names the field.
inline grpc::Status query_status(const absl::Status& status) {
  const std::string message(status.message());
  const std::size_t colon = message.find(": ");
  const bool names_field = status.code() == absl::StatusCode::kInvalidArgument && colon != std::string::npos;
  return to_grpc_status(status, names_field ? message.substr(0, colon) : "");
}

}  // namespace plumbline
