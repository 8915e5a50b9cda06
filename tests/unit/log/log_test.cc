#include "server/log/log.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <sstream>

namespace plumbline {
namespace {

// A line of JSON with every digit of its time made zero.
std::string at_zero(std::string line) {
  const auto end = line.begin() + std::min(line.size(), line.find(','));
  std::replace_if(
      line.begin(), end, [](unsigned char c) { return std::isdigit(c); }, '0');
  return line;
}

class LogTest : public ::testing::Test {
 protected:
  void begin(LogFormat format, LogLevel level = LogLevel::kInfo) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(written_);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("", sink));
    set_log(format, level);
  }
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    std::istringstream text(written_.str());
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  }
  std::ostringstream written_;
};

TEST_F(LogTest, TextIsOneLineWhateverComes) {
  begin(LogFormat::kText);
  log_event(LogLevel::kInfo, "text", {{"run", "p/j/r/0"}, {"says", "two words\nand a \"line\""}, {"empty", ""}});
  ASSERT_EQ(lines().size(), 1u);
  EXPECT_NE(lines()[0].find(R"([info] text run=p/j/r/0 says="two words\u000aand a \"line\"" empty="")"),
            std::string::npos)
      << lines()[0];
}

TEST_F(LogTest, JsonIsOneObjectALine) {
  begin(LogFormat::kJson);
  log_event(LogLevel::kWarning, "json", {{"run", "p/j/r/0"}, {"says", "a \"quote\", \\ and \xff"}});
  spdlog::info("a line of {}", "somebody else's");
  ASSERT_EQ(lines().size(), 2u);
  EXPECT_EQ(at_zero(lines()[0]),
            R"({"time":"0000-00-00T00:00:00.000Z","level":"warning","event":"json","run":"p/j/r/0",)"
            R"("says":"a \"quote\", \\ and \u00ff"})");
  EXPECT_EQ(at_zero(lines()[1]),
            R"({"time":"0000-00-00T00:00:00.000Z","level":"info","message":"a line of somebody else's"})");
}

TEST_F(LogTest, LevelsAreKept) {
  begin(LogFormat::kText, LogLevel::kError);
  log_event(LogLevel::kWarning, "levels", {});
  EXPECT_TRUE(lines().empty());
  log_event(LogLevel::kError, "levels", {});
  EXPECT_EQ(lines().size(), 1u);
}

TEST_F(LogTest, AnEventCannotFillADisk) {
  begin(LogFormat::kText);
  for (std::size_t i = 0; i < 10 * kEventLinesMax; ++i) log_event(LogLevel::kInfo, "often", {});
  EXPECT_EQ(lines().size(), kEventLinesMax);
  log_event(LogLevel::kInfo, "seldom", {});
  EXPECT_EQ(lines().size(), kEventLinesMax + 1) << "another event has its own share";
}

}  // namespace
}  // namespace plumbline
