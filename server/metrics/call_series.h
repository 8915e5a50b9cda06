// The series of gRPC calls, under the names and with the labels that grpc-ecosystem's libraries share:
// grpc_server_started_total, grpc_server_handled_total with `grpc_code`, and grpc_server_handling_seconds of calls that
// are unary. Series of every method that is known exist from the start; any other counts as "other", since its name is
// the caller's. Thread-safe once all methods are known.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace plumbline {

enum class CallKind { kUnary, kClientStream, kServerStream, kBidiStream };

class CallSeries {
 public:
  static constexpr std::size_t kCodes = 17;  // Of gRPC, from OK (0) to UNAUTHENTICATED (16).

  // One method's series.
  class Method {
   public:
    void begin() const { started_->Increment(); }
    // `code`: gRPC's number; one that gRPC does not have counts as UNKNOWN.
    void end(int code, double seconds) const;

   private:
    friend class CallSeries;
    prometheus::Counter* started_ = nullptr;
    std::array<prometheus::Counter*, kCodes> handled_{};
    prometheus::Histogram* seconds_ = nullptr;  // Null for streams.
  };

  explicit CallSeries(prometheus::Registry* registry);

  // Before the first call: "plumbline.v1.VerdictService", "ListJobs".
  void add(CallKind kind, const std::string& service, const std::string& method);

  // By its path, "/plumbline.v1.VerdictService/ListJobs". Valid as long as this lives.
  const Method& find(std::string_view path) const;

 private:
  Method make(CallKind kind, const std::string& service, const std::string& method);

  prometheus::Family<prometheus::Counter>&started_, &handled_;
  prometheus::Family<prometheus::Histogram>& seconds_;
  std::map<std::string, Method, std::less<>> methods_;
  const Method other_;
};

}  // namespace plumbline
