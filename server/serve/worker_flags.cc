#include "server/serve/worker_flags.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/serve/address.h"

namespace plumbline {

using absl::StrCat;

namespace {

constexpr int kCpuMax = 256;
constexpr int kCudaMax = 64;
constexpr std::int64_t kDeviceBytesMin = 64 << 20;

}  // namespace

absl::StatusOr<WorkerList> parse_workers(const std::string& text) {
  WorkerList list;
  int position = 0;
  for (const absl::string_view entry : absl::StrSplit(text, ',')) {
    ++position;
    const auto wrong = [&](absl::string_view expected) {
      return absl::InvalidArgumentError(
          StrCat("--workers, entry ", position, ": expected ", expected, ", found \"", entry, "\""));
    };
    absl::string_view rest = entry;
    int number = 1;
    if (absl::ConsumePrefix(&rest, "cuda:")) {
      if (!absl::SimpleAtoi(rest, &number) || number < 0 || number >= kCudaMax) {
        return wrong(StrCat("cuda:N, 0 <= N < ", kCudaMax));
      }
      if (std::find(list.cuda.begin(), list.cuda.end(), number) != list.cuda.end()) {
        return wrong("each device once");
      }
      list.cuda.push_back(number);
      continue;
    }
    if (!absl::ConsumePrefix(&rest, "cpu")) return wrong("cpu, cpu:N or cuda:N");
    if (!rest.empty() && (!absl::ConsumePrefix(&rest, ":") || !absl::SimpleAtoi(rest, &number) || number < 1)) {
      return wrong("cpu or cpu:N, N >= 1");
    }
    if (number > kCpuMax - list.cpu) return wrong(StrCat("at most ", kCpuMax, " cpu workers in all"));
    list.cpu += number;
  }
  return list;
}

absl::StatusOr<DeviceMemory> parse_device_memory(const std::string& text) {
  DeviceMemory wanted;
  absl::string_view rest = text;
  if (absl::ConsumeSuffix(&rest, "%")) {
    if (!absl::SimpleAtod(rest, &wanted.percent) || !(wanted.percent > 0) || wanted.percent > 100) {
      return absl::InvalidArgumentError(
          StrCat("--gpu-memory-limit: expected a share above 0% and at most 100%, found \"", text, "\""));
    }
    return wanted;
  }
  const auto bytes = parse_bytes(text);
  if (!bytes.ok()) return absl::InvalidArgumentError(StrCat("--gpu-memory-limit: ", bytes.status().message()));
  if (*bytes < static_cast<std::uint64_t>(kDeviceBytesMin)) {
    return absl::InvalidArgumentError(
        StrCat("--gpu-memory-limit: expected at least ", kDeviceBytesMin, " bytes, found ", *bytes));
  }
  wanted.bytes = *bytes;
  return wanted;
}

absl::StatusOr<std::int64_t> device_memory_bytes(const DeviceMemory& wanted, std::int64_t total_bytes) {
  if (wanted.bytes > static_cast<std::uint64_t>(total_bytes)) {
    return absl::InvalidArgumentError(
        StrCat("--gpu-memory-limit: expected at most the device's ", total_bytes, " bytes, found ", wanted.bytes));
  }
  if (wanted.bytes > 0) return static_cast<std::int64_t>(wanted.bytes);
  const auto share = static_cast<std::int64_t>(static_cast<double>(total_bytes) / 100 * wanted.percent);
  if (share < kDeviceBytesMin) {
    return absl::InvalidArgumentError(StrCat("--gpu-memory-limit: expected at least ", kDeviceBytesMin,
                                             " bytes, found ", share, ", ", wanted.percent, "% of the device's ",
                                             total_bytes));
  }
  return share;
}

}  // namespace plumbline
