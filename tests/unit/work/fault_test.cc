// What a task throws ends that task alone.
#include "server/fault/fault.h"

#include <gtest/gtest.h>

#include <future>
#include <new>
#include <stdexcept>

#include "server/work/serial_executor.h"

namespace plumbline {
namespace {

TEST(Fault, IsAnInternalErrorWithAnIdAndIsCounted) {
  const std::uint64_t before = faults();
  const absl::Status first = contained("a test", [] { throw std::out_of_range("secret"); });
  const absl::Status second = contained("a test", [] { throw 7; });
  EXPECT_EQ(first.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(first.message().find("secret"), std::string::npos) << "what was thrown is the log's";
  EXPECT_NE(first.message(), second.message()) << "each has an id of its own";
  EXPECT_EQ(faults(), before + 2);
  EXPECT_TRUE(contained("a test", [] {}).ok());
  EXPECT_EQ(faults(), before + 2);
}

TEST(Fault, OfADisksTaskIsToldAndTheNextTaskRuns) {
  SerialExecutor disk;
  std::promise<absl::Status> told;
  std::promise<void> ran;
  disk.post([] { throw std::bad_alloc(); }, [&told](const absl::Status& fault) { told.set_value(fault); });
  disk.post([] { throw std::bad_alloc(); }, [](const absl::Status&) { throw std::bad_alloc(); });
  disk.post([] { throw std::bad_alloc(); });
  disk.post([&ran] { ran.set_value(); });
  EXPECT_EQ(told.get_future().get().code(), absl::StatusCode::kInternal);
  ran.get_future().get();
}

}  // namespace
}  // namespace plumbline
