// How many connections there are, in all and of each peer (a user of this machine, an address of another). Thread-safe.
//
// gRPC does not tell when a connection ends. It has ended when its descriptor is closed, or is another socket's by now.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace plumbline {

class Connections {
 public:
  Connections(std::size_t most, std::size_t most_of_a_peer) : most_(most), most_of_a_peer_(most_of_a_peer) {}

  // Counts a connection just accepted. RESOURCE_EXHAUSTED: there are as many as may be; it is not counted.
  absl::Status add(int descriptor, const std::string& peer);
  std::size_t count();
  std::size_t refused() const;

 private:
  struct Connection {
    ino_t socket = 0;
    std::string peer;
  };
  void forget(std::map<int, Connection>::iterator found);  // With the lock held, as below.
  void sweep();
  bool full(const std::string& peer) const;

  const std::size_t most_, most_of_a_peer_;
  mutable std::mutex mutex_;
  std::map<int, Connection> all_;  // The key is the descriptor.
  std::map<std::string, std::size_t> of_peers_;
  absl::Time swept_ = absl::InfinitePast();
  std::size_t refused_ = 0;
};

}  // namespace plumbline
