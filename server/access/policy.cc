#include "server/access/policy.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "plumbline/v1/policy.pb.h"

namespace plumbline {
namespace {

using absl::StrCat;
using google::protobuf::TextFormat;

constexpr char kAll[] = "*";

struct ErrorText : google::protobuf::io::ErrorCollector {
  void AddError(int line, int column, const std::string& message) override {
    absl::StrAppend(&text, " line ", line + 1, ", column ", column + 1, ": ", message, ";");
  }
  std::string text;
};

}  // namespace

std::optional<uid_t> user_number(const std::string& name) {
  uid_t number = 0;
  if (absl::SimpleAtoi(name, &number)) return number;
  const passwd* const found = getpwnam(name.c_str());
  if (found == nullptr) return std::nullopt;
  return found->pw_uid;
}

std::optional<gid_t> group_number(const std::string& name) {
  gid_t number = 0;
  if (absl::SimpleAtoi(name, &number)) return number;
  const group* const found = getgrnam(name.c_str());
  if (found == nullptr) return std::nullopt;
  return found->gr_gid;
}

bool Policy::Grant::names(const Caller& caller) const {
  switch (caller.kind) {
    case Caller::Kind::kUser:
      return users.count(caller.peer.user) > 0 || std::any_of(caller.peer.groups.begin(), caller.peer.groups.end(),
                                                              [this](gid_t group) { return groups.count(group) > 0; });
    case Caller::Kind::kToken:
      return tokens.count(caller.subject) > 0;
    case Caller::Kind::kCertificate:
      return certificates.count(caller.subject) > 0;
    case Caller::Kind::kAnonymous:
      break;
  }
  return false;
}

absl::StatusOr<Policy> Policy::read(const std::string& file, const Tokens& tokens) {
  std::ifstream stream(file);
  const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream) return absl::NotFoundError(StrCat("--policy: ", file, " cannot be read"));
  v1::Policy wire;
  TextFormat::Parser parser;
  TextFormat::ParseInfoTree lines;
  ErrorText errors;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&lines);
  if (!parser.ParseFromString(text, &wire)) {
    return absl::InvalidArgumentError(StrCat("--policy: ", file, ":", errors.text));
  }

  Policy policy;
  const std::set<std::string> projects(wire.projects().begin(), wire.projects().end());
  const auto* const grants_field = v1::Policy::descriptor()->FindFieldByName("grants");
  for (int i = 0; i < wire.grants_size(); ++i) {
    const v1::Grant& from = wire.grants(i);
    const auto wrong = [&](const std::string& field, int index, const std::string& expected, const std::string& found) {
      // What is not there has the grant's own line.
      const auto* const in_grant = index < 0 ? nullptr : lines.GetTreeForNested(grants_field, i);
      const auto place = in_grant == nullptr
                             ? lines.GetLocation(grants_field, i)
                             : in_grant->GetLocation(v1::Grant::descriptor()->FindFieldByName(field), index);
      const int line = place.line;
      return absl::InvalidArgumentError(StrCat("--policy: ", file, ": ",
                                               line < 0 ? "" : StrCat("line ", line + 1, ": "), "grants.", field,
                                               ": expected ", expected, ", found ", found));
    };
    Grant to;
    for (int k = 0; k < from.projects_size(); ++k) {
      const std::string& project = from.projects(k);
      if (project != kAll && projects.count(project) == 0) {
        return wrong("projects", k, "\"*\" or one of `projects`", StrCat("\"", project, "\""));
      }
      to.projects.insert(project);
    }
    if (to.projects.empty()) return wrong("projects", -1, "at least one project", "none");
    for (int k = 0; k < from.roles_size(); ++k) {
      switch (from.roles(k)) {
        case v1::Grant::STREAM:
          to.roles.insert(Role::kStream);
          break;
        case v1::Grant::READ:
          to.roles.insert(Role::kRead);
          break;
        case v1::Grant::ADMIN:
          to.roles.insert(Role::kAdmin);
          break;
        default:
          return wrong("roles", k, "STREAM, READ or ADMIN", StrCat(from.roles(k)));
      }
    }
    if (to.roles.empty()) return wrong("roles", -1, "STREAM, READ or ADMIN", "none");
    for (int k = 0; k < from.users_size(); ++k) {
      const auto user = user_number(from.users(k));
      if (!user) return wrong("users", k, "a user of this machine", StrCat("\"", from.users(k), "\""));
      to.users.insert(*user);
    }
    for (int k = 0; k < from.groups_size(); ++k) {
      const auto group = group_number(from.groups(k));
      if (!group) return wrong("groups", k, "a group of this machine", StrCat("\"", from.groups(k), "\""));
      to.groups.insert(*group);
    }
    for (int k = 0; k < from.tokens_size(); ++k) {
      if (!tokens.holds(from.tokens(k))) {
        return wrong("tokens", k, "a name in --token-file", StrCat("\"", from.tokens(k), "\""));
      }
      to.tokens.insert(from.tokens(k));
    }
    to.certificates.insert(from.certificates().begin(), from.certificates().end());
    if (to.users.empty() && to.groups.empty() && to.tokens.empty() && to.certificates.empty()) {
      return wrong("users", -1, "somebody, among users, groups, tokens or certificates", "nobody");
    }
    policy.grants_.push_back(std::move(to));
  }
  return policy;
}

bool Policy::grants(const Caller& caller, Role role, const std::string& project) const {
  return std::any_of(grants_.begin(), grants_.end(), [&](const Grant& grant) {
    return grant.allows(role) && (grant.projects.count(kAll) > 0 || grant.projects.count(project) > 0) &&
           grant.names(caller);
  });
}

bool Policy::names(const Caller& caller) const {
  return std::any_of(grants_.begin(), grants_.end(), [&](const Grant& grant) { return grant.names(caller); });
}

std::set<std::string> Policy::readable(const Caller& caller) const {
  std::set<std::string> projects;
  for (const Grant& grant : grants_) {
    if (grant.allows(Role::kRead) && grant.names(caller)) projects.insert(grant.projects.begin(), grant.projects.end());
  }
  return projects;
}

}  // namespace plumbline
