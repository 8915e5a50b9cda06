#include "server/ingest/golden_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "tests/unit/ingest/temporary_directory.h"

namespace plumbline {
namespace {

v1::GoldenHeader header(const std::string& name, const std::string& run = "job/run") {
  v1::GoldenHeader header;
  header.set_project("p");
  header.set_name(name);
  header.set_run(run);
  header.set_profile("ieee");
  return header;
}

GoldenStep step_of_run(std::int64_t step) {
  GoldenStep golden;
  golden.rank = 1;
  golden.step = step;
  golden.digest = std::string(32, 'd');
  golden.seed = 42;
  golden.opaque = golden.on_grid = golden.overflow = true;
  golden.leaves = {{LeafRole::kParameter, "param:w", Format::kBFloat16, 7, "0:14"}};
  golden.taps = {{"loss", TapKind::kLoss, {}, 0.5, 0.25, {0.5}, {0.75}, "0:8"},
                 {"grad:w", TapKind::kGradient, {40, 50}, HUGE_VAL, 2, {}, {}, "1:8"}};
  golden.probes = {{"loss", {"loss"}, true, 1e-12, 1e-13, 1e-26}, {"all gradients", {"grad:w"}, false, 1, 2, 3}};
  return golden;
}

absl::Status anywhere(const std::string&) { return absl::OkStatus(); }

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const std::string& path, const std::string& content) { std::ofstream(path, std::ios::binary) << content; }

std::string exported(GoldenStore& store, const std::string& name) {
  std::string all;
  const absl::Status status = store.export_to("p", name, [&all](const std::string& bytes) {
    all += bytes;
    return true;
  });
  EXPECT_TRUE(status.ok()) << status;
  return all;
}

class GoldenStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(store_.begin(header("a"), "uid:7").ok());
    for (const int step : {0, 2}) ASSERT_TRUE(store_.append("p", "a", step_of_run(step)).ok());
  }
  std::string path() const { return directory_.path + "/golden/p_p/g_a.golden"; }

  TemporaryDirectory directory_;
  GoldenStore store_{directory_.path + "/golden"};
};

TEST_F(GoldenStoreTest, AStepComesBackAfterARestart) {
  GoldenStore again(directory_.path + "/golden");
  const auto loaded = again.load("p", "a", 1, 2);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(to_proto(**loaded).SerializeAsString(), to_proto(step_of_run(2)).SerializeAsString());
  const auto missing = again.load("p", "a", 1, 1).status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_NE(missing.message().find("step 1 is not in golden run 'a', which holds steps 0, 2 of rank 1"),
            std::string::npos)
      << missing;
  EXPECT_TRUE(absl::IsNotFound(again.load("p", "a", 0, 2).status()));
  EXPECT_TRUE(absl::IsNotFound(again.load("p", "b", 1, 2).status()));
  EXPECT_TRUE(absl::IsNotFound(again.load("q", "a", 1, 2).status()));
}

TEST_F(GoldenStoreTest, ANameIsOneRuns) {
  EXPECT_TRUE(store_.begin(header("a"), "uid:7").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(store_.begin(header("a", "job/other"), "uid:7")));
  EXPECT_TRUE(absl::IsAlreadyExists(store_.begin(header("a"), "uid:8")));
  for (const char* name : {"", "..", "a/b", "a b"}) {
    const absl::Status status = store_.begin(header(name), "uid:7");
    EXPECT_EQ(status.ok(), std::string(name) == "..") << name << status;  // The prefix makes it a name as any other.
  }
}

TEST_F(GoldenStoreTest, TheLaterOfOneStepCounts) {
  GoldenStep changed = step_of_run(2);
  changed.seed = 43;
  ASSERT_TRUE(store_.append("p", "a", changed).ok());
  GoldenStore again(directory_.path + "/golden");
  for (GoldenStore* store : {&store_, &again}) EXPECT_EQ((*store->load("p", "a", 1, 2))->seed, 43u);
  ASSERT_EQ(again.list("").size(), 1u);
  EXPECT_EQ(again.list("p")[0].steps(), 2u);
  EXPECT_EQ(again.list("p")[0].step_last(), 2);
  EXPECT_TRUE(again.list("q").empty());
}

TEST_F(GoldenStoreTest, WhatACrashLeftIsCutOff) {
  const std::string whole = read(path());
  for (std::size_t lost = 1; lost < 30; ++lost) {
    write(path(), whole.substr(0, whole.size() - lost));
    GoldenStore again(directory_.path + "/golden");
    EXPECT_TRUE(again.load("p", "a", 1, 0).ok());
    EXPECT_TRUE(absl::IsNotFound(again.load("p", "a", 1, 2).status()));
    ASSERT_TRUE(again.append("p", "a", step_of_run(2)).ok());
    EXPECT_EQ(read(path()), whole);
  }
}

TEST_F(GoldenStoreTest, EveryDamagedByteOfAFileIsNoticed) {
  const std::string whole = exported(store_, "a"), file = directory_.path + "/file";
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    write(file, damaged);
    EXPECT_FALSE(store_.import(file, "", "b", "uid:8", anywhere).ok()) << "byte " << i;
  }
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write(file, whole.substr(0, size));
    EXPECT_FALSE(store_.import(file, "", "b", "uid:8", anywhere).ok()) << size << " bytes";
  }
  write(file, "PLGOLDN1" + whole.substr(8));
  EXPECT_TRUE(absl::IsFailedPrecondition(store_.import(file, "", "b", "uid:8", anywhere).status()));
  write(file, "something else");
  EXPECT_TRUE(absl::IsInvalidArgument(store_.import(file, "", "b", "uid:8", anywhere).status()));
}

TEST_F(GoldenStoreTest, ComesBackFromAFile) {
  const std::string file = directory_.path + "/file";
  write(file, exported(store_, "a"));
  EXPECT_TRUE(absl::IsAlreadyExists(store_.import(file, "", "", "uid:8", anywhere).status()));
  const auto imported = store_.import(file, "q", "b", "uid:8", anywhere);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->steps(), 2u);
  EXPECT_TRUE(store_.load("q", "b", 1, 2).ok());
  EXPECT_EQ(read(directory_.path + "/golden/p_q/g_b.golden").compare(0, read(path()).size(), read(path())), 0);
  EXPECT_EQ(*store_.owner_of("q", "b"), "uid:8") << "not who recorded it elsewhere";
  GoldenStore again(directory_.path + "/golden");
  EXPECT_EQ(*again.owner_of("q", "b"), "uid:8");
  EXPECT_EQ(*again.owner_of("p", "a"), "uid:7");
  EXPECT_EQ(again.list("q")[0].owner(), "uid:8");
  const auto nowhere = [](const std::string& project) { return absl::PermissionDeniedError(project); };
  EXPECT_EQ(store_.import(file, "", "c", "uid:8", nowhere).status(), absl::PermissionDeniedError("p"));
  EXPECT_TRUE(store_.remove("q", "b").ok());
  EXPECT_TRUE(absl::IsNotFound(store_.remove("q", "b")));
  EXPECT_TRUE(absl::IsNotFound(store_.load("q", "b", 1, 2).status()));
}

TEST_F(GoldenStoreTest, ADamagedFileIsAnErrorThatNamesIt) {
  std::string damaged = read(path());
  damaged[40] = static_cast<char>(damaged[40] ^ 1);
  write(path(), damaged);
  GoldenStore again(directory_.path + "/golden");
  for (const absl::Status& status : {again.owner_of("p", "a").status(), again.begin(header("a"), "uid:7"),
                                     again.append("p", "a", step_of_run(3)), again.load("p", "a", 1, 0).status()}) {
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_NE(status.message().find("golden run 'a' is damaged"), std::string::npos);
  }
  ASSERT_EQ(again.list("").size(), 1u);
  EXPECT_NE(again.list("")[0].error().find("damaged"), std::string::npos);
}

TEST_F(GoldenStoreTest, AStepThatContradictsItselfIsTakenFromNobody) {
  const std::map<std::string, std::function<void(GoldenStep&)>> harms = {
      {"golden.step", [](GoldenStep& step) { step.step = -1; }},
      {"golden.leaves[0].dtype", [](GoldenStep& step) { step.leaves[0].format = static_cast<Format>(77); }},
      {"golden.leaves[0].role", [](GoldenStep& step) { step.leaves[0].role = static_cast<LeafRole>(77); }},
      {"golden.leaves[0].count", [](GoldenStep& step) { step.leaves[0].count = -1; }},
      {"golden.taps[1].name", [](GoldenStep& step) { step.taps[1].name = step.taps[0].name; }},
      {"golden.taps[0].kind", [](GoldenStep& step) { step.taps[0].kind = static_cast<TapKind>(77); }},
      {"golden.taps[1].sizes[0]", [](GoldenStep& step) { step.taps[1].shape[0] = -1; }},
      {"golden.taps[1].sizes",
       [](GoldenStep& step) {
         step.taps[1].shape = {1LL << 40, 1LL << 40};
       }},
      {"golden.taps[0].exact", [](GoldenStep& step) { step.taps[0].exact.resize(100); }},
      {"golden.taps[0].observed", [](GoldenStep& step) { step.taps[0].observed.resize(2); }},
      {"golden.taps[0].magnitude", [](GoldenStep& step) { step.taps[0].magnitude = -1; }},
      {"golden.probes[0].taps", [](GoldenStep& step) { step.probes[0].taps.clear(); }},
      {"golden.probes[1].taps", [](GoldenStep& step) { step.probes[1].scalar = true; }},
      {"golden.probes[0].taps: expected taps of the step", [](GoldenStep& step) { step.probes[0].taps = {"none"}; }},
      {"golden.probes[1]", [](GoldenStep& step) { step.probes[1].noise_squares = -1; }},
  };
  for (const auto& [field, harm] : harms) {
    ASSERT_TRUE(store_.begin(header("harmful"), "uid:7").ok());
    GoldenStep step = step_of_run(0);
    EXPECT_FALSE(check_golden_step(step));
    harm(step);
    ASSERT_TRUE(store_.append("p", "harmful", step).ok());
    const std::string file = directory_.path + "/golden/p_p/g_harmful.golden";
    const absl::Status imported = store_.import(file, "", "copy", "uid:8", anywhere).status();
    EXPECT_TRUE(absl::IsDataLoss(imported)) << field << ": " << imported;
    EXPECT_NE(imported.message().find(field), std::string::npos) << imported;
    EXPECT_TRUE(absl::IsDataLoss(store_.load("p", "harmful", step.rank, step.step).status())) << field;
    ASSERT_TRUE(store_.remove("p", "harmful").ok());
  }
}

}  // namespace
}  // namespace plumbline
