#include "server/access/tokens.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace plumbline {
namespace {

using absl::StrCat;

constexpr std::size_t kNameBytesMax = 128;

bool legal_name(absl::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
}

bool is_hash(absl::string_view text) {
  return text.size() == 2 * SHA256_DIGEST_LENGTH && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isxdigit(static_cast<unsigned char>(c));
         });
}

}  // namespace

absl::StatusOr<Tokens> Tokens::read(const std::string& file) {
  struct stat info {};
  if (stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::NotFoundError(StrCat("--token-file: expected a file, found none at ", file));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::PermissionDeniedError(
        StrCat("--token-file: ", file, ": expected that its owner alone can write it, found that others can"));
  }
  if (static_cast<std::size_t>(info.st_size) > kFileBytesMax) {
    return absl::InvalidArgumentError(
        StrCat("--token-file: ", file, ": expected at most ", kFileBytesMax, " bytes, found ", info.st_size));
  }
  std::ifstream stream(file);
  const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream) return absl::PermissionDeniedError(StrCat("--token-file: ", file, " cannot be read"));

  Tokens tokens;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view content = absl::StripAsciiWhitespace(line);
    if (content.empty() || content.front() == '#') continue;
    // What a line holds is not quoted: somebody may have written the token itself.
    const auto wrong = [&](absl::string_view expected) {
      return absl::InvalidArgumentError(StrCat("--token-file: ", file, ": line ", number, ": expected ", expected));
    };
    const std::vector<absl::string_view> words =
        absl::StrSplit(content, absl::ByAnyChar(" \t"), absl::SkipWhitespace());
    if (words.size() < 2 || words.size() > 3 || !legal_name(words[0])) {
      return wrong("NAME HASH, or NAME HASH TIME, the name of characters of [A-Za-z0-9._-]");
    }
    if (!is_hash(words[1])) return wrong("the token's SHA-256 as 64 hexadecimal digits");
    Entry entry;
    entry.name = std::string(words[0]);
    const std::string bytes = absl::HexStringToBytes(words[1]);
    std::copy(bytes.begin(), bytes.end(), entry.hash.begin());
    if (words.size() == 3 && !absl::ParseTime(absl::RFC3339_full, words[2], &entry.expires, nullptr)) {
      return wrong("a time such as 2027-01-01T00:00:00Z, at which the token ends");
    }
    if (tokens.holds(entry.name)) return wrong("a name that no earlier line has");
    if (tokens.entries_.size() >= kTokensMax) return wrong(StrCat("at most ", kTokensMax, " tokens"));
    tokens.entries_.push_back(std::move(entry));
  }
  return tokens;
}

absl::StatusOr<std::string> Tokens::find(absl::string_view token, absl::Time now) const {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> hash;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), hash.data());
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    if (CRYPTO_memcmp(entry.hash.data(), hash.data(), hash.size()) == 0) found = &entry;
  }
  if (found == nullptr) {
    return absl::UnauthenticatedError("authorization: expected a token that the daemon knows, found another");
  }
  if (now >= found->expires) {
    return absl::UnauthenticatedError(
        StrCat("authorization: expected a token that is valid, found one that expired at ",
               absl::FormatTime(absl::RFC3339_sec, found->expires, absl::UTCTimeZone())));
  }
  return found->name;
}

bool Tokens::valid(absl::string_view name, absl::Time now) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return entry.name == name && now < entry.expires; });
}

bool Tokens::holds(absl::string_view name) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.name == name; });
}

}  // namespace plumbline
