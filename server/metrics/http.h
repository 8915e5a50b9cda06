// The HTTP side of the daemon: GET /metrics, GET /healthz (it is alive) and GET /readyz (it does its work).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/metrics/metrics.h"

namespace plumbline {

class MetricsServer {
 public:
  // Listens on "HOST:PORT" ("127.0.0.1:9464"; port 0 takes a free one, see address()). `unready` runs at each
  // GET /readyz, from any thread, and returns an empty text (answer 200 "ok") or what is wrong (answer 503 with it).
  // `metrics` must outlive the server. Errors: INVALID_ARGUMENT (no HOST:PORT), UNAVAILABLE (cannot listen).
  static absl::StatusOr<std::unique_ptr<MetricsServer>> start(const std::string& address, Metrics* metrics,
                                                              std::function<std::string()> unready);
  ~MetricsServer();

  const std::string& address() const;  // "HOST:PORT" with the real port.

 private:
  struct State;
  explicit MetricsServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace plumbline
