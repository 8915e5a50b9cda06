// Listens on a unix socket and gives its connections to a gRPC server.
//
// gRPC's own listener does not tell who is at the other end, and stays dead after an accept() for which there was no
// descriptor. This one keeps a descriptor in reserve: without any left it takes connections to close them at once.
#pragma once

#include <grpcpp/server.h>
#include <sys/types.h>

#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace plumbline {

class UnixListener {
 public:
  struct Options {
    std::string path;
    mode_t mode = 0600;
    gid_t group = static_cast<gid_t>(-1);  // -1: as it comes.
    int inherited = -1;                    // A socket that listens there already, whose mode and group stay; -1: none.
  };

  // Takes the place of a socket that nobody listens on any more. Errors name the flag and the path: UNAVAILABLE
  // (somebody does), FAILED_PRECONDITION (something else than a socket is there), PERMISSION_DENIED.
  static absl::StatusOr<std::unique_ptr<UnixListener>> listen(const Options& options);
  // Takes no more connections and removes the socket, unless it was inherited. The server must live until then.
  ~UnixListener();

  // Gives connections to the server from now on. Call once.
  void serve(grpc::Server* server);

 private:
  UnixListener(std::string path, int socket);
  // A connection that has not said yet that it speaks HTTP/2: gRPC would wait for that for ever. At most kWaitingMax,
  // the oldest make room, each for kGreetingWait.
  struct Waiting {
    int connection = -1;
    absl::Time until;
    bool begun = false;  // A part of the greeting is here.
  };
  void accept_all(grpc::Server* server);
  void accept_one(std::deque<Waiting>* waiting);
  // Whether there is more to wait for; otherwise it is the server's, or closed. `gone`: it sends no more.
  bool waits_on(Waiting* each, bool gone, grpc::Server* server);
  void turn_away();

  const std::string path_;
  const int socket_;
  const int stop_;  // An event, which ends the thread.
  int reserve_;     // A descriptor to give up.
  bool bound_ = false;
  std::thread thread_;
};

}  // namespace plumbline
