#include "client/cpp/cli/output.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cpp/cli/plumb.h"

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
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string line;
  const auto status = google::protobuf::util::MessageToJsonString(message, &line, options);
  return status.ok() ? line + "\n" : absl::StrCat("{\"error\":\"", status.ToString(), "\"}\n");
}

}  // namespace plumbline
