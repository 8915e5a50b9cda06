#include "server/ingest/shared_regions.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "server/ingest/limits.h"
#include "tests/unit/ingest/frames_of_a_step.h"

namespace plumbline {
namespace {

using Progress = TraceAssembler::Progress;

// A memfd of this process that holds `content`.
class Memory {
 public:
  explicit Memory(const std::string& content) : fd_(memfd_create("test", MFD_CLOEXEC)) {
    EXPECT_EQ(write(fd_, content.data(), content.size()), static_cast<ssize_t>(content.size()));
  }
  ~Memory() { close(fd_); }
  int fd() const { return fd_; }
  v1::Region region(std::uint32_t id = 1) const {
    struct stat file {};
    fstat(fd_, &file);
    v1::Region region;
    region.set_region(id);
    region.set_process(getpid());
    region.set_fd(fd_);
    region.set_inode(file.st_ino);
    region.set_size(static_cast<std::uint64_t>(file.st_size));
    return region;
  }

 private:
  const int fd_;
};

v1::AuditRequest in_region(std::uint64_t payload, std::uint64_t offset, std::uint64_t total, std::uint64_t at,
                           std::uint64_t length) {
  v1::AuditRequest frame;
  frame.mutable_data()->set_payload(payload);
  frame.mutable_data()->set_offset(offset);
  frame.mutable_data()->set_total(total);
  frame.mutable_data()->set_region(1);
  frame.mutable_data()->set_region_offset(at);
  frame.mutable_data()->set_length(length);
  return frame;
}

std::string refusal(const v1::Region& region, SharedRegions::Owner owner = {}) {
  SharedRegions regions(owner);
  return regions.add(region).field;
}

TEST(SharedRegions, TakesAMemfdOfTheSameUserAlone) {
  const Memory memory("12345678");
  const v1::Region good = memory.region();
  EXPECT_EQ(refusal(good), "");
  EXPECT_EQ(refusal(good, {geteuid() + 1, getpid()}), "region.fd");
  v1::Region wrong = good;
  wrong.set_region(0);
  EXPECT_EQ(refusal(wrong), "region.region");
  wrong = good;
  wrong.set_process(-1);
  EXPECT_EQ(refusal(wrong), "region.process");
  wrong = good;
  wrong.set_process(INT32_MAX);
  EXPECT_EQ(refusal(wrong), "") << "what the client says of itself counts for nothing";
  EXPECT_EQ(refusal(good, {geteuid(), INT32_MAX}), "region.fd");
  wrong = good;
  wrong.set_fd(-1);
  EXPECT_EQ(refusal(wrong), "region.fd");
  wrong = good;
  wrong.set_inode(good.inode() + 1);
  EXPECT_EQ(refusal(wrong), "region.inode");
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{9}, UINT64_MAX}) {
    wrong = good;
    wrong.set_size(size);
    EXPECT_EQ(refusal(wrong), "region.size");
  }
}

TEST(SharedRegions, TakesNoOtherKindOfFile) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe(ends), 0);
  FILE* const named = fopen("/dev/shm/plumbline.test", "we+");
  const int device = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  std::vector<int> others = {ends[0], device};
  if (named != nullptr) others.push_back(fileno(named));  // Has a name, and so outlives its client.
  for (const int fd : others) {
    struct stat file {};
    fstat(fd, &file);
    v1::Region region;
    region.set_region(1);
    region.set_process(getpid());
    region.set_fd(fd);
    region.set_inode(file.st_ino);
    region.set_size(1);
    EXPECT_EQ(refusal(region), "region.fd");
  }
  close(ends[0]);
  close(ends[1]);
  close(device);
  if (named != nullptr) fclose(named);
  unlink("/dev/shm/plumbline.test");
}

TEST(SharedRegions, AreRegisteredOnceAndNotTooMany) {
  const Memory memory("12345678");
  SharedRegions regions({});
  for (std::uint32_t id = 1; id <= limits::kRegionsMax; ++id) EXPECT_TRUE(regions.add(memory.region(id)).ok());
  EXPECT_EQ(regions.add(memory.region(1)).field, "region.region");
  EXPECT_EQ(regions.add(memory.region(99)).code, absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(regions.drop(1).ok());
  EXPECT_EQ(regions.drop(1).field, "drop_region");
  EXPECT_TRUE(regions.add(memory.region(99)).ok());
}

TraceAssembler::Options options_with(SharedRegions& regions) {
  TraceAssembler::Options options = options_of_a_run();
  options.regions = &regions;
  return options;
}

Progress begin_step(TraceAssembler& assembler) {
  v1::AuditRequest begin;
  begin.mutable_step_begin()->set_step(0);
  return assembler.add(begin).progress;
}

class SharedStep : public ::testing::Test {
 protected:
  SharedStep() { assembler_ = std::make_unique<TraceAssembler>(options_with(regions_)); }
  // The field at fault where the step's first payload comes as `data`.
  std::string field(const v1::AuditRequest& data) {
    auto frames = frames_of_a_step(1);
    frames[6] = data;
    const auto result = offer(*assembler_, frames);
    EXPECT_EQ(result.progress, Progress::kStepFailed);
    return result.violation.field;
  }
  SharedRegions regions_{SharedRegions::Owner{}};
  std::unique_ptr<TraceAssembler> assembler_;
};

TEST_F(SharedStep, IsTheSameTraceAsInChunks) {
  const Memory memory("..12345678..");
  ASSERT_TRUE(regions_.add(memory.region()).ok());
  auto frames = frames_of_a_step(1);
  const auto whole = trace_of(frames);
  frames[6] = in_region(1, 0, 8, 2, 5);
  frames.insert(frames.begin() + 7, in_region(1, 5, 8, 7, 3));
  frames.back().mutable_step_end()->set_frames(frames.size());
  ASSERT_EQ(offer(*assembler_, frames).progress, Progress::kStepDone);
  const auto trace = assembler_->take_step().trace;
  EXPECT_EQ(*trace->payloads.at(1), *whole->payloads.at(1));
  EXPECT_EQ(trace->digest, whole->digest);
  EXPECT_EQ(regions_.take_bytes_read().memory, 8u);
  EXPECT_EQ(regions_.take_bytes_read().memory, 0u);
}

TEST_F(SharedStep, OfManyPiecesIsTheSameTraceAsInChunks) {
  std::string content(3'000'001, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * i >> 7);
  const Memory memory(content);
  ASSERT_TRUE(regions_.add(memory.region()).ok());
  const auto with = [&](const std::vector<v1::AuditRequest>& data) {
    auto frames = frames_of_a_step(1);
    frames.insert(frames.end() - 1, data.begin(), data.end());
    frames.back().mutable_step_end()->set_frames(frames.size());
    EXPECT_EQ(offer(*assembler_, frames).progress, Progress::kStepDone);
    return assembler_->take_step().trace;
  };
  std::vector<v1::AuditRequest> chunks;
  for (std::size_t at = 0; at < content.size(); at += 1'000'000) {
    chunks.push_back(chunk(9, at, content.size(), content.substr(at, 1'000'000)));
  }
  EXPECT_EQ(with(chunks)->digest, with({in_region(9, 0, content.size(), 0, content.size())})->digest);
}

// A buffer has other bytes in it before, fewer or more than the payload.
TEST_F(SharedStep, InAUsedBufferHoldsItsOwnBytes) {
  std::string content(3'000'001, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * i >> 7);
  const Memory memory(content);
  ASSERT_TRUE(regions_.add(memory.region()).ok());
  const auto pool = BufferPool::create(64 << 20);
  for (const std::size_t before : {std::size_t{0}, std::size_t{1'500'000}, content.size() + 5}) {
    pool->take(content.size() + 5)->assign(before, 7);
    Payloads payloads(pool);
    const std::size_t first = 1'200'000;
    for (const auto& [at, size] : {std::pair{std::size_t{0}, first}, std::pair{first, content.size() - first}}) {
      EXPECT_FALSE(payloads.bytes(9));
      RegionReader reader = regions_.reader(in_region(9, at, content.size(), at, size).data());
      EXPECT_EQ(payloads.add({9, at, content.size(), size, true}, &reader), size);
    }
    const Bytes bytes = payloads.bytes(9);
    ASSERT_TRUE(bytes);
    EXPECT_EQ(std::string(bytes->begin(), bytes->end()), content) << before;
    EXPECT_TRUE(XXH128_isEqual(payloads.hash(9), XXH3_128bits(content.data(), content.size()))) << before;
  }
}

TEST_F(SharedStep, ThatRefersOutsideOfItsRegionFails) {
  const Memory memory("12345678");
  EXPECT_EQ(field(in_region(1, 0, 8, 0, 8)), "data.region");  // There is no region yet.
  assembler_ = nullptr;
  for (const auto& [at, length, name] :
       std::vector<std::tuple<std::uint64_t, std::uint64_t, std::string>>{{1, 8, "data.length"},
                                                                          {9, 1, "data.region_offset"},
                                                                          {UINT64_MAX, 8, "data.region_offset"},
                                                                          {8, UINT64_MAX - 7, "data.length"},
                                                                          {8, 0, "data.length"}}) {
    SharedRegions regions({});
    ASSERT_TRUE(regions.add(memory.region()).ok());
    assembler_ = std::make_unique<TraceAssembler>(options_with(regions));
    EXPECT_EQ(field(in_region(1, 0, 8, at, length)), name) << at << " " << length;
    EXPECT_EQ(regions.take_bytes_read().memory, 0u);
  }
}

TEST_F(SharedStep, ThatIsTooLongForAChunkFailsBeforeAnyMemoryIsTaken) {
  const Memory memory("12345678");
  const std::uint64_t large = limits::kRegionChunkBytesMax + 1;
  ASSERT_EQ(ftruncate(memory.fd(), static_cast<off_t>(large)), 0);
  ASSERT_TRUE(regions_.add(memory.region()).ok());
  EXPECT_EQ(field(in_region(1, 0, large, 0, large)), "data.length");
  EXPECT_EQ(regions_.take_bytes_read().memory, 0u);
}

TEST_F(SharedStep, WithBytesBesideItsPlaceFails) {
  const Memory memory("12345678");
  ASSERT_TRUE(regions_.add(memory.region()).ok());
  auto both = in_region(1, 0, 8, 0, 8);
  both.mutable_data()->set_data("12345678");
  EXPECT_EQ(field(both), "data.data");
}

TEST_F(SharedStep, OfARegionThatShrankFails) {
  const Memory memory("12345678");
  ASSERT_TRUE(regions_.add(memory.region()).ok());
  ASSERT_EQ(ftruncate(memory.fd(), 3), 0);
  EXPECT_EQ(field(in_region(1, 0, 8, 0, 8)), "data.length");
}

// Parts of a large one are read at a time.
TEST_F(SharedStep, OfALargeRegionThatShrankIsReadToItsEnd) {
  std::string content(3 << 20, 0);
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i >> 10 ^ i);
  const Memory large(content);
  ASSERT_TRUE(regions_.add(large.region()).ok());
  const std::uint64_t left = (1 << 20) + 300'001;
  ASSERT_EQ(ftruncate(large.fd(), static_cast<off_t>(left)), 0);
  RegionReader reader = regions_.reader(in_region(1, 0, content.size(), 0, content.size()).data());
  std::vector<std::uint8_t> read(content.size());
  std::size_t at = 0;
  int times = 0, done_meanwhile = 0;
  for (std::size_t got = 1; got > 0; at += got, ++times)
    got = reader.read(read.size() - at, read.data() + at, [&] { ++done_meanwhile; });
  EXPECT_EQ(std::string(read.begin(), read.begin() + static_cast<std::ptrdiff_t>(at)), content.substr(0, left));
  EXPECT_EQ(done_meanwhile, times);
}

TEST_F(SharedStep, OfADroppedRegionFailsAndWhatWasTakenStays) {
  const Memory memory("12345678");
  ASSERT_TRUE(regions_.add(memory.region()).ok());
  auto frames = frames_of_a_step(1);
  frames[6] = in_region(1, 0, 8, 0, 8);
  const std::vector<v1::AuditRequest> first(frames.begin(), frames.begin() + 7);
  EXPECT_EQ(offer(*assembler_, first).progress, Progress::kTaken);
  EXPECT_TRUE(regions_.drop(1).ok());
  ASSERT_EQ(pwrite(memory.fd(), "XXXXXXXX", 8, 0), 8);
  EXPECT_EQ(offer(*assembler_, {frames.begin() + 7, frames.end()}).progress, Progress::kStepDone);
  const auto bytes = assembler_->take_step().trace->payloads.at(1);
  EXPECT_EQ(std::string(bytes->begin(), bytes->end()), "12345678");
  EXPECT_EQ(field(in_region(1, 0, 8, 0, 8)), "data.region");
}

TEST(Assembler, WithoutRegionsRefusesToReadFromOne) {
  TraceAssembler assembler(options_of_a_run());
  auto frames = frames_of_a_step(1);
  frames[6] = in_region(1, 0, 8, 0, 8);
  EXPECT_EQ(offer(assembler, frames).violation.field, "data.region");
}

// Memory of a device that is not there: what tests put into it, and how many hold it open.
struct FakeDeviceMemory {
  std::string content;
  std::string broken;  // Why it cannot be read; empty: it can.
  int open = 0;
  std::string device = std::string(16, 'u'), handle = std::string(64, 'h');

  OpenDeviceMemory opener() {
    return [this](const std::string& asked_device,
                  const std::string& asked_handle) -> absl::StatusOr<std::unique_ptr<SharedDeviceMemory>> {
      if (asked_device != device) return absl::NotFoundError("no device of this UUID");
      if (asked_handle != handle) return absl::InvalidArgumentError("invalid resource handle");
      return std::make_unique<Opened>(this);
    };
  }
  v1::Region region(std::uint64_t size) const {
    v1::Region region;
    region.set_region(1);
    region.set_process(getpid());
    region.set_size(size);
    region.mutable_cuda()->set_device(device);
    region.mutable_cuda()->set_handle(handle);
    return region;
  }

 private:
  class Opened final : public SharedDeviceMemory {
   public:
    explicit Opened(FakeDeviceMemory* memory) : memory_(memory) { ++memory_->open; }
    ~Opened() override { --memory_->open; }
    std::uint64_t size() const override { return memory_->content.size(); }
    absl::Status copy(std::uint64_t offset, std::uint64_t bytes, void* to) override {
      if (!memory_->broken.empty()) return absl::InternalError(memory_->broken);
      memory_->content.copy(static_cast<char*>(to), bytes, offset);
      return absl::OkStatus();
    }

   private:
    FakeDeviceMemory* const memory_;
  };
};

std::string refusal_of_device(const v1::Region& region, FakeDeviceMemory& memory, SharedRegions::Owner owner = {}) {
  SharedRegions regions(owner, memory.opener());
  const Violation wrong = regions.add(region);
  EXPECT_EQ(memory.open, wrong.ok() ? 1 : 0) << "what is refused is not held";
  return wrong.message();
}

TEST(DeviceRegions, SayWhatIsWrongWithAHandle) {
  FakeDeviceMemory memory{"12345678", ""};
  const v1::Region good = memory.region(8);
  EXPECT_EQ(refusal_of_device(good, memory), "");
  SharedRegions without({});
  const Violation none = without.add(good);
  EXPECT_EQ(none.code, absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(none.message(),
            "region.cuda: expected a memfd: this daemon has no CUDA device, found memory of a CUDA device");
  v1::Region wrong = good;
  wrong.mutable_cuda()->set_handle("short");
  EXPECT_EQ(refusal_of_device(wrong, memory), "region.cuda.handle: expected a handle of 64 bytes, found 5 bytes");
  wrong = good;
  wrong.mutable_cuda()->set_handle(std::string(64, 'x'));
  EXPECT_EQ(refusal_of_device(wrong, memory),
            "region.cuda.handle: expected memory that a process of this node shares, found what cannot be opened: "
            "invalid resource handle");
  wrong = good;
  wrong.mutable_cuda()->clear_device();
  EXPECT_EQ(refusal_of_device(wrong, memory), "region.cuda.device: expected a UUID of 16 bytes, found 0 bytes");
  wrong = good;
  wrong.set_size(9);
  EXPECT_EQ(refusal_of_device(wrong, memory), "region.size: expected 1 to the allocation's 8 bytes, found 9");
  // Beyond the largest process id of Linux.
  EXPECT_EQ(refusal_of_device(good, memory, {geteuid(), INT32_MAX}),
            "region.process: expected a process of this node that is alive, found 2147483647");
  EXPECT_NE(
      refusal_of_device(good, memory, {geteuid() + 1, getpid()}).find("region.process: expected a process of user"),
      std::string::npos);
}

TEST(DeviceRegions, AreOfTheProcessThatRegisteredThem) {
  FakeDeviceMemory memory{"12345678", ""};
  DeviceHandles handles;
  const pid_t parent = getppid();
  struct stat process {};
  ASSERT_EQ(stat(("/proc/" + std::to_string(parent)).c_str(), &process), 0);
  SharedRegions other({process.st_uid, parent}, memory.opener(), &handles);
  {
    SharedRegions first({}, memory.opener(), &handles), second({}, memory.opener(), &handles);
    ASSERT_TRUE(first.add(memory.region(8)).ok());
    ASSERT_TRUE(second.add(memory.region(8)).ok());
    first.clear();
    const Violation wrong = other.add(memory.region(8));
    EXPECT_EQ(wrong.code, absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(wrong.field, "region.cuda.handle");
  }
  EXPECT_TRUE(other.add(memory.region(8)).ok()) << "nobody holds it any more";
}

TEST(DeviceRegions, AreReadLikeMemoryAndClosedWithTheirStream) {
  FakeDeviceMemory memory{"xx12345678", ""};
  {
    SharedRegions regions({}, memory.opener());
    ASSERT_TRUE(regions.add(memory.region(10)).ok());
    TraceAssembler assembler(options_with(regions));
    ASSERT_EQ(begin_step(assembler), Progress::kTaken);
    EXPECT_EQ(assembler.add(in_region(1, 0, 8, 2, 4)).progress, Progress::kTaken);
    EXPECT_EQ(assembler.add(in_region(1, 4, 8, 6, 4)).progress, Progress::kTaken);
    EXPECT_EQ(regions.take_bytes_read().device, 8u);
    memory.broken = "an illegal address was met";
    const auto broken = assembler.add(in_region(2, 0, 8, 2, 8));
    EXPECT_EQ(broken.progress, Progress::kStepFailed);
    EXPECT_EQ(broken.violation.message(),
              "data.length: expected 8 bytes, found only 0: the device's memory cannot be read: an illegal address was "
              "met");
    EXPECT_EQ(memory.open, 1);
  }
  EXPECT_EQ(memory.open, 0);
}

TEST(DeviceRegions, WhatIsDroppedIsClosedAtOnceAndUnknownToTheNextChunk) {
  FakeDeviceMemory memory{"12345678", ""};
  SharedRegions regions({}, memory.opener());
  ASSERT_TRUE(regions.add(memory.region(8)).ok());
  TraceAssembler assembler(options_with(regions));
  ASSERT_EQ(begin_step(assembler), Progress::kTaken);
  EXPECT_EQ(assembler.add(in_region(1, 0, 8, 0, 4)).progress, Progress::kTaken);
  EXPECT_TRUE(regions.drop(1).ok());
  EXPECT_EQ(memory.open, 0);
  EXPECT_EQ(assembler.add(in_region(1, 4, 8, 4, 4)).violation.field, "data.region");
  EXPECT_EQ(regions.take_bytes_read().device, 4u) << "counted although its region is gone";
}

}  // namespace
}  // namespace plumbline
