// Whose records a query may see.
#pragma once

#include <set>
#include <string>

namespace plumbline {

// All of them; otherwise those of runs that `owner` opened, and all of the projects named.
struct Visibility {
  bool all = true;
  std::string owner;
  std::set<std::string> projects;

  bool whole(const std::string& project) const { return all || projects.count(project) > 0; }
};

}  // namespace plumbline
