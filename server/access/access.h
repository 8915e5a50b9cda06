// What a caller may do. Thread-safe.
//
// Who opens a run owns it: its verdicts and its traces. Without a policy everybody may open runs and sees his own. With
// one, it says who may open runs in which project, and who sees or handles those of others. Root and the daemon's own
// user may do everything: they could read the data directory.
#pragma once

#include <unistd.h>

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/access/caller.h"
#include "server/access/policy.h"
#include "server/access/tokens.h"
#include "server/store/visibility.h"

namespace plumbline {

class Access {
 public:
  struct Options {
    std::string policy;      // File; empty: none.
    std::string token_file;  // The same.
    uid_t daemon_user = geteuid();
  };

  // Errors name the flag, the file and the line.
  static absl::StatusOr<std::unique_ptr<Access>> open(const Options& options);
  // Reads the files again. Where one is wrong, both stay as they were.
  absl::Status reload();

  bool takes_tokens() const { return !options_.token_file.empty(); }
  // The caller of a token. UNAUTHENTICATED.
  absl::StatusOr<Caller> bearer(absl::string_view token) const;

  // UNAUTHENTICATED: the token that the caller came with was revoked, or has expired meanwhile.
  absl::Status still(const Caller& caller) const;

  bool may(const Caller& caller, Role role, const std::string& project) const;
  // PERMISSION_DENIED where a policy grants the caller nothing at all: he may not have computed what he sends.
  absl::Status check_known(const Caller& caller) const;
  // Whether the caller sees a run of this owner.
  bool sees(const Caller& caller, const std::string& project, const std::string& owner) const;
  // Whether the caller may go on with it, or remove it.
  bool handles(const Caller& caller, const std::string& project, const std::string& owner) const;
  Visibility seen_by(const Caller& caller) const;
  Quota quota(const std::string& project) const;  // What the project may take.
  std::set<std::string> projects() const;         // That the policy names; without a policy none.

  // PERMISSION_DENIED that names the caller, the role and the project, unless he may.
  absl::Status check(const Caller& caller, Role role, const std::string& project) const;

 private:
  struct Files {
    Tokens tokens;
    std::optional<Policy> policy;
  };
  explicit Access(Options options) : options_(std::move(options)) {}
  absl::StatusOr<std::shared_ptr<const Files>> read() const;
  std::shared_ptr<const Files> files() const;
  bool is_root(const Caller& caller) const;

  const Options options_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Files> files_;
};

}  // namespace plumbline
