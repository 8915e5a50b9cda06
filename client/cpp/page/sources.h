// Lines of the programs that verdicts speak of. A trace names a file without its folder, and traces come from whoever
// may stream to the daemon: only Python files under one folder that the user chose are read, and never through links.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "plumbline/v1/verdict.pb.h"

namespace plumbline {

struct SourceLines {
  std::string place;  // "train.py:41"
  bool reference = false;
  int line = 0;   // The one that the place names.
  int first = 0;  // Number of the first of `lines`.
  std::vector<std::string> lines;
  std::string missing;  // Why there are none; empty where there are.
};

// Not thread-safe. The folder is read once, with the first question.
class Sources {
 public:
  static constexpr int kFilesMax = 20'000;
  static constexpr int kContextLines = 3;  // On each side.

  // An empty folder: no file is read.
  explicit Sources(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Around what the suspect and its detail name: the target's place, then the reference's.
  std::vector<SourceLines> of(const v1::Verdict& verdict);

 private:
  void list();
  SourceLines read(const std::string& name, int line);

  const std::filesystem::path folder_;
  bool listed_ = false, all_listed_ = true;
  std::multimap<std::string, std::filesystem::path> files_;
};

}  // namespace plumbline
