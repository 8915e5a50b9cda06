// Which records a query may see.
#pragma once

#include <cstdint>
#include <limits>
#include <set>
#include <string>

namespace plumbline {

// Verdicts of a history by their sequences, and by the daemons that judged them.
struct Part {
  std::int64_t after = 0;  // Exclusive.
  std::int64_t through = std::numeric_limits<std::int64_t>::max();
  std::string but_of;  // None of this daemon's; empty: of all.

  bool whole() const { return after == 0 && through == std::numeric_limits<std::int64_t>::max() && but_of.empty(); }
};

// All of them; otherwise those of runs that `owner` opened, and all of the projects named.
struct Visibility {
  bool all = true;
  std::string owner;
  std::set<std::string> projects;
  std::string node = {};  // Where the owner's runs are; empty: anywhere.
  Part part = {};         // Of the verdicts, whose ever they are.

  bool whole(const std::string& project) const { return all || projects.count(project) > 0; }
};

}  // namespace plumbline
