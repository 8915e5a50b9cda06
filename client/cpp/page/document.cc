#include "client/cpp/page/document.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/page/files.h"

namespace plumbline {
namespace {

std::string joined(const std::vector<std::string_view>& parts) {
  std::string text;
  for (const std::string_view part : parts) text.append(part).append("\n");
  return text;
}

}  // namespace

std::string page_json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!status.ok()) text = absl::StrCat("{\"left_out\":[\"", status.ToString(), "\"]}");
  // These can only stand within strings.
  return absl::StrReplaceAll(text, {{"<", "\\u003c"}, {">", "\\u003e"}, {"&", "\\u0026"}});
}

std::string page_html(const page::Page& page) {
  // One pass: what is put in is not looked at again.
  return absl::StrReplaceAll(std::string(page_files::kDocument), {{"<!--styles-->", joined(page_files::kStyles)},
                                                                  {"<!--scripts-->", joined(page_files::kScripts)},
                                                                  {"<!--data-->", page_json(page)}});
}

}  // namespace plumbline
