#include "client/cpp/cli/output.h"

#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cpp/cli/plumb.h"
#include "client/cpp/names.h"

namespace plumbline {

int fail(std::ostream& err, const std::string& message) {
  std::string line = message;
  std::replace(line.begin(), line.end(), '\n', ' ');
  err << "plumb: " << line << "\n";
  return kExitError;
}

int fail(std::ostream& err, const absl::Status& status) {
  return fail(err, absl::StrCat(absl::StatusCodeToString(status.code()), ": ", std::string(status.message())));
}

std::string json_line(const google::protobuf::Message& message) {
  const auto line = to_json(message, /*defaults=*/true);
  return line.ok() ? *line + "\n" : absl::StrCat("{\"error\":\"", line.status().ToString(), "\"}\n");
}

}  // namespace plumbline
