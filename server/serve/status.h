// Statuses as gRPC and google.rpc have them.
#pragma once

#include <grpcpp/support/status.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/rpc/status.pb.h"
#include "server/ingest/violation.h"

namespace plumbline {

// With google.rpc.BadRequest details when a field is at fault, google.rpc.QuotaFailure where a limit was
// reached, and google.rpc.RetryInfo where asking again may help.
google::rpc::Status to_rpc_status(const absl::Status& status, const std::string& field,
                                  std::optional<absl::Duration> retry_after = std::nullopt);
// The same as a stream's or call's end: the details travel in the trailer "grpc-status-details-bin".
grpc::Status to_grpc_status(const absl::Status& status, const std::string& field = "");
grpc::Status to_grpc_status(const Violation& violation);
// With the project, where its quota was reached: QuotaFailure names it.
absl::Status to_status(const Violation& violation);

}  // namespace plumbline
