#include "client/cpp/page/sources.h"

#include <google/protobuf/stubs/common.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kFileBytesMax = 4u << 20;
constexpr std::size_t kLineBytesMax = 400;
constexpr std::size_t kPlacesMax = 4;
constexpr int kLineMax = 10'000'000;

struct Named {
  std::string file;
  int line;
};

bool in_name(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' || c == '.';
}

// Every "NAME.py:LINE" in a text.
std::vector<Named> places(const std::string& text) {
  constexpr std::string_view kExtension = ".py:";
  std::vector<Named> found;
  for (std::size_t at = text.find(kExtension); at != std::string::npos; at = text.find(kExtension, at + 1)) {
    std::size_t begin = at;
    while (begin > 0 && in_name(text[begin - 1])) --begin;
    int line = 0;
    const char* digits = text.data() + at + kExtension.size();
    const auto read = std::from_chars(digits, text.data() + text.size(), line);
    if (begin == at || read.ec != std::errc() || line < 1 || line > kLineMax) continue;
    found.push_back({text.substr(begin, at + 3 - begin), line});
  }
  return found;
}

// A file may hold anything; what is shown is UTF-8.
std::string readable(std::string line) {
  if (!google::protobuf::internal::IsStructurallyValidUTF8(line.data(), static_cast<int>(line.size()))) {
    for (char& c : line) {
      if (static_cast<unsigned char>(c) >= 0x80) c = '?';
    }
  }
  return line;
}

}  // namespace

void Sources::list() {
  listed_ = true;
  std::error_code error;
  const auto skip = fs::directory_options::skip_permission_denied;  // Links to folders are not followed.
  int seen = 0;
  for (fs::recursive_directory_iterator at(folder_, skip, error), end; !error && at != end; at.increment(error)) {
    if (++seen > kFilesMax) {
      all_listed_ = false;
      return;
    }
    const std::string name = at->path().filename().string();
    std::error_code ignored;
    if (at->is_symlink(ignored)) continue;
    if (at->is_directory(ignored) && (name.front() == '.' || name == "__pycache__" || name == "node_modules")) {
      at.disable_recursion_pending();
    } else if (at->path().extension() == ".py" && at->is_regular_file(ignored)) {
      files_.emplace(name, at->path());
    }
  }
}

SourceLines Sources::read(const std::string& name, int line) {
  SourceLines found;
  found.place = absl::StrCat(name, ":", line);
  found.line = line;
  if (!listed_ && !folder_.empty()) list();
  const auto [first, last] = files_.equal_range(name);
  if (first == last) {
    found.missing =
        folder_.empty()
            ? "not asked for"
            : absl::StrCat("no ", name, " under ", folder_.string(),
                           all_listed_ ? "" : absl::StrCat(", of whose files ", kFilesMax, " were looked at"));
    return found;
  }
  if (std::next(first) != last) {
    found.missing = absl::StrCat(std::distance(first, last), " files under ", folder_.string(), " are called ", name);
    return found;
  }
  std::error_code error;
  if (fs::file_size(first->second, error) > kFileBytesMax || error) {
    found.missing = absl::StrCat(first->second.string(), ": not readable, or above 4 MiB");
    return found;
  }
  std::ifstream file(first->second);
  found.first = std::max(1, line - kContextLines);
  std::string text;
  for (int number = 1; number <= line + kContextLines && std::getline(file, text); ++number) {
    if (number >= found.first) found.lines.push_back(readable(text.substr(0, kLineBytesMax)));
  }
  if (static_cast<int>(found.lines.size()) <= line - found.first) {
    found.lines.clear();
    found.missing = absl::StrCat(first->second.string(), " has fewer lines than ", line);
  }
  return found;
}

std::vector<SourceLines> Sources::of(const v1::Verdict& verdict) {
  // As the judgement words it where it knows the operation in the other program.
  const std::string& detail = verdict.suspect_detail();
  const std::size_t other = detail.find("the reference has ");
  std::vector<SourceLines> found;
  for (const bool reference : {false, true}) {
    if (reference && other == std::string::npos) break;
    for (const Named& named : places(reference ? detail.substr(other) : verdict.suspect().source())) {
      const std::string place = absl::StrCat(named.file, ":", named.line);
      const bool known = std::any_of(found.begin(), found.end(), [&](const auto& each) { return each.place == place; });
      if (known || found.size() == kPlacesMax) continue;
      found.push_back(read(named.file, named.line));
      found.back().reference = reference;
    }
  }
  return found;
}

}  // namespace plumbline
