// Listens on a socket and gives its connections to a gRPC server.
//
// gRPC's own listener stays dead after an accept() for which there was no descriptor, counts no connections, and does
// not tell who is at the other end of a unix socket. This one keeps a descriptor in reserve (without any left it takes
// connections to close them at once), holds those that have not said yet what they speak, and counts the others.
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/serve/address.h"
#include "server/serve/connections.h"
#include "server/serve/greeting.h"

namespace plumbline {

class Listener {
 public:
  struct Options {
    Address address;
    mode_t mode = 0600;                    // A unix socket has this mode.
    gid_t group = static_cast<gid_t>(-1);  // -1: as it comes.
    Protocol protocol = Protocol::kHttp2;
    int inherited = -1;  // A unix socket that listens there already, whose mode and group stay; -1: none.
  };
  using Give = std::function<void(int connection)>;  // Takes it over.

  // A unix socket takes the place of one that nobody listens on any more. Errors name the flag and the address:
  // UNAVAILABLE (somebody does), FAILED_PRECONDITION (something else than a socket is there), PERMISSION_DENIED.
  static absl::StatusOr<std::unique_ptr<Listener>> listen(const Options& options);
  // Takes no more connections and removes the socket, unless it was inherited. What they are given to must live until
  // then.
  ~Listener();

  // As Address::text, with the port that it has.
  const std::string& address() const { return address_; }

  // Gives connections from now on, as many as `connections` admits. Call once.
  void serve(Give give, Connections* connections);

 private:
  Listener(const Options& options, int socket);
  absl::Status failed(const char* doing) const;
  absl::Status bind_unix();
  absl::Status bind_tcp();
  // A connection whose greeting is not here yet: gRPC would wait for it, and hold its descriptor. At most kWaitingMax,
  // the oldest make room, each for kGreetingWait.
  struct Waiting {
    int connection = -1;
    absl::Time until;
    bool begun = false;  // A part of the greeting is here.
  };
  void accept_all();
  bool accept_one(std::deque<Waiting>* waiting);
  // Whether there is more to wait for; otherwise it was given, or closed. `gone`: it sends no more.
  bool waits_on(Waiting* each, bool gone);
  void give(int connection);
  void dismiss(int connection) const;
  void turn_away();

  const Options options_;
  const int socket_;
  const int stop_;  // An event, which ends the thread.
  int reserve_;     // A descriptor to give up.
  bool bound_ = false;
  std::string address_;
  Give give_;
  Connections* connections_ = nullptr;
  std::thread thread_;
};

}  // namespace plumbline
