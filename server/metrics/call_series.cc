#include "server/metrics/call_series.h"

namespace plumbline {
namespace {

// As Go's gRPC prints them, which dashboards of grpc_server_* expect.
constexpr std::array<const char*, CallSeries::kCodes> kCodeNames = {
    "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
    "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
    "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
    "DataLoss", "Unauthenticated"};
constexpr std::size_t kUnknown = 2;

const char* name_of(CallKind kind) {
  switch (kind) {
    case CallKind::kUnary:
      return "unary";
    case CallKind::kClientStream:
      return "client_stream";
    case CallKind::kServerStream:
      return "server_stream";
    case CallKind::kBidiStream:
      return "bidi_stream";
  }
  return "unary";
}

}  // namespace

void CallSeries::Method::end(int code, double seconds) const {
  const bool known = code >= 0 && static_cast<std::size_t>(code) < kCodes;
  handled_[known ? static_cast<std::size_t>(code) : kUnknown]->Increment();
  if (seconds_ != nullptr) seconds_->Observe(seconds);
}

CallSeries::CallSeries(prometheus::Registry* registry)
    : started_(prometheus::BuildCounter()
                   .Name("grpc_server_started_total")
                   .Help("Calls that were begun, by method.")
                   .Register(*registry)),
      handled_(prometheus::BuildCounter()
                   .Name("grpc_server_handled_total")
                   .Help("Calls that have ended, by method and status.")
                   .Register(*registry)),
      seconds_(prometheus::BuildHistogram()
                   .Name("grpc_server_handling_seconds")
                   .Help("Seconds from the beginning of a unary call to its status.")
                   .Register(*registry)),
      other_(make(CallKind::kBidiStream, "other", "other")) {}

void CallSeries::add(CallKind kind, const std::string& service, const std::string& method) {
  methods_.insert_or_assign("/" + service + "/" + method, make(kind, service, method));
}

const CallSeries::Method& CallSeries::find(std::string_view path) const {
  const auto found = methods_.find(path);
  return found == methods_.end() ? other_ : found->second;
}

CallSeries::Method CallSeries::make(CallKind kind, const std::string& service, const std::string& method) {
  prometheus::Labels labels = {{"grpc_type", name_of(kind)}, {"grpc_service", service}, {"grpc_method", method}};
  Method made;
  made.started_ = &started_.Add(labels);
  if (kind == CallKind::kUnary) {
    made.seconds_ = &seconds_.Add(labels, prometheus::Histogram::BucketBoundaries{0.001, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                                                  0.25, 0.5, 1, 2.5, 5, 10});
  }
  for (std::size_t code = 0; code < kCodes; ++code) {
    labels["grpc_code"] = kCodeNames[code];
    made.handled_[code] = &handled_.Add(labels);
  }
  return made;
}

}  // namespace plumbline
