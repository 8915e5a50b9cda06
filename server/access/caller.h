// Who calls.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace plumbline {

// The process on the other end of a unix socket, as the kernel tells it. Its process id is that of the time when it
// connected.
struct Peer {
  uid_t user = static_cast<uid_t>(-1);
  pid_t process = 0;  // 0: there is none, the caller came by another way.
  std::vector<gid_t> groups;
};

struct Caller {
  enum class Kind {
    kUser,         // A user of this machine came by a unix socket.
    kToken,        // The caller showed a bearer token.
    kCertificate,  // The caller showed a certificate that an authority of ours has signed.
    kAnonymous     // The caller came by TCP without encryption (--insecure).
  };
  Kind kind = Kind::kAnonymous;
  std::string subject;  // The user's number, the token's name, the certificate's.
  Peer peer;

  // Under which he owns what he opens: "uid:1000", "token:ci", "certificate:trainer.example.org", "anonymous".
  std::string name() const;
};

}  // namespace plumbline
