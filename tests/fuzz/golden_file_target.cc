// Golden files, as `plumb golden import` sends them, and what is judged against them. The first byte of an input says
// what the rest is: 's': what a file seals, its records, each after its length; otherwise a whole file.
#include <stdlib.h>
#include <xxhash.h>

#include <filesystem>

#include "server/bound/pair/golden.h"
#include "server/ingest/golden_store.h"
#include "server/pipeline/audit.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/pieces.h"
#include "tests/fuzz/steps.h"
#include "tests/unit/ingest/frames_of_a_step.h"

namespace plumbline::fuzz {
namespace {

std::string sealed(std::string_view records) {
  std::string file = "PLGOLDN2";
  for (const std::string_view record : pieces(records)) {
    for (int i = 0; i < 4; ++i) file += static_cast<char>(record.size() >> (8 * i) & 0xff);
    file += record;
    XXH64_canonical_t sum;
    XXH64_canonicalFromHash(&sum, XXH3_64bits(record.data(), record.size()));
    file.append(reinterpret_cast<const char*>(sum.digest), sizeof sum.digest);
  }
  return file;
}

struct Folder {
  std::string path = (std::filesystem::temp_directory_path() / "golden.XXXXXX").string();
  Folder() { require(mkdtemp(path.data()) != nullptr, "a folder can be made"); }
  ~Folder() { std::filesystem::remove_all(path); }
};

// Whoever makes a golden file knows what the step is given: its leaves are those of the step.
void judge_against(GoldenStep golden) {
  static const auto trace = trace_of(frames_of_a_step(0));
  static const auto leaves = golden_step(*trace, Profile()).leaves;
  golden.leaves = leaves;
  require(first_foreign_leaf(*trace, golden).empty(), "equal leaves are equal");
  TraceRecord record;
  record.trace = trace;
  record.golden = std::make_shared<const GoldenStep>(std::move(golden));
  record.reference_name = "golden v1 step 0";
  judge(record);
}

}  // namespace

PLUMBLINE_FUZZ_TARGET(golden_file) {
  if (input.empty() || input.size() > kInputMax) return;
  static const Folder folder;
  GoldenStore store(folder.path);
  const std::string_view rest = input.substr(1);
  const MemoryFile file(input[0] == 's' ? sealed(rest) : std::string(rest));
  const auto may = [](const std::string&) { return absl::OkStatus(); };
  const auto imported = store.import(file.path(), "p", "golden", "uid:1", may);
  if (!imported.ok()) return require(!imported.status().message().empty(), "a refusal says what was expected");
  require(store.list("p").size() == 1, "what was imported is there");
  for (const v1::GoldenRecord& record : messages<v1::GoldenRecord>(rest)) {
    if (!record.has_step()) continue;
    const auto step = store.load("p", "golden", record.step().rank(), record.step().step());
    if (step.ok()) judge_against(**step);
  }
  require(store.export_to("p", "golden", [](const std::string&) { return true; }).ok(), "and can be exported again");
  require(store.remove("p", "golden").ok(), "and removed");
}

}  // namespace plumbline::fuzz
