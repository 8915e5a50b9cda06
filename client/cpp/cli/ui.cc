#include <httplib.h>
#include <sys/random.h>

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <ostream>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/cli/output.h"
#include "client/cpp/cli/report.h"
#include "client/cpp/cli/signals.h"
#include "client/cpp/page/collect.h"
#include "client/cpp/page/document.h"

namespace plumbline {
namespace {

constexpr std::size_t kRequestBytesMax = 4096;  // A body is no longer; none is expected.
constexpr std::size_t kAnswersKept = 64;

absl::StatusOr<std::string> make_secret() {
  std::array<char, 16> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return absl::InternalError("the system gives no random bytes");
  }
  return absl::BytesToHexString({bytes.data(), bytes.size()});
}

// What the browser is answered. Thread-safe.
class Site {
 public:
  Site(Client& client, const PlumbOptions& options, std::string secret)
      : client_(client), options_(options), root_("/" + std::move(secret) + "/"), collector_(client, options.sources) {}

  const std::string& root() const { return root_; }

  void answer(const httplib::Request& request, httplib::Response& response) {
    if (request.path == root_) {
      page::Page page;
      page.set_live(true);
      page.set_server(options_.server);
      response.set_content(page_html(page), "text/html; charset=utf-8");
    } else if (request.path == root_ + "page.json") {
      send(page_text(request.get_param_value("project"), request.get_param_value("job")), response);
    } else if (request.path == root_ + "step.json") {
      const auto step = collector_.step(request.get_param_value("id"), false);
      send(step.ok() ? absl::StatusOr<std::string>(page_json(*step)) : step.status(), response);
    } else {
      response.status = 404;  // Whoever has not the secret learns nothing.
      response.set_content("not found\n", "text/plain");
    }
  }

 private:
  static void send(const absl::StatusOr<std::string>& text, httplib::Response& response) {
    if (text.ok()) {
      response.set_content(*text, "application/json");
      return;
    }
    response.status = absl::IsNotFound(text.status()) ? 404 : absl::IsInvalidArgument(text.status()) ? 400 : 503;
    page::Error error;
    error.set_error(std::string(text.status().message()));
    response.set_content(page_json(error), "application/json");
  }

  // A job whose summary is what it was is not read again.
  absl::StatusOr<std::string> page_text(const std::string& project, const std::string& job) {
    page::Page page;
    page.set_live(true);
    if (const absl::Status status = collector_.head(options_.server, &page); !status.ok()) return status;
    if (job.empty()) {
      const absl::Status status = collector_.jobs(options_.project, &page);
      return status.ok() ? absl::StatusOr<std::string>(page_json(page)) : status;
    }
    const auto summary = client_.job(project, job);
    if (!summary.ok()) return summary.status();
    const std::string key = summary->SerializeAsString();
    {
      std::lock_guard lock(mutex_);
      if (const auto known = jobs_.find(key); known != jobs_.end()) *page.mutable_job() = known->second;
    }
    if (!page.has_job()) {
      if (const absl::Status status = collector_.job(project, job, false, &page); !status.ok()) return status;
      std::lock_guard lock(mutex_);
      if (jobs_.size() >= kAnswersKept) jobs_.clear();
      jobs_[key] = page.job();
    }
    return page_json(page);
  }

  Client& client_;
  const PlumbOptions& options_;
  const std::string root_;
  Collector collector_;
  std::mutex mutex_;
  std::map<std::string, page::Job> jobs_;  // The key is the summary's bytes.
};

}  // namespace

int ui(const PlumbOptions& options, std::ostream& out, std::ostream& err) {
  const HoldSignals held;
  Client client(options.server, options.credentials);
  auto secret = make_secret();
  if (!secret.ok()) return fail(err, secret.status());
  Site site(client, options, *std::move(secret));

  httplib::Server server;
  server.set_payload_max_length(kRequestBytesMax);
  server.set_default_headers({{"Cache-Control", "no-store"},
                              {"X-Content-Type-Options", "nosniff"},
                              {"X-Frame-Options", "DENY"},
                              {"Referrer-Policy", "no-referrer"},
                              {"Cross-Origin-Resource-Policy", "same-origin"}});
  server.Get(".*",
             [&](const httplib::Request& request, httplib::Response& response) { site.answer(request, response); });
  constexpr char kHost[] = "127.0.0.1";
  const int port = options.port == 0 ? server.bind_to_any_port(kHost)
                                     : (server.bind_to_port(kHost, options.port) ? options.port : -1);
  if (port < 0) return fail(err, absl::StrCat("--port: cannot serve on 127.0.0.1:", options.port));
  out << "http://" << kHost << ":" << port << site.root() << "\n" << std::flush;

  std::atomic<bool> ended = false;
  {
    const EndOnSignal end_on_signal(held, [&] {
      // The server cannot be stopped before it runs, and a signal may come as soon as the address is printed.
      while (!ended && !server.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      server.stop();
    });
    server.listen_after_bind();
    ended = true;
  }
  return kExitTypeI;
}

}  // namespace plumbline
