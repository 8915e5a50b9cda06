#include "server/serve/call_counts.h"

#include <google/protobuf/descriptor.h>

#include "absl/time/time.h"
#include "plumbline/v1/archive.pb.h"
#include "plumbline/v1/audit.pb.h"
#include "plumbline/v1/query.pb.h"
#include "server/work/steady.h"

namespace plumbline {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

class CallCount final : public grpc::experimental::Interceptor {
 public:
  explicit CallCount(const CallSeries::Method& method) : method_(method) { method_.begin(); }
  // A call that ends without a status of ours was cancelled.
  ~CallCount() override { end(grpc::StatusCode::CANCELLED); }

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      end(methods->GetSendStatus().error_code());
    }
    methods->Proceed();
  }

 private:
  void end(int code) {
    if (ended_) return;
    ended_ = true;
    method_.end(code, absl::ToDoubleSeconds(steady_now() - begun_));
  }

  const CallSeries::Method& method_;
  const absl::Time begun_ = steady_now();
  bool ended_ = false;
};

class Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(const CallSeries* series) : series_(series) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* call) override {
    return new CallCount(series_->find(call->method()));  // gRPC owns it.
  }

 private:
  const CallSeries* const series_;
};

CallKind kind_of(const google::protobuf::MethodDescriptor& method) {
  if (method.client_streaming()) return method.server_streaming() ? CallKind::kBidiStream : CallKind::kClientStream;
  return method.server_streaming() ? CallKind::kServerStream : CallKind::kUnary;
}

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> count_calls(CallSeries* series) {
  for (const auto* file : {v1::OpenJobRequest::descriptor()->file(), v1::GetVerdictRequest::descriptor()->file(),
                           v1::ExportTraceRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      const auto* const service = file->service(i);
      for (int k = 0; k < service->method_count(); ++k) {
        series->add(kind_of(*service->method(k)), service->full_name(), service->method(k)->name());
      }
    }
  }
  series->add(CallKind::kUnary, "grpc.health.v1.Health", "Check");
  series->add(CallKind::kServerStream, "grpc.health.v1.Health", "Watch");
  series->add(CallKind::kBidiStream, "grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo");
  return std::make_unique<Factory>(series);
}

}  // namespace plumbline
