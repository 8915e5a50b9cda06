#include "server/store/page_token.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

TEST(PageToken, ComesBack) {
  for (const std::string place : {"", "17", "default/a job"}) {
    const auto read = read_page_token("question", make_page_token("question", place));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, place);
  }
}

TEST(PageToken, BelongsToItsQuestion) {
  const auto read = read_page_token("another", make_page_token("question", "17"));
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PageToken, RefusesEveryDamage) {
  const std::string token = make_page_token("question", "1234567");
  for (std::size_t at = 0; at < token.size(); ++at) {
    std::string damaged = token;
    damaged[at] = damaged[at] == 'A' ? 'B' : 'A';
    EXPECT_EQ(read_page_token("question", damaged).status().code(), absl::StatusCode::kInvalidArgument) << damaged;
    const auto cut = read_page_token("question", token.substr(0, at));
    EXPECT_EQ(cut.status().code(), absl::StatusCode::kInvalidArgument) << at;
  }
  for (const std::string garbage : {"x", "not a token", "\xff\xfe", "========", "MTIzNDU2Nzg5MDEyMzQ1Njc4OTA"}) {
    EXPECT_EQ(read_page_token("question", garbage).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(PageToken, APlaceComesBackAndAnythingElseIsTheBeginning) {
  const ListPlace place = read_place(write_place({17, "0.25"}));
  EXPECT_EQ(place.sequence, 17);
  EXPECT_EQ(place.key, "0.25");
  for (const std::string text : {"", " ", "x", "99999999999999999999 1", "-"}) EXPECT_EQ(read_place(text).sequence, 0);
}

}  // namespace
}  // namespace plumbline
