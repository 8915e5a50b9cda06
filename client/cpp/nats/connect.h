// A connection to NATS by its C client, with statuses in place of its results and a limit of time on everything.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

struct __natsConnection;  // <nats/nats.h>, which a build without it does not have.
struct __jsCtx;

namespace plumbline {

// INVALID_ARGUMENT: not nats://HOST:PORT or tls://HOST:PORT (some of them, with commas, of one cluster), or with a user
// or password in it, which every user of the machine could read. UNIMPLEMENTED: built without NATS's client. The text
// has nothing of the address.
absl::Status check_nats_address(const std::string& address);

struct NatsSettings {
  std::string address;  // Of check_nats_address(). tls:// is encrypted, and the server's certificate is checked.
  std::string name;     // As which the server lists this connection.
  // A file that says who we are: one of NATS's own (.creds), or a line USER:PASSWORD, or a token. Empty: the line is in
  // $PLUMBLINE_PUBLISH_CREDENTIALS, if that is set. Read at each connection, as the files below are.
  std::string credentials;
  // Files in PEM. Without authorities those of the system are believed.
  std::string authorities, certificate, key;
  absl::Duration connect_timeout = absl::Seconds(2);  // For all of the addresses together.
  absl::Duration answer_timeout = absl::Seconds(5);
};

// What can be told without a server: INVALID_ARGUMENT or NOT_FOUND names what is wrong (a file that cannot be read, a
// certificate without a key, a password that would go over a network for all to see).
absl::Status check_nats_settings(const NatsSettings& settings);

// The connection and its JetStream. Thread-safe as the library is: close() ends what waits in another thread.
class NatsConnection {
 public:
  // UNAVAILABLE: nobody is there, or does not answer. PERMISSION_DENIED: it does not let us in. FAILED_PRECONDITION:
  // encryption does not come about. Otherwise as check_nats_settings().
  static absl::StatusOr<std::unique_ptr<NatsConnection>> connect(const NatsSettings& settings);
  ~NatsConnection();
  NatsConnection(const NatsConnection&) = delete;
  NatsConnection& operator=(const NatsConnection&) = delete;

  void close();
  bool is_open() const;
  __natsConnection* raw() const { return connection_; }
  __jsCtx* stream() const { return stream_; }
  const std::string& name() const { return name_; }  // Of the server, for messages.

 private:
  NatsConnection(__natsConnection* connection, __jsCtx* stream, std::string name)
      : connection_(connection), stream_(stream), name_(std::move(name)) {}

  __natsConnection* const connection_;
  __jsCtx* const stream_;
  const std::string name_;
};

// A result of the library (natsStatus, jsErrCode) as a status, with what it says of itself: lost connections, timeouts
// and a server short of means are UNAVAILABLE, rights PERMISSION_DENIED, encryption and what JetStream refuses
// FAILED_PRECONDITION, anything else INTERNAL.
absl::Status nats_error(int result, int stream_error, const std::string& doing);

}  // namespace plumbline
