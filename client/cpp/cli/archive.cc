#include "client/cpp/cli/archive.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cpp/cli/output.h"
#include "client/cpp/cli/output_file.h"
#include "client/cpp/format.h"

namespace plumbline {
namespace {

using absl::StrCat;

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
  out << (options.json ? json_line(explanation->verdict()) : explain_verdict(explanation->verdict(), options.style));
  return exit_code(explanation->verdict().verdict());
}

int reproduce(Client& client, const PlumbOptions& options, const std::vector<std::string>& words, std::ostream& out,
              std::ostream& err) {
  if (words.size() != 1) return fail(err, StrCat("reproduce: expected a file or a verdict's id, found ", words.size()));
  const std::filesystem::path script = options.output;
  if (script.extension() != ".py") {
    return fail(err, StrCat("-o: expected a file NAME.py to write, found \"", options.output, "\""));
  }
  Named named;
  if (const absl::Status found = find(words[0], &named); !found.ok()) return fail(err, found);
  std::filesystem::path beside = script;
  beside.replace_extension(".bin");
  OutputFile text(script), data(beside);
  absl::Status written = client.reproduce(named.id, named.source(), options.profile, text.sink(), data.sink());
  if (written.ok()) written = data.commit();
  if (written.ok()) written = text.commit();
  if (!written.ok()) return fail(err, written);
  out << script.string() << (data.begun() ? " " + beside.string() : "") << "\n";
  return kExitTypeI;
}

int export_trace(Client& client, const std::vector<std::string>& words, std::ostream& out, std::ostream& err) {
  if (words.size() != 2) {
    return fail(err, StrCat("export-trace: expected a verdict's id and a file, found ", words.size()));
  }
  OutputFile file(words[1]);
  absl::Status written = client.export_trace(words[0], file.sink());
  if (written.ok()) written = file.commit();
  if (!written.ok()) return fail(err, written);
  out << words[1] << "\n";
  return kExitTypeI;
}

int golden(Client& client, const PlumbOptions& options, const std::vector<std::string>& words, std::ostream& out,
           std::ostream& err) {
  const std::string verb = words.empty() ? "" : words[0];
  const std::size_t arguments = words.empty() ? 0 : words.size() - 1;
  v1::GoldenName named;
  named.set_project(options.project);
  if (verb == "list" && arguments == 0) {
    const auto found = client.golden(options.project);
    if (!found.ok()) return fail(err, found.status());
    if (!options.json) out << format_golden(*found);
    for (const v1::GoldenSummary& each : *found) out << (options.json ? json_line(each) : "");
    return kExitTypeI;
  }
  if (verb == "export" && arguments == 2) {
    named.set_name(words[1]);
    OutputFile file(words[2]);
    absl::Status written = client.export_golden(named, file.sink());
    if (written.ok()) written = file.commit();
    if (!written.ok()) return fail(err, written);
    out << words[2] << "\n";
    return kExitTypeI;
  }
  if (verb == "import" && (arguments == 1 || arguments == 2)) {
    if (arguments == 2) named.set_name(words[2]);
    Named file;
    file.file.open(words[1], std::ios::binary);
    if (!file.file) return fail(err, StrCat("cannot read ", words[1]));
    const auto imported = client.import_golden(named, file.source());
    if (!imported.ok()) return fail(err, imported.status());
    out << (options.json ? json_line(*imported) : format_golden({*imported}));
    return kExitTypeI;
  }
  if (verb == "remove" && arguments == 1) {
    named.set_name(words[1]);
    const absl::Status removed = client.remove_golden(named);
    return removed.ok() ? kExitTypeI : fail(err, removed);
  }
  return fail(err, "golden: expected list, export NAME FILE, import FILE [NAME] or remove NAME");
}

}  // namespace plumbline
