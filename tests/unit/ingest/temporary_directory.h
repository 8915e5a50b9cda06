#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace plumbline {

// Removed with all it holds at the end of the scope.
struct TemporaryDirectory {
  std::string path;
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "plumbline.XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path); }
};

}  // namespace plumbline
