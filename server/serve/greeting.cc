#include "server/serve/greeting.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>

namespace plumbline {
namespace {

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr ssize_t kPrefaceBytes = sizeof kPreface - 1;
constexpr ssize_t kHeaderBytes = 5;          // A TLS record begins with its type, a version and its length.
constexpr char kHandshake[] = {0x16, 0x03};  // Its type, the first byte of every version.
constexpr int kRecordBytesMax = 16384;       // An unencrypted record is no longer.

Greeting of_http2(const char* bytes, ssize_t got) {
  if (memcmp(bytes, kPreface, static_cast<std::size_t>(std::min(got, kPrefaceBytes))) != 0) return Greeting::kOther;
  return got >= kPrefaceBytes ? Greeting::kWhole : Greeting::kPart;
}

Greeting of_tls(int connection, const char* bytes, ssize_t got) {
  if (memcmp(bytes, kHandshake, static_cast<std::size_t>(std::min<ssize_t>(got, sizeof kHandshake))) != 0)
    return Greeting::kOther;
  if (got < kHeaderBytes) return Greeting::kPart;
  const int length = static_cast<std::uint8_t>(bytes[3]) << 8 | static_cast<std::uint8_t>(bytes[4]);
  if (length > kRecordBytesMax) return Greeting::kOther;
  int there = 0;
  if (ioctl(connection, FIONREAD, &there) != 0) return Greeting::kOther;
  return there >= kHeaderBytes + length ? Greeting::kWhole : Greeting::kPart;
}

}  // namespace

Greeting greeting_of(int connection, Protocol protocol) {
  char bytes[kPrefaceBytes];
  const ssize_t got = recv(connection, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Greeting::kNone;
  if (got <= 0) return Greeting::kOther;
  return protocol == Protocol::kTls ? of_tls(connection, bytes, got) : of_http2(bytes, got);
}

}  // namespace plumbline
