// Trace files, as `plumb replay` sends them: read, judged, and reduced to an operation where one is suspected. The
// first byte of an input says what the rest is: 's': what a file seals (a header and frames), otherwise a whole file.
#include <xxhash.h>

#include "server/ingest/trace_file.h"
#include "server/pipeline/reproduce.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/steps.h"

namespace plumbline::fuzz {
namespace {

std::string sealed(std::string_view content) {
  std::string file = "PLTRACE2" + std::string(content);
  XXH64_canonical_t sum;
  XXH64_canonicalFromHash(&sum, XXH3_64bits(file.data(), file.size()));
  return file.append(reinterpret_cast<const char*>(sum.digest), sizeof sum.digest);
}

}  // namespace

PLUMBLINE_FUZZ_TARGET(trace_file) {
  if (input.empty() || input.size() > kInputMax) return;
  const std::string_view rest = input.substr(1);
  const MemoryFile file(input[0] == 's' ? sealed(rest) : std::string(rest));
  const auto record = read_trace_file(file.path(), {kStepBytesMax, kElementsMax, nullptr});
  if (!record.ok()) return require(!record.status().message().empty(), "a refusal says what was expected");
  const Verdict verdict = judge(*record);
  try {
    if (verdict.suspect) reproduce(*record, verdict, Profile());
  } catch (const std::runtime_error&) {  // Its operands cannot be had, or nothing bounds it.
  }
}

}  // namespace plumbline::fuzz
