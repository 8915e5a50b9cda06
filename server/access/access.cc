#include "server/access/access.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace plumbline {

using absl::StrCat;

std::string Caller::name() const {
  switch (kind) {
    case Kind::kUser:
      return StrCat("uid:", subject);
    case Kind::kToken:
      return StrCat("token:", subject);
    case Kind::kCertificate:
      return StrCat("certificate:", subject);
    case Kind::kAnonymous:
      break;
  }
  return "anonymous";
}

absl::StatusOr<std::unique_ptr<Access>> Access::open(const Options& options) {
  auto access = std::unique_ptr<Access>(new Access(options));
  if (auto read = access->reload(); !read.ok()) return read;
  return access;
}

absl::StatusOr<std::shared_ptr<const Access::Files>> Access::read() const {
  auto files = std::make_shared<Files>();
  if (!options_.token_file.empty()) {
    auto tokens = Tokens::read(options_.token_file);
    if (!tokens.ok()) return tokens.status();
    files->tokens = *std::move(tokens);
  }
  if (!options_.policy.empty()) {
    auto policy = Policy::read(options_.policy, files->tokens);
    if (!policy.ok()) return policy.status();
    files->policy = *std::move(policy);
  }
  return files;
}

absl::Status Access::reload() {
  auto files = read();
  if (!files.ok()) return files.status();
  const std::lock_guard lock(mutex_);
  files_ = *std::move(files);
  return absl::OkStatus();
}

std::shared_ptr<const Access::Files> Access::files() const {
  const std::lock_guard lock(mutex_);
  return files_;
}

absl::StatusOr<Caller> Access::bearer(absl::string_view token) const {
  auto name = files()->tokens.find(token, absl::Now());
  if (!name.ok()) return name.status();
  Caller caller;
  caller.kind = Caller::Kind::kToken;
  caller.subject = *std::move(name);
  return caller;
}

absl::Status Access::still(const Caller& caller) const {
  if (caller.kind != Caller::Kind::kToken || files()->tokens.valid(caller.subject, absl::Now())) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(StrCat("authorization: expected a token that is valid, found that of ",
                                           caller.name(), ", which is not any more"));
}

bool Access::is_root(const Caller& caller) const {
  return caller.kind == Caller::Kind::kUser && (caller.peer.user == 0 || caller.peer.user == options_.daemon_user);
}

bool Access::may(const Caller& caller, Role role, const std::string& project) const {
  if (is_root(caller)) return true;
  const auto files = this->files();
  return files->policy ? files->policy->grants(caller, role, project) : role == Role::kStream;
}

absl::Status Access::check_known(const Caller& caller) const {
  const auto files = this->files();
  if (is_root(caller) || !files->policy || files->policy->names(caller)) return absl::OkStatus();
  return absl::PermissionDeniedError(StrCat("expected a caller with a role in some project, found ", caller.name()));
}

bool Access::sees(const Caller& caller, const std::string& project, const std::string& owner) const {
  return owner == caller.name() || may(caller, Role::kRead, project);
}

bool Access::handles(const Caller& caller, const std::string& project, const std::string& owner) const {
  return owner == caller.name() || may(caller, Role::kAdmin, project);
}

Visibility Access::seen_by(const Caller& caller) const {
  Visibility seen;
  if (is_root(caller)) return seen;
  seen.all = false;
  seen.owner = caller.name();
  const auto files = this->files();
  if (files->policy) seen.projects = files->policy->readable(caller);
  seen.all = seen.projects.count("*") > 0;
  return seen;
}

Quota Access::quota(const std::string& project) const {
  const auto files = this->files();
  return files->policy ? files->policy->quota(project) : Quota{};
}

std::set<std::string> Access::projects() const {
  const auto files = this->files();
  return files->policy ? files->policy->projects() : std::set<std::string>();
}

absl::Status Access::check(const Caller& caller, Role role, const std::string& project) const {
  if (may(caller, role, project)) return absl::OkStatus();
  const char* const name = role == Role::kStream ? "STREAM" : role == Role::kRead ? "READ" : "ADMIN";
  return absl::PermissionDeniedError(StrCat("identity.project: expected a project in which ", caller.name(),
                                            " has the role ", name, ", found \"", project.substr(0, 200), "\""));
}

}  // namespace plumbline
