#include "client/cpp/cli/plumb.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "client/cpp/format.h"
#include "client/cpp/text_table.h"
#include "tests/unit/cli/query_server.h"

namespace plumbline {
namespace {

struct Ran {
  int code;
  std::string out, err;
};

Ran run(const std::string& address, const std::vector<std::string>& arguments, PlumbOptions options = {}) {
  options.server = address;
  std::ostringstream out, err;
  const int code = run_plumb(arguments, options, out, err);
  return {code, out.str(), err.str()};
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> found;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) found.push_back(line);
  return found;
}

class PlumbTest : public testing::Test {
 protected:
  void add(const std::string& job, std::int64_t step, Outcome outcome) {
    ASSERT_TRUE(append(server_.store(), to_proto(sample_verdict(job, step, outcome))).ok());
  }
  QueryServer server_;
};

// No daemon is asked.
TEST(PlumbFormats, PrintsTheDataThatTheAuditRoundsWith) {
  const Ran table = run("unix:///nonexistent", {"formats"});
  EXPECT_EQ(table.code, kExitTypeI);
  ASSERT_EQ(lines(table.out).size(), 8U);
  PlumbOptions options;
  options.json = true;
  const Ran json = run("unix:///nonexistent", {"formats", "e4m3", "fixed<8,8>"}, options);
  ASSERT_EQ(lines(json.out).size(), 2U);
  EXPECT_EQ(lines(json.out)[0],
            "{\"name\":\"e4m3\",\"bits\":8,\"bytes\":1,\"lowest\":-448,\"largest\":448,\"smallest_normal\":0.015625,"
            "\"smallest_subnormal\":0.001953125,\"epsilon\":0.125,\"unit_roundoff\":0.0625,\"infinities\":false,"
            "\"nan\":true}");
  const Ran wrong = run("unix:///nonexistent", {"formats", "fp16", "fixed<40,40>"});
  EXPECT_EQ(wrong.code, kExitError);
  EXPECT_EQ(wrong.out, "");
  EXPECT_NE(wrong.err.find("'fixed<40,40>': expected at most 64 bits, found 80"), std::string::npos);
}

TEST_F(PlumbTest, ExitCodeIsOfTheWorstVerdict) {
  const auto code = [&](PlumbOptions options = {}) { return run(server_.address(), {"verdicts"}, options).code; };
  EXPECT_EQ(code(), kExitTypeI) << "nothing to judge";
  add("a", 1, Outcome::kTypeI);
  EXPECT_EQ(code(), kExitTypeI);
  add("a", 2, Outcome::kInconclusive);
  EXPECT_EQ(code(), kExitInconclusive);
  add("a", 3, Outcome::kTypeII);
  EXPECT_EQ(code(), kExitTypeII);
  PlumbOptions options;
  options.step_max = 2;
  EXPECT_EQ(code(options), kExitInconclusive);
  for (const char* same : {"type-i", "TYPE_I", "OUTCOME_TYPE_I"}) {
    options.verdict = same;
    EXPECT_EQ(code(options), kExitTypeI) << same;
  }
  options.verdict = "sometimes";
  EXPECT_EQ(code(options), kExitError);
}

TEST_F(PlumbTest, ListsVerdictsAsTableAndJson) {
  add("a", 1, Outcome::kTypeI);
  add("b", 2, Outcome::kTypeII);
  const Ran table = run(server_.address(), {"verdicts"});
  ASSERT_EQ(lines(table.out).size(), 3u) << table.out;
  EXPECT_NE(lines(table.out)[2].find("default/b/run-1/0/2  TYPE_II"), std::string::npos) << table.out;

  PlumbOptions options;
  options.json = true;
  const Ran json = run(server_.address(), {"verdicts"}, options);
  std::vector<std::string> said;
  for (const std::string& line : lines(json.out)) {
    google::protobuf::Struct verdict;
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(line, &verdict).ok()) << line;
    said.push_back(verdict.fields().at("id").string_value() + " " + verdict.fields().at("verdict").string_value());
  }
  EXPECT_EQ(said, (std::vector<std::string>{"default/a/run-1/0/1 TYPE_I", "default/b/run-1/0/2 TYPE_II"}));
}

TEST_F(PlumbTest, ListsJobs) {
  add("a", 1, Outcome::kTypeI);
  add("b", 2, Outcome::kTypeII);
  EXPECT_EQ(lines(run(server_.address(), {"jobs"}).out).size(), 3u);
  PlumbOptions options;
  options.job = "b";
  options.json = true;
  const Ran ran = run(server_.address(), {"jobs"}, options);
  ASSERT_EQ(lines(ran.out).size(), 1u);
  v1::JobSummary job;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(ran.out, &job).ok());
  EXPECT_EQ(job.type_ii(), 1u);
  EXPECT_EQ(ran.code, 0);
}

TEST_F(PlumbTest, Explains) {
  add("a", 1, Outcome::kTypeII);
  const Ran ran = run(server_.address(), {"explain", "default/a/run-1/0/1"});
  EXPECT_EQ(ran.code, kExitTypeII);
  for (const char* part : {"TYPE_II", "train.py:7", "grad:w", "75.0%", "9 of 10 operations audited, 1 opaque"}) {
    EXPECT_NE(ran.out.find(part), std::string::npos) << part << "\n" << ran.out;
  }
  const Ran none = run(server_.address(), {"explain", "default/a/run-1/0/9"});
  EXPECT_EQ(none.code, kExitError);
  EXPECT_EQ(lines(none.err).size(), 1u) << none.err;
  EXPECT_NE(none.err.find("default/a/run-1/0/9"), std::string::npos);
}

TEST_F(PlumbTest, WatchesUntilTheCount) {
  add("a", 1, Outcome::kTypeI);
  add("a", 2, Outcome::kTypeII);
  PlumbOptions options;
  options.past = true;
  options.count = 2;
  const Ran ran = run(server_.address(), {"watch"}, options);
  EXPECT_EQ(ran.code, kExitTypeII);
  EXPECT_EQ(lines(ran.out).size(), 2u) << ran.out;
}

TEST_F(PlumbTest, WatchesOnATerminalInPlace) {
  add("a", 1, Outcome::kTypeI);
  add("a", 2, Outcome::kTypeII);
  PlumbOptions options;
  options.past = true;
  options.count = 2;
  options.style = {80, 24, false, false};
  const Ran ran = run(server_.address(), {"watch"}, options);
  const std::string last = ran.out.substr(ran.out.rfind("\x1b[H\x1b[2J"));
  EXPECT_NE(last.find("1 TYPE_II, 1 TYPE_I\n"), std::string::npos) << last;
  EXPECT_LT(last.find("default/a/run-1/0/2"), last.find("default/a/run-1/0/1")) << "the latest on top";
  EXPECT_LE(lines(last).size(), 24u);
}

TEST_F(PlumbTest, ErrorsAreOneLine) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{}, {"joke"}, {"jobs", "extra"}, {"explain"}, {"explain", "a", "b"}}) {
    const Ran ran = run(server_.address(), arguments);
    EXPECT_EQ(ran.code, kExitError);
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(lines(ran.err).size(), 1u) << ran.err;
  }
  const Ran ran = run("unix:/nonexistent/sock", {"jobs"});
  EXPECT_EQ(ran.code, kExitError);
  EXPECT_EQ(lines(ran.err).size(), 1u) << ran.err;
  EXPECT_NE(ran.err.find("/nonexistent/sock"), std::string::npos);
}

TEST(Format, OneScreen) {
  Verdict verdict = sample_verdict("a", 1, Outcome::kTypeII, std::numeric_limits<double>::infinity());
  verdict.suspect = Place{"aten::div.Tensor", "train.py:41", "loss", "fp32"};
  verdict.suspect_detail = "The scale differs.";
  verdict.surprise = std::numeric_limits<double>::infinity();
  const std::string text = format_verdict(to_proto(verdict));
  EXPECT_LE(lines(text).size(), 24u);
  for (const char* part : {"TYPE_II", "PROVEN", "MATHEMATICS", "aten::div.Tensor at train.py:41 in loss (fp32)",
                           "The scale differs.", "surprise    inf", "margin inf (relative)"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(text.find("resolution"), std::string::npos) << "it was not asked for\n" << text;
}

TEST(Format, TellsTheTapsThatDidNotPassAndWithAllTheWorstFirst) {
  Verdict verdict = sample_verdict("a", 1);
  verdict.taps.clear();
  for (int i = 0; i < 100; ++i) {
    TapVerdict tap;
    tap.name = "tap" + std::to_string(i);
    tap.outcome = i == 50 ? Outcome::kInconclusive : Outcome::kTypeI;
    tap.margin = i == 17 ? 5 : i == 18 ? kNotAsked : 0.001 * i;
    tap.surprise = i == 3 ? 7 : i == 18 ? kNotAsked : 0;
    verdict.taps.push_back(tap);
  }
  const std::string told = explain_verdict(to_proto(verdict));
  EXPECT_NE(told.find("tap50 "), std::string::npos) << told;
  EXPECT_EQ(told.find("tap3 "), std::string::npos) << told;
  EXPECT_NE(told.find("99 passed (--all)"), std::string::npos) << told;
  TextStyle style;
  style.all = true;
  const std::string text = explain_verdict(to_proto(verdict), style);
  EXPECT_NE(text.find("and 60 more"), std::string::npos) << text;
  EXPECT_LT(text.find("tap3 "), text.find("tap17")) << "by surprise, then by margin";
  EXPECT_LT(text.find("tap17"), text.find("tap99"));
  EXPECT_EQ(text.find("tap18 "), std::string::npos);
}

TEST(Format, TellsWhereTwoProgramsPartAndWhatLiesAroundIt) {
  Verdict verdict = sample_verdict("a", 1, Outcome::kTypeII);
  Alignment& alignment = *verdict.alignment;
  alignment.operations.assign(20, alignment.operations[0]);
  for (int i = 0; i < 20; ++i) {
    AlignedOperation& operation = alignment.operations[static_cast<std::size_t>(i)];
    operation.target->source = "t.py:" + std::to_string(100 + i);
    operation.deviation = i < 9 ? 0 : 0.25;
    if (i != 9) operation.reference = Place{"aten::div", "r.py:" + std::to_string(100 + i), "head", "fp32"};
  }
  alignment.parts = 9;
  alignment.before = 30;
  alignment.after = 4;
  const std::string text = explain_verdict(to_proto(verdict));
  for (const char* part : {"Along the graph\n", "  37 before\n", "t.py:107 aten::div  r.py:107 aten::div  agree",
                           "t.py:109 aten::div  (nothing)           part here", "  12 after (--all)\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(text.find("t.py:106"), std::string::npos) << text;
  TextStyle style;
  style.all = true;
  const std::string all = explain_verdict(to_proto(verdict), style);
  EXPECT_NE(all.find("t.py:100"), std::string::npos) << all;
  EXPECT_NE(all.find("  30 before\n"), std::string::npos) << all;
}

// Columns of a line as a terminal counts them, without what only colours.
std::size_t columns(const std::string& line) {
  std::size_t count = 0;
  bool escape = false;
  for (const char c : line) {
    if (c == '\x1b') escape = true;
    if (!escape && (static_cast<unsigned char>(c) & 0xC0u) != 0x80u) ++count;
    if (c == 'm') escape = false;
  }
  return count;
}

TEST(Format, FitsANarrowTerminal) {
  Verdict verdict = sample_verdict("a-job-with-quite-a-long-name", 1, Outcome::kTypeII);
  verdict.suspect = Place{"aten::div.Tensor", "train.py:41", "loss", "fp32"};
  verdict.suspect_detail = "its inputs agree with the reference's values, its result does not";
  verdict.taps[0].outcome = Outcome::kTypeII;
  verdict.taps[0].name = "grad:transformer.layers.0.attention.query_key_value.weight";
  const v1::Verdict sent = to_proto(verdict);
  v1::JobSummary job;
  job.set_job("a-job-with-quite-a-long-name");
  job.set_type_ii(1);
  job.set_worst_verdict_id(sent.id());
  WatchCounts counts;
  counts.type_ii = 1;
  counts.first_type_ii = sent;
  for (const std::size_t width : {40u, 80u}) {
    for (const bool colour : {false, true}) {
      const TextStyle style{width, 24, colour, false};
      for (const std::string& text :
           {format_verdict(sent, style), explain_verdict(sent, style), format_verdicts({sent, sent}, style),
            format_jobs({job, job}, style), format_watch(counts, {sent, sent}, style)}) {
        EXPECT_EQ(text.find('\x1b') != std::string::npos, colour) << text;
        EXPECT_NE(text.find("TYPE_II"), std::string::npos) << text;
        EXPECT_NE(text.find("a-job"), std::string::npos) << text;
        for (const std::string& line : lines(text)) EXPECT_LE(columns(line), width) << width << "\n" << text;
      }
    }
  }
}

TEST(Format, AListOnATerminalIsOneScreenAndTellsWhatDidNotPass) {
  std::vector<v1::Verdict> verdicts;
  for (int step = 0; step < 200; ++step) {
    verdicts.push_back(to_proto(sample_verdict("a", step, step == 7 ? Outcome::kTypeII : Outcome::kTypeI)));
  }
  const TextStyle style{100, 24, false, false};
  const std::string text = format_verdicts(verdicts, style);
  ASSERT_EQ(lines(text).size(), 4u) << text;
  EXPECT_EQ(lines(text)[0], "1 TYPE_II, 199 TYPE_I");
  EXPECT_NE(lines(text)[2].find("default/a/run-1/0/7"), std::string::npos) << text;
  EXPECT_EQ(lines(text)[3], "and 199 more (--all)");
  verdicts.erase(verdicts.begin() + 7);
  EXPECT_LE(lines(format_verdicts(verdicts, style)).size(), 24u);
  EXPECT_EQ(lines(format_verdicts(verdicts)).size(), 200u) << "a file gets all";
  EXPECT_EQ(format_verdicts(verdicts, style).find("mathematics"), std::string::npos) << "a column without a number";
}

TEST(Format, ShowsNoControlCharacters) {
  Verdict verdict = sample_verdict("a", 1, Outcome::kTypeII);
  verdict.suspect = Place{"evil\x1b[2J\nop", "a\rb.py", "", ""};
  verdict.notes = {"a\x07note"};
  verdict.taps[0].name = "t\x1b]0;x";
  const v1::Verdict sent = to_proto(verdict);
  for (const std::string& text : {format_verdict(sent), explain_verdict(sent), format_verdicts({sent})}) {
    for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << text;
  }
}

TEST(Format, ANameOfAnyLengthAndDirectionIsALineOfItsOwn) {
  for (const std::string& name : {std::string(4096, 't'), std::string("\u202Eשלום grad:\u05D0\u2069\u0085end")}) {
    Verdict verdict = sample_verdict("a", 1, Outcome::kTypeII);
    verdict.taps[0].outcome = Outcome::kTypeII;
    verdict.taps[0].name = name;
    const TextStyle style{40, 24, false, false};
    const std::string text = explain_verdict(to_proto(verdict), style);
    for (const std::string& line : lines(text)) EXPECT_LE(columns(line), 40u) << line;
    for (const char* obeyed : {"\u202E", "\u2069", "\u0085"}) EXPECT_EQ(text.find(obeyed), std::string::npos) << text;
  }
  EXPECT_EQ(printable("\u202Eשלום\u2069\u0085end"), "?שלום??end");
}

TEST(Format, ANarrowTerminalTellsStepsApart) {
  std::vector<v1::Verdict> verdicts;
  for (int step = 100; step < 102; ++step) {
    Verdict verdict = sample_verdict("a-job-with-quite-a-long-name-of-its-own", step, Outcome::kTypeII);
    verdict.suspect = Place{"aten::div.Tensor", "train.py:41", "loss", "fp32"};
    verdicts.push_back(to_proto(verdict));
  }
  const std::string narrow = format_verdicts(verdicts, {40, 24, false, false});
  EXPECT_NE(narrow.find("/100 "), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("/101 "), std::string::npos) << narrow;
  const std::string usual = format_verdicts(verdicts, {100, 24, false, false});
  EXPECT_NE(usual.find("train.py:41 aten::div"), std::string::npos) << "the place comes before numbers\n" << usual;
}

TEST(Format, ReadsAVerdictWithNothingInIt) {
  EXPECT_FALSE(format_verdict({}).empty());
  EXPECT_FALSE(explain_verdict({}).empty());
  EXPECT_FALSE(format_verdicts({{}}).empty());
  EXPECT_FALSE(format_jobs({{}}).empty());
  v1::Verdict unknown;
  unknown.set_verdict(static_cast<v1::Outcome>(99));
  EXPECT_NE(format_verdict(unknown).find("99"), std::string::npos);
  EXPECT_EQ(exit_code(unknown.verdict()), kExitInconclusive);
}

TEST(TextTable, AlignsColumns) {
  TextTable table({"name", ">n"});
  table.add({"a", "1"});
  table.add({"long name", "1000"});
  table.add({"caf\xc3\xa9", "2"});
  EXPECT_EQ(table.str(), "name          n\na             1\nlong name  1000\ncaf\xc3\xa9          2\n");
}

}  // namespace
}  // namespace plumbline
