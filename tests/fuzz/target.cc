#include "tests/fuzz/target.h"

#include <google/protobuf/stubs/logging.h>

#include <cstdio>
#include <cstdlib>

namespace plumbline::fuzz {
namespace {

// What parsers say of most inputs.
[[maybe_unused]] const auto silenced = google::protobuf::SetLogHandler(nullptr);

}  // namespace

std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> all;
  return all;
}

void require(bool held, const char* sentence) {
  if (held) return;
  std::fprintf(stderr, "fuzz: %s\n", sentence);
  std::abort();
}

}  // namespace plumbline::fuzz
