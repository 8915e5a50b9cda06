// Every fuzz target over its corpus: what fuzzers reached, and what they once broke.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>

#include "tests/fuzz/steps.h"
#include "tests/fuzz/target.h"

namespace plumbline::fuzz {
namespace {

namespace fs = std::filesystem;

std::set<fs::path> files_of(const fs::path& directory) {
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) files.insert(entry.path());
  return files;
}

class Replay : public testing::TestWithParam<std::string> {};

TEST_P(Replay, OfTheCorpus) {
  const auto files = files_of(fs::path(CORPUS) / GetParam());
  ASSERT_FALSE(files.empty());
  const std::size_t before = audited_steps();
  for (const fs::path& file : files) {
    std::cout << file.filename().string() << std::endl;  // The last one is at fault where the program ends.
    std::ifstream stream(file, std::ios::binary);
    const std::string input((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
    ASSERT_FALSE(stream.bad());
    EXPECT_NO_THROW(targets().at(GetParam())(input)) << file;
  }
  EXPECT_NO_THROW(targets().at(GetParam())({}));
  const std::set<std::string> of_steps = {"formulas", "frames", "golden_file", "trace_file"};
  if (of_steps.count(GetParam()) > 0) {
    EXPECT_GT(audited_steps(), before) << "no input is a step that can be audited";
  }
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& [name, target] : targets()) names.push_back(name);
  return names;
}

// When main() has begun, so that every target is known.
INSTANTIATE_TEST_SUITE_P(Targets, Replay, testing::ValuesIn(names()), [](const auto& info) { return info.param; });

TEST(Replay, EveryCorpusHasItsTarget) {
  for (const fs::path& directory : files_of(CORPUS)) {
    EXPECT_EQ(targets().count(directory.filename().string()), 1u) << directory;
  }
}

}  // namespace
}  // namespace plumbline::fuzz
