// The profiles of a directory of text protobuf files (*.textproto, schema proto/plumbline/v1/profile.proto).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/profile.h"

namespace plumbline {

class ProfileRegistry {
 public:
  // Reads every *.textproto of the directory. Throws std::runtime_error naming file, line and field for a file that
  // read_profile refuses, and for a name that two files hold.
  static ProfileRegistry load(const std::string& directory);

  // Finds a profile by its name, options included in any order ("cuda-sm90+tf32+reduced"). It is null if there is none,
  // and where more than kMadeMax combinations of options were asked for. Lives as long as the registry. Thread-safe.
  const Profile* find(const std::string& name) const;
  std::vector<std::string> names() const;     // Without options.
  static std::vector<std::string> options();  // As they are written.

 private:
  static constexpr std::size_t kMadeMax = 4096;
  struct Made {
    std::mutex mutex;
    std::map<std::string, Profile> profiles;  // With their options, those sorted.
  };

  std::map<std::string, Profile> profiles_;
  std::unique_ptr<Made> made_ = std::make_unique<Made>();
};

}  // namespace plumbline
