#include "server/metrics/http.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

namespace plumbline {
namespace {

// One HTTP exchange on loopback: the whole answer.
std::string talk(const std::string& address, const std::string& request) {
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  EXPECT_EQ(::write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) > 0;) answer.append(buffer, static_cast<std::size_t>(n));
  ::close(fd);
  return answer;
}

std::string get(const std::string& address, const std::string& path) {
  return talk(address, "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
}

TEST(MetricsServer, ServesMetricsAndHealth) {
  Metrics metrics("v", "c0ffee", "cpu");
  std::atomic<bool> sick = false;
  auto server = MetricsServer::start("127.0.0.1:0", &metrics, [&] { return sick ? "the disk is full" : ""; });
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string& address = (*server)->address();
  EXPECT_TRUE(address.starts_with("127.0.0.1:"));
  EXPECT_NE(address, "127.0.0.1:0");

  const std::string page = get(address, "/metrics");
  EXPECT_TRUE(page.starts_with("HTTP/1.1 200 OK\r\n")) << page;
  EXPECT_NE(page.find("Content-Type: text/plain; version=0.0.4"), std::string::npos);
  EXPECT_NE(page.find("plumbline_build_info{"), std::string::npos);

  EXPECT_TRUE(get(address, "/readyz").starts_with("HTTP/1.1 200 OK\r\n"));
  sick = true;
  const std::string unready = get(address, "/readyz");
  EXPECT_TRUE(unready.starts_with("HTTP/1.1 503 "));
  EXPECT_TRUE(unready.ends_with("\r\n\r\nthe disk is full\n"));
  EXPECT_TRUE(get(address, "/healthz").starts_with("HTTP/1.1 200 OK\r\n")) << "it is alive: nothing is to be restarted";

  EXPECT_TRUE(get(address, "/").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(get(address, "/etc/passwd").starts_with("HTTP/1.1 404 "));
  EXPECT_FALSE(talk(address, "no http at all\r\n\r\n").starts_with("HTTP/1.1 200"));
  EXPECT_FALSE(talk(address, "DELETE /metrics HTTP/1.1\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 200"));
}

TEST(MetricsServer, TellsWhyItCannotListen) {
  Metrics metrics("v", "c0ffee", "cpu");
  const auto healthy = [] { return std::string(); };
  for (const char* address :
       {"", "9464", "localhost:", "127.0.0.1:http", "127.0.0.1:70000", ":9464", "127.0.0.1:0,127.0.0.1:0"}) {
    const auto server = MetricsServer::start(address, &metrics, healthy);
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument) << address;
  }
  const auto first = MetricsServer::start("127.0.0.1:0", &metrics, healthy);
  ASSERT_TRUE(first.ok());
  const auto second = MetricsServer::start((*first)->address(), &metrics, healthy);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find((*first)->address()), std::string::npos) << second.status();
}

}  // namespace
}  // namespace plumbline
