// What a policy file grants (proto/plumbline/v1/policy.proto).
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/access/caller.h"
#include "server/access/quota.h"
#include "server/access/tokens.h"

namespace plumbline {

// The number of a user or a group of this machine, by its name or as it stands.
std::optional<uid_t> user_number(const std::string& name);
std::optional<gid_t> group_number(const std::string& name);

enum class Role { kStream, kRead, kAdmin };

class Policy {
 public:
  // INVALID_ARGUMENT names file, line and field: no such syntax, project, user, group or token.
  static absl::StatusOr<Policy> read(const std::string& file, const Tokens& tokens);

  // Whether the caller has the role, or that of an administrator, in a project of this name.
  bool grants(const Caller& caller, Role role, const std::string& project) const;
  // Whether the caller has any role anywhere.
  bool names(const Caller& caller) const;
  // Projects that the caller may read; "*": all.
  std::set<std::string> readable(const Caller& caller) const;
  const std::set<std::string>& projects() const { return projects_; }  // That the file says there are.
  // What a project of this name may take.
  Quota quota(const std::string& project) const;

 private:
  struct Grant {
    std::set<std::string> projects;
    std::set<Role> roles;
    std::set<uid_t> users;
    std::set<gid_t> groups;
    std::set<std::string> tokens, certificates;

    bool names(const Caller& caller) const;
    bool allows(Role role) const { return roles.count(role) > 0 || roles.count(Role::kAdmin) > 0; }
  };
  std::set<std::string> projects_;
  std::vector<Grant> grants_;
  std::map<std::string, Quota> quotas_;  // By project, or "*".
};

}  // namespace plumbline
