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

// The least that a limit may be: less would refuse every stream, and every step.
constexpr std::uint64_t kBytesMin = 1u << 20;

struct Limit {
  const char* field;
  std::uint64_t Quota::*of_quota;
  bool (v1::Quota::*given)() const;
  std::uint64_t (v1::Quota::*value)() const;
  std::uint64_t least;
};
constexpr Limit kLimits[] = {
    {"streams", &Quota::streams, &v1::Quota::has_streams, &v1::Quota::streams, 1},
    {"bytes_in_flight", &Quota::bytes_in_flight, &v1::Quota::has_bytes_in_flight, &v1::Quota::bytes_in_flight,
     kBytesMin},
    {"steps_queued", &Quota::steps_queued, &v1::Quota::has_steps_queued, &v1::Quota::steps_queued, 1},
    {"verdicts", &Quota::verdicts, &v1::Quota::has_verdicts, &v1::Quota::verdicts, 1},
    {"kept_trace_bytes", &Quota::kept_trace_bytes, &v1::Quota::has_kept_trace_bytes, &v1::Quota::kept_trace_bytes,
     kBytesMin},
    {"job_streams", &Quota::job_streams, &v1::Quota::has_job_streams, &v1::Quota::job_streams, 1},
    {"job_bytes_in_flight", &Quota::job_bytes_in_flight, &v1::Quota::has_job_bytes_in_flight,
     &v1::Quota::job_bytes_in_flight, kBytesMin},
    {"job_steps_queued", &Quota::job_steps_queued, &v1::Quota::has_job_steps_queued, &v1::Quota::job_steps_queued, 1},
    {"job_verdicts", &Quota::job_verdicts, &v1::Quota::has_job_verdicts, &v1::Quota::job_verdicts, 1},
    {"job_kept_trace_bytes", &Quota::job_kept_trace_bytes, &v1::Quota::has_job_kept_trace_bytes,
     &v1::Quota::job_kept_trace_bytes, kBytesMin}};

// Errors of a message in the file, with the line of what is wrong in it; what is not there has the message's own line.
class Wrong {
 public:
  Wrong(const std::string& file, const TextFormat::ParseInfoTree& lines, const char* name, int number)
      : file_(file), lines_(lines), name_(name), number_(number) {}

  absl::Status operator()(const char* field, int index, const std::string& expected, const std::string& found) const {
    const auto* const outer = v1::Policy::descriptor()->FindFieldByName(name_);
    const auto* const inner = index < 0 ? nullptr : lines_.GetTreeForNested(outer, number_);
    // The location of a field that is not repeated has the index -1.
    const auto* const wanted = outer->message_type()->FindFieldByName(field);
    const int line = inner == nullptr ? lines_.GetLocation(outer, number_).line
                                      : inner->GetLocation(wanted, wanted->is_repeated() ? index : -1).line;
    return absl::InvalidArgumentError(StrCat("--policy: ", file_, ": ", line < 0 ? "" : StrCat("line ", line + 1, ": "),
                                             name_, ".", field, ": expected ", expected, ", found ", found));
  }

 private:
  const std::string& file_;
  const TextFormat::ParseInfoTree& lines_;
  const char* const name_;
  const int number_;
};

absl::Status read_quota(const v1::Quota& from, const std::set<std::string>& projects, const Wrong& wrong,
                        std::map<std::string, Quota>* quotas) {
  Quota quota;
  bool limited = false;
  for (const Limit& limit : kLimits) {
    if (!(from.*limit.given)()) continue;
    const std::uint64_t value = (from.*limit.value)();
    if (value < limit.least) return wrong(limit.field, 0, StrCat("at least ", limit.least), StrCat(value));
    quota.*limit.of_quota = value;
    limited = true;
  }
  if (!limited) {
    return wrong("streams", -1,
                 "a limit, of streams, bytes_in_flight, steps_queued, verdicts or kept_trace_bytes, or of a job's",
                 "none");
  }
  if (from.projects().empty()) return wrong("projects", -1, "at least one project", "none");
  for (int k = 0; k < from.projects_size(); ++k) {
    const std::string& project = from.projects(k);
    if (project != kAll && projects.count(project) == 0) {
      return wrong("projects", k, "\"*\" or one of `projects`", StrCat("\"", project, "\""));
    }
    if (!quotas->emplace(project, quota).second) {
      return wrong("projects", k, "a project of one quota", StrCat("another of \"", project, "\""));
    }
  }
  return absl::OkStatus();
}

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
  policy.projects_.insert(wire.projects().begin(), wire.projects().end());
  const std::set<std::string>& projects = policy.projects_;
  for (int i = 0; i < wire.grants_size(); ++i) {
    const v1::Grant& from = wire.grants(i);
    const Wrong wrong(file, lines, "grants", i);
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
  for (int i = 0; i < wire.quotas_size(); ++i) {
    const auto read = read_quota(wire.quotas(i), projects, Wrong(file, lines, "quotas", i), &policy.quotas_);
    if (!read.ok()) return read;
  }
  return policy;
}

Quota Policy::quota(const std::string& project) const {
  auto found = quotas_.find(project);
  if (found == quotas_.end()) found = quotas_.find(kAll);
  return found == quotas_.end() ? Quota{} : found->second;
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
