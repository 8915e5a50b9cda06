// What every command of plumb prints alike.
#pragma once

#include <google/protobuf/message.h>

#include <iosfwd>
#include <string>

#include "absl/status/status.h"

namespace plumbline {

// One line on `err`; the exit code of errors.
int fail(std::ostream& err, const std::string& message);
int fail(std::ostream& err, const absl::Status& status);

// One line of protobuf's JSON, with the fields' names as in the .proto files (grpcurl prints these too), defaults
// included, and short names of enums' values (grpcurl prints whole ones).
std::string json_line(const google::protobuf::Message& message);

}  // namespace plumbline
