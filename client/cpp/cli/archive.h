// The commands about what the daemon keeps of steps.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "client/cpp/cli/plumb.h"
#include "client/cpp/client.h"

namespace plumbline {

// Each takes the words after the command; returns the exit code.
int replay(Client& client, const PlumbOptions& options, const std::vector<std::string>& words, std::ostream& out,
           std::ostream& err);
int reproduce(Client& client, const PlumbOptions& options, const std::vector<std::string>& words, std::ostream& out,
              std::ostream& err);
// list | export NAME FILE | import FILE [NAME] | remove NAME
int golden(Client& client, const PlumbOptions& options, const std::vector<std::string>& words, std::ostream& out,
           std::ostream& err);
int export_trace(Client& client, const std::vector<std::string>& words, std::ostream& out, std::ostream& err);

}  // namespace plumbline
