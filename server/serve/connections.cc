#include "server/serve/connections.h"

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "server/work/steady.h"

namespace plumbline {
namespace {

constexpr absl::Duration kBetweenSweeps = absl::Milliseconds(100);  // While there are too many.

// Which socket a descriptor is; 0: none.
ino_t socket_of(int descriptor) {
  struct stat info {};
  return fstat(descriptor, &info) == 0 ? info.st_ino : 0;
}

}  // namespace

absl::Status Connections::add(int descriptor, const std::string& peer) {
  const std::lock_guard lock(mutex_);
  if (const auto reused = all_.find(descriptor); reused != all_.end()) forget(reused);
  if (full(peer) && steady_now() - swept_ > kBetweenSweeps) sweep();
  if (full(peer)) {
    ++refused_;
    return absl::ResourceExhaustedError(absl::StrCat("expected at most ", most_, " connections (--max-connections), ",
                                                     most_of_a_peer_, " of one peer (--max-connections-per-peer)"));
  }
  all_[descriptor] = {socket_of(descriptor), peer};
  ++of_peers_[peer];
  return absl::OkStatus();
}

std::size_t Connections::count() {
  const std::lock_guard lock(mutex_);
  sweep();
  return all_.size();
}

std::size_t Connections::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

bool Connections::full(const std::string& peer) const {
  const auto found = of_peers_.find(peer);
  return all_.size() >= most_ || (found != of_peers_.end() && found->second >= most_of_a_peer_);
}

void Connections::forget(std::map<int, Connection>::iterator found) {
  const auto of_peer = of_peers_.find(found->second.peer);
  if (--of_peer->second == 0) of_peers_.erase(of_peer);
  all_.erase(found);
}

void Connections::sweep() {
  swept_ = steady_now();
  for (auto each = all_.begin(); each != all_.end();) {
    const auto here = each++;
    if (socket_of(here->first) != here->second.socket) forget(here);
  }
}

}  // namespace plumbline
