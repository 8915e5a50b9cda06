#include "client/cpp/cli/archive.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cpp/cli/output.h"

namespace plumbline {
namespace {

using absl::StrCat;

// What `fill` gives, at `path` whole or not at all.
absl::Status write_file(const std::string& path, const std::function<absl::Status(const Client::Sink&)>& fill) {
  const std::string part = path + ".part";
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  const absl::Status filled = fill([&file](const std::string& bytes) {
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file.good();
  });
  file.close();
  std::error_code error;
  if (filled.ok() && !file.fail()) {
    std::filesystem::rename(part, path, error);
    if (!error) return absl::OkStatus();
  }
  std::error_code ignored;
  std::filesystem::remove(part, ignored);
  return filled.ok() ? absl::PermissionDeniedError(StrCat("cannot write to ", path)) : filled;
}

// A trace that the user names: a verdict's id, or a file that is there.
struct Named {
  std::string id;
  std::ifstream file;
  Client::Source source() {
    return [this](std::string* bytes) {
      constexpr std::size_t kChunkBytes = 1u << 20;
      bytes->resize(kChunkBytes);
      file.read(bytes->data(), static_cast<std::streamsize>(kChunkBytes));
      bytes->resize(static_cast<std::size_t>(file.gcount()));
      return !bytes->empty();
    };
  }
};

absl::Status find(const std::string& word, Named* named) {
  std::error_code error;
  if (std::filesystem::is_regular_file(word, error)) {
    named->file.open(word, std::ios::binary);
    return named->file ? absl::OkStatus() : absl::PermissionDeniedError(StrCat("cannot read ", word));
  }
  if (std::count(word.begin(), word.end(), '/') != 4 || word.front() == '/') {
    return absl::NotFoundError(
        StrCat("\"", word, "\" is neither a file nor the id of a verdict (project/job/run/rank/step)"));
  }
  named->id = word;
  return absl::OkStatus();
}

}  // namespace

int replay(Client& client, const PlumbOptions& options, const std::vector<std::string>& words, std::ostream& out,
           std::ostream& err) {
  if (words.size() != 1) return fail(err, StrCat("replay: expected a file or a verdict's id, found ", words.size()));
  Named named;
  if (const absl::Status found = find(words[0], &named); !found.ok()) return fail(err, found);
  const auto explanation = client.replay(named.id, named.source(), options.profile);
  if (!explanation.ok()) return fail(err, explanation.status());
  out << (options.json ? json_line(explanation->verdict()) : explanation->text());
  return exit_code(explanation->verdict().verdict());
}

int export_trace(Client& client, const std::vector<std::string>& words, std::ostream& out, std::ostream& err) {
  if (words.size() != 2) {
    return fail(err, StrCat("export-trace: expected a verdict's id and a file, found ", words.size()));
  }
  const absl::Status written =
      write_file(words[1], [&](const Client::Sink& sink) { return client.export_trace(words[0], sink); });
  if (!written.ok()) return fail(err, written);
  out << words[1] << "\n";
  return kExitTypeI;
}

}  // namespace plumbline
