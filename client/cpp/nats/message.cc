#include "client/cpp/nats/message.h"

#include <xxhash.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

constexpr std::string_view kSubjectStart = "plumbline.verdicts.";

// What a stranger wrote, fit for a line.
std::string shown(std::string_view text) {
  constexpr std::size_t kShownMax = 80;
  std::string line(text.substr(0, kShownMax));
  for (char& c : line) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return line;
}

}  // namespace

std::string message_subject(const std::string& node) { return absl::StrCat(std::string(kSubjectStart), node); }

std::string message_id(const v1::Verdict& verdict) {
  std::string named = verdict.id();
  named += '\0';
  named += verdict.digest();
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, XXH3_128bits(named.data(), named.size()));
  std::string digits;
  for (const unsigned char byte : bytes.digest) absl::StrAppend(&digits, absl::Hex(byte, absl::kZeroPad2));
  return digits;
}

absl::StatusOr<PublishedVerdict> read_message(std::string_view subject,
                                              const std::function<std::string(const char* name)>& header,
                                              std::string_view body) {
  const auto stranger = [](const std::string& why) { return absl::InvalidArgumentError(why); };
  PublishedVerdict read;
  if (subject.substr(0, kSubjectStart.size()) != kSubjectStart || subject.size() == kSubjectStart.size()) {
    return stranger(absl::StrCat("expected a subject ", kStreamSubjects, ", found \"", shown(subject), "\""));
  }
  read.node = subject.substr(kSubjectStart.size());
  const std::string kind = header(kMessageHeader), sequence = header(kSequenceHeader);
  read.whole = kind == kWholeVerdict;
  if (!read.whole && kind != kVerdictSummary) {
    return stranger(absl::StrCat(kMessageHeader, ": expected ", kWholeVerdict, ", found \"", shown(kind), "\""));
  }
  if (!absl::SimpleAtoi(sequence, &read.sequence) || read.sequence <= 0) {
    return stranger(absl::StrCat(kSequenceHeader, ": expected a number above 0, found \"", shown(sequence), "\""));
  }
  if (!read.verdict.ParseFromArray(body.data(), static_cast<int>(body.size())) || read.verdict.id().empty() ||
      read.verdict.digest().empty()) {
    return stranger(absl::StrCat("expected a verdict, found ", body.size(), " bytes that are none"));
  }
  return read;
}

}  // namespace plumbline
