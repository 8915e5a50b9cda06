// Counts every gRPC call of the server by an interceptor: its beginning, its status, and the time between.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "server/metrics/call_series.h"

namespace plumbline {

// Makes the services' methods known to `series`, which must outlive the server. A call costs two increments and two
// readings of the clock; the messages of a stream pass through.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> count_calls(CallSeries* series);

}  // namespace plumbline
