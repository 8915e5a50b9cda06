#include "server/serve/status.h"

#include "google/rpc/error_details.pb.h"
#include "server/access/project_use.h"

namespace plumbline {
namespace {

constexpr absl::Duration kRetryDelay = absl::Seconds(1);

}  // namespace

google::rpc::Status to_rpc_status(const absl::Status& status, const std::string& field,
                                  std::optional<absl::Duration> retry_after) {
  google::rpc::Status wire;
  wire.set_code(static_cast<int>(status.code()));
  wire.set_message(std::string(status.message()));
  if (!field.empty()) {
    google::rpc::BadRequest details;
    auto* violation = details.add_field_violations();
    violation->set_field(field);
    violation->set_description(std::string(status.message()));
    wire.add_details()->PackFrom(details);
  }
  if (absl::IsResourceExhausted(status)) {
    google::rpc::QuotaFailure details;
    auto* violation = details.add_violations();
    const std::string project = quota_subject(status);
    violation->set_subject(!project.empty() ? project : field.empty() ? "daemon" : field);
    violation->set_description(std::string(status.message()));
    wire.add_details()->PackFrom(details);
  }
  if (retry_after) {
    google::rpc::RetryInfo details;
    details.mutable_retry_delay()->set_seconds(absl::ToInt64Seconds(*retry_after));
    details.mutable_retry_delay()->set_nanos(
        static_cast<std::int32_t>(absl::ToInt64Nanoseconds(*retry_after % absl::Seconds(1))));
    wire.add_details()->PackFrom(details);
  }
  return wire;
}

grpc::Status to_grpc_status(const absl::Status& status, const std::string& field) {
  if (status.ok()) return grpc::Status::OK;
  // A limit that no field of the call goes beyond is one of the moment.
  const bool of_the_moment = absl::IsResourceExhausted(status) && field.empty();
  const bool detailed = of_the_moment || !field.empty();
  const auto retry_after = of_the_moment ? std::make_optional(kRetryDelay) : std::nullopt;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
                      detailed ? to_rpc_status(status, field, retry_after).SerializeAsString() : std::string());
}

absl::Status to_status(const Violation& violation) {
  const absl::Status status(violation.code, violation.message());
  return violation.quota_of.empty() ? status : of_quota(status, violation.quota_of);
}

grpc::Status to_grpc_status(const Violation& violation) {
  return to_grpc_status(to_status(violation), violation.field);
}

}  // namespace plumbline
