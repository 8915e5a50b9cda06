#include "server/serve/identify.h"

#include <errno.h>
#include <grpc/grpc_security_constants.h>
#include <sys/socket.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/log/log.h"
#include "server/store/encode.h"

namespace plumbline {
namespace {

constexpr char kFieldToken[] = "authorization";
constexpr char kScheme[] = "Bearer ";

absl::string_view view(grpc::string_ref text) { return {text.data(), text.size()}; }

// The peer of a connection that a Listener gave to gRPC is named after its descriptor, which stays open as long as one
// of its calls lives.
absl::StatusOr<Peer> peer_of(int descriptor) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 ||
      credentials.uid == static_cast<uid_t>(-1)) {
    return absl::UnauthenticatedError("the kernel does not tell whose process this is");
  }
  Peer peer{credentials.uid, credentials.pid, {}};
  constexpr std::size_t kGroupsMax = 65536;  // NGROUPS_MAX.
  peer.groups.resize(64);
  size = static_cast<socklen_t>(peer.groups.size() * sizeof(gid_t));
  int got = getsockopt(descriptor, SOL_SOCKET, SO_PEERGROUPS, peer.groups.data(), &size);
  if (got != 0 && errno == ERANGE && size <= kGroupsMax * sizeof(gid_t)) {
    peer.groups.resize(size / sizeof(gid_t));
    got = getsockopt(descriptor, SOL_SOCKET, SO_PEERGROUPS, peer.groups.data(), &size);
  }
  peer.groups.resize(got == 0 ? size / sizeof(gid_t) : 0);
  peer.groups.push_back(credentials.gid);
  return peer;
}

std::string certificate_of(const grpc::AuthContext& context) {
  for (const char* property : {GRPC_X509_CN_PROPERTY_NAME, GRPC_X509_SAN_PROPERTY_NAME}) {
    for (const grpc::string_ref& value : context.FindPropertyValues(property)) {
      if (!value.empty()) return std::string(view(value));
    }
  }
  return "";
}

bool is_plain(const grpc::AuthContext& context) {
  const auto types = context.FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  return types.empty() || view(types.front()) == "insecure";
}

}  // namespace

namespace {

absl::StatusOr<Caller> identified(const grpc::ServerContextBase& context, const Access& access) {
  Caller caller;
  const std::string held = context.peer();
  absl::string_view peer = held;
  int descriptor = -1;
  const bool local = absl::ConsumePrefix(&peer, "fd:") && absl::SimpleAtoi(peer, &descriptor);
  if (local) {
    auto known = peer_of(descriptor);
    if (!known.ok()) return known.status();
    caller.kind = Caller::Kind::kUser;
    caller.peer = *std::move(known);
    caller.subject = absl::StrCat(caller.peer.user);
  } else if (absl::StartsWith(held, "unix:")) {
    return absl::UnauthenticatedError("the kernel does not tell whose process this is");
  }
  const auto& metadata = context.client_metadata();
  if (const auto sent = metadata.find(kFieldToken); sent != metadata.end() && access.takes_tokens()) {
    absl::string_view token = view(sent->second);
    if (!absl::ConsumePrefix(&token, kScheme)) {
      return absl::UnauthenticatedError("authorization: expected \"Bearer TOKEN\", found another scheme");
    }
    auto bearer = access.bearer(token);
    if (bearer.ok()) bearer->peer = std::move(caller.peer);
    return bearer;
  }
  if (local) return caller;
  const auto auth = context.auth_context();
  if (auth == nullptr || is_plain(*auth)) {
    if (!access.takes_tokens()) return caller;
  } else if (auth->IsPeerAuthenticated()) {
    caller.kind = Caller::Kind::kCertificate;
    caller.subject = certificate_of(*auth);
    if (!caller.subject.empty()) return caller;
  }
  return absl::UnauthenticatedError("authorization: expected \"Bearer TOKEN\", found none");
}

}  // namespace

absl::StatusOr<Caller> identify(const grpc::ServerContextBase& context, const Access& access) {
  auto caller = identified(context, access);
  if (!caller.ok()) {
    log_event(LogLevel::kWarning, "caller_refused",
              {{"peer", context.peer()}, {"message", std::string(caller.status().message())}});
  }
  return caller;
}

absl::Status check_seen(const VerdictStore& store, const Access& access, const Caller& caller, const std::string& id) {
  StepIdentity step;
  if (!parse_id(id, &step)) {
    return absl::InvalidArgumentError(
        absl::StrCat("id: expected project/job/run/rank/step, found \"", id.substr(0, 600), "\""));
  }
  const auto owner = store.owner_of(step);
  if (!owner.ok()) return owner.status();
  if (*owner && access.sees(caller, step.project, **owner)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("there is no verdict ", id));
}

}  // namespace plumbline
