// The profiles of a directory of text protobuf files (*.textproto, schema proto/plumbline/v1/profile.proto).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/profile.h"

namespace plumbline {

class ProfileRegistry {
 public:
  // Reads every *.textproto of the directory. Throws std::runtime_error naming file, line and field for a file that
  // does not parse, holds an unknown function, a negative or not finite figure, or a name twice.
  static ProfileRegistry load(const std::string& directory);

  const Profile* find(const std::string& name) const;  // Null if there is none.
  std::vector<std::string> names() const;

 private:
  std::map<std::string, Profile> profiles_;
};

}  // namespace plumbline
