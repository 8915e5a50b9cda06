#include "server/access/project_use.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

using Hold = ProjectUse::Hold;

Quota quota_of(std::uint64_t streams, std::uint64_t steps, std::uint64_t verdicts) {
  Quota quota;
  quota.streams = streams;
  quota.steps_queued = steps;
  quota.verdicts = verdicts;
  return quota;
}

TEST(ProjectUse, HoldsEndWithTheirLastCopyAndProjectsDoNotMeet) {
  ProjectUse use(
      [](const std::string& project) { return project == "small" ? quota_of(2, 1, Quota::kNone) : Quota{}; });
  const char* kind = "";
  auto one = use.add_stream("small", &kind), two = use.add_stream("small", &kind);
  ASSERT_TRUE(one.ok() && two.ok());
  const absl::Status third = use.add_stream("small", &kind).status();
  EXPECT_STREQ(kind, "streams");
  EXPECT_EQ(third.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(third.message(),
            "project \"small\": expected at most 2 streams (quotas of --policy), found 2 and one more");
  EXPECT_EQ(quota_subject(third), "project:small");
  EXPECT_EQ(quota_subject(absl::ResourceExhaustedError("another")), "");
  std::vector<Hold> others;
  for (int i = 0; i < 100; ++i) others.push_back(*use.add_stream("large", &kind));
  Hold copy = *two;
  two = Hold();
  EXPECT_FALSE(use.add_stream("small", &kind).ok());
  copy.reset();
  EXPECT_TRUE(use.add_stream("small", &kind).ok());

  auto step = use.add_step("small", &kind);
  ASSERT_TRUE(step.ok());
  EXPECT_FALSE(use.add_step("small", &kind).ok());
  EXPECT_STREQ(kind, "steps_queued");
  step = Hold();
  EXPECT_TRUE(use.add_step("small", &kind).ok());
}

TEST(ProjectUse, VerdictsAreThoseThatWereCountedAndThoseThatCame) {
  std::uint64_t most = 5;
  int asked = 0;
  ProjectUse use([&](const std::string&) { return quota_of(Quota::kNone, Quota::kNone, most); }, [&] { ++asked; });
  const char* kind = "";
  const auto stream = use.add_stream("p", &kind);
  const auto another = use.add_stream("p", &kind);
  EXPECT_EQ(asked, 1) << "when the project becomes known";
  EXPECT_EQ(use.with_verdict_quota(), std::vector<std::string>{"p"});
  use.count_verdicts("p", 4);
  EXPECT_TRUE(use.add_step("p", &kind).ok());
  use.add_verdict("p");
  EXPECT_FALSE(use.add_step("p", &kind).ok());
  EXPECT_STREQ(kind, "verdicts");
  most = 6;
  EXPECT_TRUE(use.add_step("p", &kind).ok()) << "a new policy counts at once";
  use.count_verdicts("unknown", 1000);
  most = Quota::kNone;
  EXPECT_TRUE(use.with_verdict_quota().empty());
}

TEST(ProjectUse, HoldsMayOutliveIt) {
  Hold held;
  {
    ProjectUse use([](const std::string&) { return Quota{}; });
    const char* kind = "";
    held = *use.add_stream("p", &kind);
  }
  held.reset();
}

}  // namespace
}  // namespace plumbline
