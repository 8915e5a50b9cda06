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
  auto one = use.add_stream("small", "job", &kind), two = use.add_stream("small", "job", &kind);
  ASSERT_TRUE(one.ok() && two.ok());
  const absl::Status third = use.add_stream("small", "job", &kind).status();
  EXPECT_STREQ(kind, "streams");
  EXPECT_EQ(third.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(third.message(),
            "project \"small\": expected at most 2 streams (quotas of --policy), found 2 and one more");
  EXPECT_EQ(quota_subject(third), "project:small");
  EXPECT_EQ(quota_subject(absl::ResourceExhaustedError("another")), "");
  std::vector<Hold> others;
  for (int i = 0; i < 100; ++i) others.push_back(*use.add_stream("large", "job", &kind));
  Hold copy = *two;
  two = Hold();
  EXPECT_FALSE(use.add_stream("small", "job", &kind).ok());
  copy.reset();
  EXPECT_TRUE(use.add_stream("small", "job", &kind).ok());

  auto step = use.add_step("small", "job", &kind);
  ASSERT_TRUE(step.ok());
  EXPECT_FALSE(use.add_step("small", "job", &kind).ok());
  EXPECT_STREQ(kind, "steps_queued");
  step = Hold();
  EXPECT_TRUE(use.add_step("small", "job", &kind).ok());
}

TEST(ProjectUse, VerdictsAreThoseThatWereCountedAndThoseThatCame) {
  std::uint64_t most = 5;
  int asked = 0;
  ProjectUse use([&](const std::string&) { return quota_of(Quota::kNone, Quota::kNone, most); }, [&] { ++asked; });
  const char* kind = "";
  const auto stream = use.add_stream("p", "job", &kind);
  const auto another = use.add_stream("p", "job", &kind);
  EXPECT_EQ(asked, 1) << "when the project becomes known";
  EXPECT_EQ(use.with_verdict_quota(), std::vector<std::string>{"p"});
  use.count_verdicts("p", 4);
  EXPECT_TRUE(use.add_step("p", "job", &kind).ok());
  use.add_verdict("p", "job");
  EXPECT_FALSE(use.add_step("p", "job", &kind).ok());
  EXPECT_STREQ(kind, "verdicts");
  most = 6;
  EXPECT_TRUE(use.add_step("p", "job", &kind).ok()) << "a new policy counts at once";
  use.count_verdicts("unknown", 1000);
  most = Quota::kNone;
  EXPECT_TRUE(use.with_verdict_quota().empty());
}

TEST(ProjectUse, JobsOfAProjectHaveLimitsOfTheirOwn) {
  Quota quota;
  quota.streams = 3;
  quota.job_streams = 2;
  quota.job_steps_queued = 1;
  ProjectUse use([&](const std::string&) { return quota; });
  const char* kind = "";
  std::vector<Hold> held = {*use.add_stream("p", "a", &kind), *use.add_stream("p", "a", &kind)};
  const absl::Status third = use.add_stream("p", "a", &kind).status();
  EXPECT_STREQ(kind, "job_streams");
  EXPECT_TRUE(absl::IsResourceExhausted(third));
  EXPECT_EQ(third.message(), "job \"p/a\": expected at most 2 job_streams (quotas of --policy), found 2 and one more");
  EXPECT_EQ(quota_subject(third), "job:p/a");
  held.push_back(*use.add_stream("p", "b", &kind));
  EXPECT_FALSE(use.add_stream("p", "b", &kind).ok());
  EXPECT_STREQ(kind, "streams") << "the project's own limit";
  held.push_back(*use.add_stream("another", "a", &kind));
  EXPECT_EQ(use.jobs("p").at("a").streams, 2u);

  auto step = use.add_step("p", "a", &kind);
  EXPECT_FALSE(use.add_step("p", "a", &kind).ok());
  EXPECT_STREQ(kind, "job_steps_queued");
  EXPECT_TRUE(use.add_step("p", "b", &kind).ok());
  held.clear();
  EXPECT_EQ(use.jobs("p").size(), 1u) << "of a, whose step is not answered";
  step = Hold();
  EXPECT_TRUE(use.jobs("p").empty());
  EXPECT_EQ(use.use("p").streams, 0u);
}

TEST(ProjectUse, VerdictsOfAJobAreItsOwn) {
  Quota quota;
  quota.job_verdicts = 2;
  int asked = 0;
  ProjectUse use([&](const std::string&) { return quota; }, [&] { ++asked; });
  const char* kind = "";
  const auto a = use.add_stream("p", "a", &kind), b = use.add_stream("p", "b", &kind);
  EXPECT_EQ(asked, 2) << "when each job becomes known";
  EXPECT_EQ(use.jobs_with_verdict_quota(), (std::vector<std::pair<std::string, std::string>>{{"p", "a"}, {"p", "b"}}));
  EXPECT_TRUE(use.with_verdict_quota().empty());
  use.count_verdicts("p", "a", 1);
  use.count_verdicts("p", "unknown", 9);
  EXPECT_TRUE(use.add_step("p", "a", &kind).ok());
  use.add_verdict("p", "a");
  EXPECT_FALSE(use.add_step("p", "a", &kind).ok());
  EXPECT_STREQ(kind, "job_verdicts");
  EXPECT_TRUE(use.add_step("p", "b", &kind).ok());
}

TEST(ProjectUse, HoldsMayOutliveIt) {
  Hold held;
  {
    ProjectUse use([](const std::string&) { return Quota{}; });
    const char* kind = "";
    held = *use.add_stream("p", "job", &kind);
  }
  held.reset();
}

}  // namespace
}  // namespace plumbline
