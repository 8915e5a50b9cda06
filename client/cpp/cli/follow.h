// plumb follow: the verdicts of all daemons that publish to one stream, as they come.
#pragma once

#include <iosfwd>
#include <string>

#include "client/cpp/cli/plumb.h"
#include "plumbline/v1/query.pb.h"

namespace plumbline {

// Until a signal, or `count` verdicts, end it; what the filter names alone. Without an address in the options, the one
// that the daemon publishes to is asked for. Returns the exit code.
int follow(const PlumbOptions& options, const v1::Filter& filter, std::ostream& out, std::ostream& err);

}  // namespace plumbline
