#include "client/cpp/nats/connect.h"

#include <nats/nats.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/nats/address.h"

namespace plumbline {
namespace {

struct DestroyOptions {
  void operator()(natsOptions* options) const { natsOptions_Destroy(options); }
};
using Options = std::unique_ptr<natsOptions, DestroyOptions>;

constexpr std::size_t kFileBytesMax = 1u << 20;

absl::StatusOr<std::string> read_file(const std::string& what, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad() || (!file.eof() && file.fail()) || text.empty()) {
    return absl::NotFoundError(absl::StrCat(what, ": cannot read ", path));
  }
  if (text.size() > kFileBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", path, " is larger than ", kFileBytesMax, " bytes"));
  }
  return text;
}

// Who we are; all empty: nobody in particular.
struct Identity {
  std::string file;  // NATS's own, with a key that signs and is never sent.
  std::string user, password, token;
  bool is_secret() const { return !password.empty() || !token.empty(); }
};

absl::StatusOr<Identity> read_identity(const NatsSettings& settings) {
  Identity identity;
  std::string line, from = "$PLUMBLINE_PUBLISH_CREDENTIALS";
  if (settings.credentials.empty()) {
    const char* const given = std::getenv("PLUMBLINE_PUBLISH_CREDENTIALS");
    if (given == nullptr || *given == '\0') return identity;
    line = given;
  } else {
    auto text = read_file("credentials", settings.credentials);
    if (!text.ok()) return text.status();
    if (absl::StrContains(*text, "-----BEGIN NATS USER JWT-----")) {
      identity.file = settings.credentials;
      return identity;
    }
    line = *std::move(text);
    from = settings.credentials;
  }
  line = std::string(absl::StripAsciiWhitespace(line));
  if (line.empty() || line.find('\n') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "credentials: expected a line USER:PASSWORD, a token, or a file of NATS's own (.creds), found none in ", from));
  }
  const std::size_t colon = line.find(':');
  if (colon == std::string::npos) {
    identity.token = line;
  } else {
    identity.user = line.substr(0, colon);
    identity.password = line.substr(colon + 1);
  }
  return identity;
}

struct Checked {
  std::vector<NatsAddress> addresses;
  Identity identity;
  std::string authorities, certificate, key;  // In PEM.
};

absl::StatusOr<Checked> check(const NatsSettings& settings) {
  Checked checked;
  auto addresses = parse_nats_addresses(settings.address);
  if (!addresses.ok()) return addresses.status();
  checked.addresses = *std::move(addresses);
  const bool tls = checked.addresses[0].tls;
  if (!tls && !(settings.authorities + settings.certificate + settings.key).empty()) {
    return absl::InvalidArgumentError("certificates: expected tls:// in the address, found nats://");
  }
  if (settings.certificate.empty() != settings.key.empty()) {
    return absl::InvalidArgumentError("certificates: expected a certificate with its key, found one of them alone");
  }
  for (const auto& [what, path, text] : {std::tuple("authorities", &settings.authorities, &checked.authorities),
                                         std::tuple("certificate", &settings.certificate, &checked.certificate),
                                         std::tuple("key", &settings.key, &checked.key)}) {
    if (path->empty()) continue;
    auto read = read_file(what, *path);
    if (!read.ok()) return read.status();
    *text = *std::move(read);
  }
  auto identity = read_identity(settings);
  if (!identity.ok()) return identity.status();
  checked.identity = *std::move(identity);
  const bool local = std::all_of(checked.addresses.begin(), checked.addresses.end(),
                                 [](const NatsAddress& address) { return address.loopback; });
  if (checked.identity.is_secret() && !tls && !local) {
    return absl::InvalidArgumentError(
        "credentials: expected tls:// for a password or token that goes to another machine, found nats://, which all "
        "may read; a file of NATS's own (.creds) is not sent");
  }
  return checked;
}

// Trouble comes as a result of what was called; the library would print it, too.
void ignore(natsConnection*, natsSubscription*, natsStatus, void*) {}

}  // namespace

absl::Status check_nats_address(const std::string& address) { return parse_nats_addresses(address).status(); }

absl::Status check_nats_settings(const NatsSettings& settings) { return check(settings).status(); }

absl::Status nats_error(int result, int stream_error, const std::string& doing) {
  const auto status = static_cast<natsStatus>(result);
  std::string text = absl::StrCat(doing, ": ", natsStatus_GetText(status));
  natsStatus last = NATS_OK;
  if (const char* const more = nats_GetLastError(&last); more != nullptr && *more != '\0' && last == status) {
    absl::StrAppend(&text, ": ", more);
  }
  switch (status) {
    case NATS_OK:
      return absl::OkStatus();
    case NATS_CONNECTION_AUTH_FAILED:
    case NATS_NOT_PERMITTED:
      return absl::PermissionDeniedError(text);
    case NATS_SSL_ERROR:
    case NATS_SECURE_CONNECTION_WANTED:
    case NATS_SECURE_CONNECTION_REQUIRED:
      return absl::FailedPreconditionError(text);
    case NATS_NO_RESPONDERS:
      return absl::UnavailableError(absl::StrCat(text, " (the server has no JetStream, or no such stream)"));
    case NATS_ERR:
    case NATS_NOT_FOUND:
      break;
    case NATS_INVALID_ARG:
    case NATS_INVALID_SUBJECT:
    case NATS_NO_MEMORY:
    case NATS_ILLEGAL_STATE:
      return absl::InternalError(text);
    default:
      return absl::UnavailableError(text);
  }
  switch (stream_error) {
    case 0:
      // The server's own words at the start of a connection: "maximum connections exceeded" and the like.
      return absl::UnavailableError(text);
    case JSAccountResourcesExceededErr:
    case JSClusterNotAvailErr:
    case JSInsufficientResourcesErr:
    case JSMemoryResourcesExceededErr:
    case JSStorageResourcesExceededErr:
      return absl::UnavailableError(text);
    default:
      return absl::FailedPreconditionError(text);
  }
}

absl::StatusOr<std::unique_ptr<NatsConnection>> NatsConnection::connect(const NatsSettings& settings) {
  const auto checked = check(settings);
  if (!checked.ok()) return checked.status();
  natsOptions* made = nullptr;
  if (const natsStatus status = natsOptions_Create(&made); status != NATS_OK) return nats_error(status, 0, "NATS");
  const Options options(made);
  const std::string name = settings.address;
  std::vector<const char*> urls;
  for (const NatsAddress& address : checked->addresses) urls.push_back(address.url.c_str());
  constexpr absl::Duration kLeast = absl::Milliseconds(250);
  const absl::Duration each = std::max(settings.connect_timeout / static_cast<double>(urls.size()), kLeast);
  const Identity& identity = checked->identity;
  natsStatus status = natsOptions_SetServers(made, urls.data(), static_cast<int>(urls.size()));
  const auto then = [&status](natsStatus next) { status = status == NATS_OK ? next : status; };
  then(natsOptions_SetName(made, settings.name.c_str()));
  then(natsOptions_SetTimeout(made, absl::ToInt64Milliseconds(each)));
  // A connection that broke is not taken up again behind our back: what of it arrived is looked up first.
  then(natsOptions_SetAllowReconnect(made, false));
  then(natsOptions_SetErrorHandler(made, ignore, nullptr));
  then(natsOptions_SetSendAsap(made, true));
  then(natsOptions_SetIgnoreDiscoveredServers(made, true));
  then(natsOptions_SetWriteDeadline(made, absl::ToInt64Milliseconds(settings.answer_timeout)));
  constexpr std::int64_t kPingEveryMs = 10000;
  then(natsOptions_SetPingInterval(made, kPingEveryMs));
  if (!identity.file.empty()) then(natsOptions_SetUserCredentialsFromFiles(made, identity.file.c_str(), nullptr));
  if (!identity.token.empty()) then(natsOptions_SetToken(made, identity.token.c_str()));
  if (!identity.user.empty()) then(natsOptions_SetUserInfo(made, identity.user.c_str(), identity.password.c_str()));
  if (checked->addresses[0].tls) {
    then(natsOptions_SetSecure(made, true));
    if (!checked->authorities.empty()) {
      then(natsOptions_SetCATrustedCertificates(made, checked->authorities.c_str()));
    }
    if (!checked->certificate.empty()) {
      then(natsOptions_SetCertificatesChain(made, checked->certificate.c_str(), checked->key.c_str()));
    }
  }
  if (status != NATS_OK) return nats_error(status, 0, name);
  natsConnection* connection = nullptr;
  if (status = natsConnection_Connect(&connection, made); status != NATS_OK) return nats_error(status, 0, name);
  jsOptions stream;
  jsOptions_Init(&stream);
  stream.Wait = absl::ToInt64Milliseconds(settings.answer_timeout);
  jsCtx* context = nullptr;
  if (status = natsConnection_JetStream(&context, connection, &stream); status != NATS_OK) {
    const absl::Status failed = nats_error(status, 0, name);
    natsConnection_Destroy(connection);
    return failed;
  }
  return std::unique_ptr<NatsConnection>(new NatsConnection(connection, context, name));
}

NatsConnection::~NatsConnection() {
  jsCtx_Destroy(stream_);
  natsConnection_Destroy(connection_);
}

void NatsConnection::close() { natsConnection_Close(connection_); }

bool NatsConnection::is_open() const { return natsConnection_Status(connection_) == NATS_CONN_STATUS_CONNECTED; }

}  // namespace plumbline
