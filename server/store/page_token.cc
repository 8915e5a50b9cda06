#include "server/store/page_token.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace plumbline {
namespace {

constexpr std::size_t kCheckBytes = 16;

// A digest of the token's version, the question and the place, as 16 hexadecimal digits. It is no secret: a token gives
// access to nothing that the query itself would not show.
std::string check(const std::string& question, const std::string& place) {
  const std::string text = absl::StrCat("plumbline page 1:", question.size(), ":", question, place);
  return absl::StrCat(absl::Hex(XXH64(text.data(), text.size(), 0), absl::kZeroPad16));
}

}  // namespace

std::string make_page_token(const std::string& question, const std::string& place) {
  return absl::WebSafeBase64Escape(check(question, place) + place);
}

absl::StatusOr<std::string> read_page_token(const std::string& question, const std::string& token) {
  std::string text;
  if (absl::WebSafeBase64Unescape(token, &text) && text.size() >= kCheckBytes) {
    std::string place = text.substr(kCheckBytes);
    if (text.substr(0, kCheckBytes) == check(question, place)) return place;
  }
  return absl::InvalidArgumentError(
      "page_token: expected the next_page_token of an earlier answer to the same question, found another text");
}

std::string write_place(const ListPlace& place) {
  const std::string text = absl::StrCat(place.sequence, " ", place.key);
  return place.cut.empty() ? text : absl::StrCat(text, " ", place.own ? "own" : "shared", " ", place.cut);
}

ListPlace read_place(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ' ');
  ListPlace place;
  if (!absl::SimpleAtoi(parts[0], &place.sequence)) place.sequence = 0;
  if (parts.size() > 1) place.key = parts[1];
  if (parts.size() > 3) {
    place.own = parts[2] == "own";
    place.cut = parts[3];
  }
  return place;
}

}  // namespace plumbline
