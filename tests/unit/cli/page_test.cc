// What the page is filled with: limits, and what it says that it left out.
#include <gtest/gtest.h>

#include <future>

#include "client/cpp/page/collect.h"
#include "client/cpp/page/columns.h"
#include "client/cpp/page/document.h"
#include "tests/unit/cli/query_server.h"

namespace plumbline {
namespace {

constexpr std::size_t kPageBytesMax = 600'000;

class PageTest : public testing::Test {
 protected:
  // Many at once, as the store writes groups, and no more than it lets wait.
  void add(const std::string& job, std::int64_t count) {
    constexpr std::size_t kGroup = 1000;
    std::vector<std::future<absl::Status>> answers;
    for (std::int64_t step = 0; step < count; ++step) {
      Verdict verdict = sample_verdict(job, step, step == 5 ? Outcome::kTypeII : Outcome::kTypeI, 1.0 / 3, 1.0 / 7);
      verdict.deviation = 1e-7 / static_cast<double>(step + 3);
      verdict.envelope = 2e-7 / static_cast<double>(step + 3);
      verdict.math_resolution = 3e-13 / static_cast<double>(step + 3);
      verdict.exec_resolution = 5e-9 / static_cast<double>(step + 3);
      verdict.reference = "run reference step " + std::to_string(step);
      verdict.taps[1].drift = 1e-5 / static_cast<double>(step + 3);
      auto answer = std::make_shared<std::promise<absl::Status>>();
      answers.push_back(answer->get_future());
      server_.store().append(to_proto(verdict), {}, "",
                             [answer](const absl::Status& status) { answer->set_value(own(status)); });
      if (answers.size() < kGroup && step + 1 < count) continue;
      for (auto& each : answers) ASSERT_TRUE(each.get().ok());
      answers.clear();
    }
  }

  QueryServer server_;
  Client client_{server_.address()};
};

TEST_F(PageTest, AThousandStepsAreSmallAndWhole) {
  add("a", 1000);
  page::Page page;
  Collector collector(client_, "");
  ASSERT_TRUE(collector.job("", "a", false, &page).ok());
  const page::Job& job = page.job();
  EXPECT_EQ(job.left_out_size(), 0) << job.left_out(0);
  ASSERT_EQ(job.steps().step_size(), 1000);
  EXPECT_EQ(job.steps().step(999), 999);
  EXPECT_EQ(job.steps().deviation(999), 1e-7 / 1002);
  EXPECT_EQ(job.steps().drift(0), 1e-5 / 3);
  EXPECT_EQ(job.full(0).verdict().step(), 5) << "the TYPE_II first";
  EXPECT_EQ(job.steps().texts(static_cast<int>(job.steps().verdict(5))), "TYPE_II");
  EXPECT_LE(page_html(page).size(), kPageBytesMax);
}

TEST_F(PageTest, SaysWhatItLeavesOutOfManySteps) {
  add("a", 100'000);
  page::Page page;
  Collector collector(client_, "");
  ASSERT_TRUE(collector.job("", "a", false, &page).ok());
  ASSERT_EQ(page.job().left_out_size(), 1);
  EXPECT_EQ(
      page.job().left_out(0),
      "Of 100000 judged steps the last 1000 are shown, and of earlier ones 1 that are TYPE_II (1 TYPE_II in all).");
  EXPECT_EQ(page.job().steps().step(0), 5) << "an accused step is never left out for being old";
  EXPECT_EQ(page.job().steps().step(1), 99'000);
  EXPECT_EQ(page.job().full(0).verdict().step(), 5);
  EXPECT_LE(page_html(page).size(), kPageBytesMax);
}

TEST_F(PageTest, KeepsTheOperationsAroundWhereProgramsPart) {
  Verdict verdict = sample_verdict("a", 1, Outcome::kTypeII);
  verdict.alignment->operations.assign(256, verdict.alignment->operations[0]);
  for (std::size_t i = 0; i < 256; ++i) verdict.alignment->operations[i].elements = i;
  verdict.alignment->before = 1000;
  verdict.alignment->after = 20;
  verdict.alignment->parts = 250;
  ASSERT_TRUE(append(server_.store(), to_proto(verdict)).ok());
  page::Page page;
  Collector collector(client_, "");
  ASSERT_TRUE(collector.job("", "a", false, &page).ok());
  const v1::Alignment& shown = page.job().full(0).verdict().alignment();
  ASSERT_EQ(shown.operations_size(), 80);
  EXPECT_EQ(shown.operations(static_cast<int>(shown.parts())).elements(), 250u) << "the same operation";
  EXPECT_EQ(shown.before() + shown.after() + 80, 1000u + 20u + 256u) << "the rest is counted";
}

TEST_F(PageTest, KeepsTheTapsThatTellMost) {
  Verdict verdict = sample_verdict("a", 1, Outcome::kTypeII);
  verdict.taps.assign(100, verdict.taps[0]);
  for (std::size_t i = 0; i < verdict.taps.size(); ++i) {
    verdict.taps[i].name = "tap" + std::to_string(i);
    verdict.taps[i].outcome = i == 99 ? Outcome::kTypeII : Outcome::kTypeI;
    verdict.taps[i].surprise = i < 50 ? 2 : 1;
  }
  ASSERT_TRUE(append(server_.store(), to_proto(verdict)).ok());
  Collector collector(client_, "");
  const auto step = collector.step("default/a/run-1/0/1", false);
  ASSERT_TRUE(step.ok()) << step.status();
  ASSERT_EQ(step->verdict().taps_size(), 60);
  EXPECT_EQ(step->taps_left_out(), 40u);
  EXPECT_EQ(step->verdict().taps(0).name(), "tap0");
  EXPECT_EQ(step->verdict().taps(59).name(), "tap99");
}

TEST_F(PageTest, ListsJobsWithTheirLastVerdicts) {
  add("a", 100);
  ASSERT_TRUE(open_run(server_.store(), {"default", "b", "r", 0, 0}).ok());
  Collector collector(client_, "");
  for (int round = 0; round < 2; ++round) {  // The second from what it knows.
    page::Page page;
    ASSERT_TRUE(collector.jobs("", &page).ok());
    ASSERT_EQ(page.jobs_size(), 2);
    for (const page::JobRow& row : page.jobs()) EXPECT_EQ(row.recent_size(), row.summary().job() == "a" ? 60 : 0);
  }
}

TEST(Page, NamesCannotEndTheDataTheyStandIn) {
  page::Page page;
  page.mutable_job()->mutable_summary()->set_job("</script><img src=x onerror=alert(1)><!--data-->&amp;");
  const std::string html = page_html(page);
  EXPECT_EQ(html.find("<img"), std::string::npos);
  EXPECT_EQ(html.find("<!--data-->"), std::string::npos);
  EXPECT_NE(html.find("\\u003c/script\\u003e\\u003cimg"), std::string::npos);
  EXPECT_EQ(html.find("sourceMappingURL"), std::string::npos) << "a browser would ask for it";
}

TEST(Page, CutsTextBetweenCharacters) {
  EXPECT_EQ(cut("abc", 3), "abc");
  EXPECT_EQ(cut("ab\u00e9", 3), "ab\u2026");
  EXPECT_EQ(cut("ab\u00e9d", 4), "ab\u00e9\u2026");
}

}  // namespace
}  // namespace plumbline
