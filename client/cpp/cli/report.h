// The commands that make pages.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "client/cpp/cli/plumb.h"
#include "client/cpp/client.h"

namespace plumbline {

// `plumb report JOB -o FILE`: one job as one HTML file. With --project: a job of it, otherwise of "default".
int report(Client& client, const PlumbOptions& options, const std::vector<std::string>& words, std::ostream& out,
           std::ostream& err);

// `plumb ui`: serves the same page live on a port of 127.0.0.1, until SIGINT or SIGTERM. Prints its address, which
// holds a secret: other users of the machine reach the port too.
int ui(const PlumbOptions& options, std::ostream& out, std::ostream& err);

}  // namespace plumbline
