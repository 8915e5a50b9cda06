#include "server/store/postgres/listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "server/fault/fault.h"

namespace plumbline {
namespace {

constexpr int kRetryMs = 1000;

}  // namespace

PostgresListener::PostgresListener(PostgresSettings settings, std::function<void()> notify)
    : settings_(std::move(settings)),
      notify_(std::move(notify)),
      end_(::eventfd(0, EFD_CLOEXEC)),
      thread_([this] { contained("the listener's thread", [this] { run(); }).IgnoreError(); }) {}

PostgresListener::~PostgresListener() {
  ::eventfd_write(end_, 1);
  thread_.join();
  ::close(end_);
}

void PostgresListener::run() {
  while (listen()) {
    if (!wait(-1, kRetryMs)) return;
  }
}

bool PostgresListener::wait(int descriptor, int for_ms) {
  pollfd both[] = {{end_, POLLIN, 0}, {descriptor, POLLIN, 0}};
  ::poll(both, descriptor < 0 ? 1 : 2, for_ms);
  return both[0].revents == 0;
}

bool PostgresListener::listen() {
  const PostgresConnection connection(settings_);
  if (!connection.run("LISTEN plumbline_verdicts").ok()) return true;
  notify_();
  for (;;) {
    if (!wait(PQsocket(connection.raw()), -1)) return false;
    if (PQconsumeInput(connection.raw()) == 0) return true;
    bool ours = false;
    for (;;) {
      const std::unique_ptr<PGnotify, decltype(&PQfreemem)> notice(PQnotifies(connection.raw()), &PQfreemem);
      if (notice == nullptr) break;
      ours = ours || notice->extra == settings_.schema;
    }
    if (ours) notify_();
  }
}

}  // namespace plumbline
