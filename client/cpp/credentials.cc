#include "client/cpp/credentials.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace plumbline {
namespace {

using absl::StrCat;

std::string or_environment(const std::string& given, const char* name) {
  if (!given.empty()) return given;
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status read_file(const char* flag, const std::string& path, std::string* content) {
  if (path.empty()) return absl::OkStatus();
  std::ifstream file(path, std::ios::binary);
  content->assign((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return file ? absl::OkStatus() : absl::NotFoundError(StrCat(flag, ": cannot read ", path));
}

bool is_local(const std::string& address) {
  if (absl::StartsWith(address, "unix:")) return true;
  absl::string_view host = absl::string_view(address).substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" ||
         (absl::ConsumePrefix(&host, "127.") && std::all_of(host.begin(), host.end(), [](char c) {
            return absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '.';
          }));
}

}  // namespace

absl::StatusOr<Credentials> read_credentials(const CredentialFiles& files, const std::string& address) {
  Credentials read;
  const std::string authorities = or_environment(files.authorities, "PLUMBLINE_TLS_CA");
  const std::string certificate = or_environment(files.certificate, "PLUMBLINE_TLS_CERT");
  const std::string key = or_environment(files.key, "PLUMBLINE_TLS_KEY");
  const std::string wanted = or_environment(files.tls ? "1" : "", "PLUMBLINE_TLS");
  if (certificate.empty() != key.empty()) {
    return absl::InvalidArgumentError("--tls_cert, --tls_key: expected both, or neither, found one");
  }
  if (auto status = read_file("--tls_ca", authorities, &read.authorities); !status.ok()) return status;
  if (auto status = read_file("--tls_cert", certificate, &read.certificate); !status.ok()) return status;
  if (auto status = read_file("--tls_key", key, &read.key); !status.ok()) return status;
  read.tls = !absl::StartsWith(address, "unix:") &&
             (!authorities.empty() || !certificate.empty() || (!wanted.empty() && wanted != "0"));

  if (files.token.empty()) read.token = or_environment("", "PLUMBLINE_TOKEN");
  if (read.token.empty()) {
    const std::string file = or_environment(files.token, "PLUMBLINE_TOKEN_FILE");
    if (auto status = read_file("--token_file", file, &read.token); !status.ok()) return status;
    if (!file.empty() && absl::StripAsciiWhitespace(read.token).empty()) {
      return absl::InvalidArgumentError(StrCat("--token_file: ", file, ": expected a token, found none"));
    }
  }
  absl::StripAsciiWhitespace(&read.token);
  const bool legal = std::all_of(read.token.begin(), read.token.end(),
                                 [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
  if (!legal) {
    return absl::InvalidArgumentError(
        "--token_file: expected printable characters of ASCII without spaces, found others");
  }
  if (!read.token.empty() && !read.tls && !is_local(address)) {
    return absl::InvalidArgumentError(
        StrCat("--token_file: expected TLS, or an address on this machine, found \"", address, "\" without TLS"));
  }
  return read;
}

}  // namespace plumbline
