#include "server/ingest/trace_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "server/ingest/frames.h"
#include "tests/unit/ingest/frames_of_a_step.h"
#include "tests/unit/ingest/temporary_directory.h"

namespace plumbline {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<v1::AuditRequest> frames_of(const Trace& trace) {
  std::vector<v1::AuditRequest> frames;
  emit_frames(
      trace, [](PayloadId) { return true; },
      [&frames](const v1::AuditRequest& frame) {
        frames.push_back(frame);
        return true;
      });
  return frames;
}

TEST(Frames, ATraceGivesItsFramesBack) {
  const auto trace = trace_of(frames_of_a_step(5));
  const auto again = trace_of(frames_of(*trace));
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->digest, trace->digest);
}

TEST(TraceFile, ComesBackWithoutTheParametersContent) {
  const TemporaryDirectory directory;
  const auto trace = trace_of(frames_of_a_step(5));
  const std::string path = directory.path + "/5.trace";
  const auto bytes = write_trace_file(*trace, path);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, std::filesystem::file_size(path));
  EXPECT_EQ(read(path).find("abcdefgh"), std::string::npos);
  const auto again = read_trace_file(path, trace->identity);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->digest, trace->digest);
  EXPECT_EQ((*again)->identity, trace->identity);
  EXPECT_EQ((*again)->leaves[1].payload, 0u);
  EXPECT_EQ((*again)->payloads.size(), 3u);
  EXPECT_EQ(*(*again)->payloads.at(1), *trace->payloads.at(1));
  EXPECT_EQ((*again)->ops[0].name, "aten::add.Tensor");
}

TEST(TraceFile, KeepsAParameterThatATapReads) {
  const TemporaryDirectory directory;
  auto frames = frames_of_a_step(5);
  frames[5].mutable_tap()->mutable_terms(0)->mutable_tensor()->set_value(2);
  const auto trace = trace_of(frames);
  ASSERT_NE(trace, nullptr);
  const std::string path = directory.path + "/5.trace";
  ASSERT_TRUE(write_trace_file(*trace, path).ok());
  const auto again = read_trace_file(path, trace->identity);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*(*again)->payloads.at(2), *trace->payloads.at(2));
}

TEST(TraceFile, EveryDamagedByteIsNoticed) {
  const TemporaryDirectory directory;
  const auto trace = trace_of(frames_of_a_step(5));
  const std::string path = directory.path + "/5.trace";
  ASSERT_TRUE(write_trace_file(*trace, path).ok());
  const std::string whole = read(path);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT_EQ(read_trace_file(path, trace->identity).status().code(), absl::StatusCode::kDataLoss) << "byte " << i;
  }
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, size);
    EXPECT_EQ(read_trace_file(path, trace->identity).status().code(), absl::StatusCode::kDataLoss) << size << " bytes";
  }
}

TEST(TraceFile, IsOfOneStepOnly) {
  const TemporaryDirectory directory;
  const auto trace = trace_of(frames_of_a_step(5));
  const std::string path = directory.path + "/5.trace";
  ASSERT_TRUE(write_trace_file(*trace, path).ok());
  StepIdentity other = trace->identity;
  other.step = 6;
  EXPECT_EQ(read_trace_file(path, other).status().code(), absl::StatusCode::kDataLoss);
  other = trace->identity;
  other.run = "s";
  EXPECT_EQ(read_trace_file(path, other).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(read_trace_file(path + ".gone", trace->identity).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace plumbline
