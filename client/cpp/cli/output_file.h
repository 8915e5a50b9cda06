// A file that a command writes.
#pragma once

#include <filesystem>
#include <fstream>

#include "absl/status/status.h"
#include "client/cpp/client.h"

namespace plumbline {

// A file that is at its path whole or not at all, and is touched when there is something to write only. A device or a
// pipe is written to as it is: a file that took its place would be none.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  bool begun() const { return begun_; }
  Client::Sink sink();    // Its functions are called while this lives.
  absl::Status commit();  // PERMISSION_DENIED names the path.

 private:
  const std::filesystem::path path_, part_;
  std::ofstream file_;
  bool begun_ = false;
};

}  // namespace plumbline
