#include "server/ingest/trace_file.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "server/ingest/buffer_pool.h"
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

TraceRecord record_of(std::shared_ptr<const Trace> trace) {
  TraceRecord record;
  record.trace = std::move(trace);
  return record;
}

TEST(TraceFile, ComesBackWithoutTheParametersContent) {
  const TemporaryDirectory directory;
  const auto trace = trace_of(frames_of_a_step(5));
  const std::string path = directory.path + "/5.trace";
  const auto bytes = write_trace_file(record_of(trace), TraceContent::kPaired, path);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, std::filesystem::file_size(path));
  EXPECT_EQ(read(path).find("abcdefgh"), std::string::npos);
  const auto record = read_trace_file(path);
  ASSERT_TRUE(record.ok()) << record.status();
  const Trace& again = *record->trace;
  EXPECT_EQ(again.digest, trace->digest);
  EXPECT_EQ(again.identity, trace->identity);
  EXPECT_EQ(again.leaves[1].payload, 0u);
  EXPECT_EQ(again.payloads.size(), 3u);
  EXPECT_EQ(*again.payloads.at(1), *trace->payloads.at(1));
  EXPECT_EQ(again.ops[0].name, "aten::add.Tensor");
}

TEST(TraceFile, ComesBackWithAllThatItsAuditWasAsked) {
  const TemporaryDirectory directory;
  const std::string path = directory.path + "/5.trace";
  ASSERT_TRUE(write_trace_file(record_of(trace_of(frames_of_a_step(5))), TraceContent::kPaired, path).ok());
  const auto paired = read_trace_file(path);  // As a reference is when it is compared with: without parameters.
  ASSERT_TRUE(paired.ok()) << paired.status();
  TraceRecord asked = record_of(trace_of(frames_of_a_step(5)));
  asked.reference = paired->trace;
  asked.reference_name = "run r step 5";
  asked.profile = "ieee";
  asked.alpha = 0.25;
  asked.previous_step = 4;
  asked.previous_digests = {{"param:w", "00:8"}};
  asked.previous_reference_updates = {"update:w"};
  asked.previous_apart = {"state:w.grad", 0.5, 2};
  ASSERT_TRUE(write_trace_file(asked, TraceContent::kWhole, path).ok());
  const auto again = read_trace_file(path);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->trace->payloads.size(), 4u);
  ASSERT_NE(again->reference, nullptr);
  EXPECT_EQ(again->reference->payloads.size(), 3u);
  EXPECT_EQ(again->reference->digest, asked.trace->digest);
  EXPECT_EQ(again->reference_name, asked.reference_name);
  EXPECT_EQ(again->profile, asked.profile);
  EXPECT_EQ(again->alpha, asked.alpha);
  EXPECT_EQ(again->previous_step, asked.previous_step);
  EXPECT_EQ(again->previous_digests, asked.previous_digests);
  EXPECT_EQ(again->previous_reference_updates, asked.previous_reference_updates);
  EXPECT_EQ(again->previous_apart, asked.previous_apart);
}

TEST(TraceFile, KeepsAParameterThatATapReads) {
  const TemporaryDirectory directory;
  auto frames = frames_of_a_step(5);
  frames[5].mutable_tap()->mutable_terms(0)->mutable_tensor()->set_value(2);
  const auto trace = trace_of(frames);
  ASSERT_NE(trace, nullptr);
  const std::string path = directory.path + "/5.trace";
  ASSERT_TRUE(write_trace_file(record_of(trace), TraceContent::kPaired, path).ok());
  const auto again = read_trace_file(path);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again->trace->payloads.at(2), *trace->payloads.at(2));
}

TEST(TraceFile, EveryDamagedByteIsNoticed) {
  const TemporaryDirectory directory;
  const std::string path = directory.path + "/5.trace";
  ASSERT_TRUE(write_trace_file(record_of(trace_of(frames_of_a_step(5))), TraceContent::kPaired, path).ok());
  const std::string whole = read(path);
  const auto code = [&](const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
    return read_trace_file(path).status().code();
  };
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    // Without the magic it is no trace.
    EXPECT_EQ(code(damaged), i < 7 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kDataLoss) << "byte " << i;
  }
  for (std::size_t size = 8; size < whole.size(); size += 7) {
    EXPECT_EQ(code(whole.substr(0, size)), absl::StatusCode::kDataLoss) << size << " bytes";
  }
  EXPECT_EQ(code("PLTRACE3" + whole.substr(8)), absl::StatusCode::kFailedPrecondition);
  for (const char* text : {"", "P", "PLTRACE", "a file of another kind"}) {
    EXPECT_EQ(code(text), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(read_trace_file(path + ".gone").status().code(), absl::StatusCode::kNotFound);
}

TEST(TraceFile, ADumpIsReadToo) {
  const TemporaryDirectory directory;
  const std::string path = directory.path + "/dump";
  const auto trace = trace_of(frames_of_a_step(5));
  std::string dump;
  for (const v1::AuditRequest& frame : frames_of(*trace)) {
    const std::string bytes = frame.SerializeAsString();
    ASSERT_LT(bytes.size(), 128u);
    dump += static_cast<char>(bytes.size()) + bytes;
  }
  std::ofstream(path, std::ios::binary) << dump;
  const auto record = read_trace_file(path);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->trace->digest, trace->digest);
  EXPECT_EQ(read_trace_file(path, {UINT64_MAX, 1, nullptr}).status().code(), absl::StatusCode::kResourceExhausted);
  std::ofstream(path, std::ios::binary) << dump.substr(0, dump.size() / 2);
  EXPECT_EQ(read_trace_file(path).status().code(), absl::StatusCode::kDataLoss);
}

// A message of a dump, after its length.
std::string delimited(const std::string& message) {
  std::string length;
  google::protobuf::io::StringOutputStream stream(&length);
  google::protobuf::io::CodedOutputStream(&stream).WriteVarint32(static_cast<std::uint32_t>(message.size()));
  return length + message;
}

// A chunk as no protobuf library writes it: its bytes before what they are of.
std::string turned(const v1::TensorData& chunk) {
  v1::TensorData bytes, rest = chunk;
  bytes.set_data(chunk.data());
  rest.clear_data();
  const std::string data = bytes.SerializeAsString() + rest.SerializeAsString();
  return std::string(1, (v1::AuditRequest::kDataFieldNumber << 3) | 2) + delimited(data);
}

TEST(TraceFile, BytesOfTensorsAreReadHoweverTheirFramesAreWritten) {
  const TemporaryDirectory directory;
  const std::string path = directory.path + "/dump", bytes(100'000, 'd');
  auto frames = frames_of_a_step(5);
  frames[1].mutable_leaf()->set_count(static_cast<std::int64_t>(bytes.size() / 4));
  frames[6] = chunk(1, 0, bytes.size(), bytes);
  for (const bool as_ever : {true, false}) {
    std::string dump;
    std::size_t large = 0;
    for (const v1::AuditRequest& frame : frames) {
      if (frame.data().payload() == 1) large = dump.size();
      dump += delimited(as_ever || !frame.has_data() ? frame.SerializeAsString() : turned(frame.data()));
    }
    std::ofstream(path, std::ios::binary) << dump;
    const auto pool = BufferPool::create(1 << 20);
    {
      const auto record = read_trace_file(path, {UINT64_MAX, INT64_MAX, pool});
      ASSERT_TRUE(record.ok()) << record.status();
      EXPECT_EQ(record->trace->digest, trace_of(frames)->digest);
      EXPECT_EQ(*record->trace->payloads.at(1), std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
      EXPECT_EQ(pool->idle_bytes(), 0u);
    }
    EXPECT_GE(pool->idle_bytes(), bytes.size());
    for (std::size_t size = large; size < dump.size() - 1; size += size < large + 200 ? 1 : 9973) {
      std::ofstream(path, std::ios::binary) << dump.substr(0, size);
      EXPECT_EQ(read_trace_file(path).status().code(), absl::StatusCode::kDataLoss) << size << " bytes";
    }
    std::ofstream(path, std::ios::binary) << dump.substr(large);  // It does not begin a step.
    EXPECT_EQ(read_trace_file(path).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace plumbline
