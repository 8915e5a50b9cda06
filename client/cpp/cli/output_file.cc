#include "client/cpp/cli/output_file.h"

#include "absl/strings/str_cat.h"

namespace plumbline {

namespace {

bool is_no_file(const std::filesystem::path& path) {
  std::error_code unknown;
  const auto status = std::filesystem::status(path, unknown);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

}  // namespace

OutputFile::OutputFile(std::filesystem::path path)
    : path_(std::move(path)), part_(path_.string() + (is_no_file(path_) ? "" : ".part")) {}

OutputFile::~OutputFile() {
  std::error_code ignored;
  if (begun_ && part_ != path_) std::filesystem::remove(part_, ignored);
}

Client::Sink OutputFile::sink() {
  return [this](const std::string& bytes) {
    if (!begun_) file_.open(part_, std::ios::binary | std::ios::trunc);
    begun_ = true;
    file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file_.good();
  };
}

absl::Status OutputFile::commit() {
  if (!begun_) return absl::OkStatus();
  file_.close();
  std::error_code error;
  if (!file_.fail() && part_ != path_) std::filesystem::rename(part_, path_, error);
  if (file_.fail() || error) return absl::PermissionDeniedError(absl::StrCat("cannot write to ", path_.string()));
  return absl::OkStatus();
}

}  // namespace plumbline
