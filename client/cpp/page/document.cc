#include "client/cpp/page/document.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cpp/names.h"
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
  const auto text = to_json(message, /*defaults=*/false);
  // These can only stand within strings.
  return absl::StrReplaceAll(text.ok() ? *text : absl::StrCat("{\"left_out\":[\"", text.status().ToString(), "\"]}"),
                             {{"<", "\\u003c"}, {">", "\\u003e"}, {"&", "\\u0026"}});
}

std::string page_html(const page::Page& page) {
  // One pass: what is put in is not looked at again.
  return absl::StrReplaceAll(std::string(page_files::kDocument), {{"<!--styles-->", joined(page_files::kStyles)},
                                                                  {"<!--scripts-->", joined(page_files::kScripts)},
                                                                  {"<!--data-->", page_json(page)}});
}

}  // namespace plumbline
