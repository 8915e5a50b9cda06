// What a client says first on a connection, which must be there before the connection is worth anything to gRPC.
#pragma once

#include <cstdint>

namespace plumbline {

enum class Protocol { kHttp2, kTls };

// What has arrived on a socket, which stays there to be read. kWhole is the preface of HTTP/2 (RFC 9113, 3.4), or the
// record that begins a TLS handshake (RFC 8446, 5.1). kOther is something that cannot become one, or the end.
enum class Greeting : std::uint8_t { kNone, kPart, kWhole, kOther };
Greeting greeting_of(int connection, Protocol protocol);

}  // namespace plumbline
