#include "server/metrics/http.h"

#include <CivetServer.h>

#include <charconv>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/fault/fault.h"

namespace plumbline {
namespace {

constexpr char kText[] = "text/plain; charset=utf-8";

// An answer made afresh for each GET.
class Page final : public CivetHandler {
 public:
  struct Answer {
    int code = 200;
    std::string type, body;
  };
  explicit Page(std::function<Answer()> make) : make_(std::move(make)) {}

  bool handleGet(CivetServer*, mg_connection* connection) override {
    Answer answer{500, "text/plain; charset=utf-8", "internal error\n"};
    contained("the metrics page", [&] { answer = make_(); }).IgnoreError();
    mg_printf(connection,
              "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
              "Connection: close\r\n\r\n",
              answer.code,
              answer.code == 200   ? "OK"
              : answer.code == 503 ? "Service Unavailable"
                                   : "Error",
              answer.type.c_str(), answer.body.size());
    mg_write(connection, answer.body.data(), answer.body.size());
    return true;
  }

 private:
  std::function<Answer()> make_;
};

// Everything else: civetweb would answer with its own page, version included.
class NotFound final : public CivetHandler {
 public:
  bool handleGet(CivetServer*, mg_connection* connection) override {
    mg_printf(connection, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    return true;
  }
};

bool is_host_and_port(const std::string& address, std::string* host) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  unsigned port = 0;
  const char* end = address.data() + address.size();
  const auto [parsed, error] = std::from_chars(address.data() + colon + 1, end, port);
  *host = address.substr(0, colon);
  return error == std::errc() && parsed == end && port <= 65535 && address.find(',') == std::string::npos;
}

}  // namespace

struct MetricsServer::State {
  Page metrics, alive, ready;
  NotFound not_found;
  std::string address;
  std::unique_ptr<CivetServer> server;  // Last: its threads use the handlers.
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::start(const std::string& address, Metrics* metrics,
                                                                    std::function<std::string()> unready) {
  std::string host;
  if (!is_host_and_port(address, &host)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics-listen: expected HOST:PORT, such as 127.0.0.1:9464, found \"", address, "\""));
  }
  auto state = std::unique_ptr<State>(
      new State{Page([metrics] {
                  return Page::Answer{200, "text/plain; version=0.0.4; charset=utf-8", metrics->scrape()};
                }),
                Page([] {
                  return Page::Answer{200, kText, "ok\n"};
                }),
                Page([unready = std::move(unready)] {
                  const std::string fault = unready();
                  return Page::Answer{fault.empty() ? 200 : 503, kText, fault.empty() ? "ok\n" : fault + "\n"};
                }),
                NotFound(),
                {},
                nullptr});
  try {
    state->server = std::make_unique<CivetServer>(std::vector<std::string>{"listening_ports", address, "num_threads",
                                                                           "2", "request_timeout_ms", "10000",
                                                                           "enable_directory_listing", "no"});
  } catch (const CivetException& error) {
    return absl::UnavailableError(
        absl::StrCat("--metrics-listen: cannot listen on ", address, " (", error.what(), ")"));
  }
  const std::vector<int> ports = state->server->getListeningPorts();
  if (ports.empty()) return absl::UnavailableError(absl::StrCat("--metrics-listen: cannot listen on ", address));
  state->address = absl::StrCat(host, ":", ports.front());
  state->server->addHandler("/metrics", state->metrics);
  state->server->addHandler("/healthz", state->alive);
  state->server->addHandler("/readyz", state->ready);
  state->server->addHandler("/", state->not_found);
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(state)));
}

MetricsServer::MetricsServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
MetricsServer::~MetricsServer() = default;

const std::string& MetricsServer::address() const { return state_->address; }

}  // namespace plumbline
