#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace plumbline {

// A file of its own in `directory`, removed at the end of the scope.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& directory) : path_(directory + "/XXXXXX") {
    const int descriptor = mkstemp(path_.data());
    ok_ = descriptor >= 0;
    if (ok_) close(descriptor);
    file_.open(path_, std::ios::binary);
  }
  ~ScratchFile() {
    if (ok_) unlink(path_.c_str());
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  bool append(const std::string& bytes) {
    file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file_.good();
  }
  bool close_file() {
    file_.close();
    return ok_ && !file_.fail();
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::ofstream file_;
  bool ok_ = false;
};

}  // namespace plumbline
