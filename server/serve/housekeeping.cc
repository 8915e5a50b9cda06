#include "server/serve/housekeeping.h"

#include <algorithm>
#include <future>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/serve/address.h"

namespace plumbline {
namespace {

constexpr std::chrono::minutes kEvery{1};
// What is recorded of reference runs for runs at other daemons.
constexpr absl::Duration kPairsAge = absl::Hours(24);
constexpr std::uint64_t kPairsBytes = 1u << 30;

absl::Status wrong(const std::string& rule, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", expected, ", found \"", rule.substr(0, 64), "\""));
}

// Days are no unit of absl's.
bool parse_age(const std::string& text, absl::Duration* age) {
  absl::string_view rest = text;
  double days = 0;
  if (absl::ConsumeSuffix(&rest, "d") && absl::SimpleAtod(rest, &days)) {
    *age = days * absl::Hours(24);
  } else if (!absl::ParseDuration(text, age)) {
    return false;
  }
  return *age > absl::ZeroDuration() && *age != absl::InfiniteDuration();
}

absl::Status add_rule(const std::string& rule, bool bytes_allowed, const std::string& limit, KeepLimits* limits) {
  if (std::all_of(limit.begin(), limit.end(), absl::ascii_isdigit) && absl::SimpleAtoi(limit, &limits->count) &&
      limits->count > 0) {
    return absl::OkStatus();
  }
  if (parse_age(limit, &limits->age)) return absl::OkStatus();
  const auto bytes = parse_bytes(limit);
  if (bytes_allowed && bytes.ok() && *bytes > 0) {
    limits->bytes = *bytes;
    return absl::OkStatus();
  }
  return wrong(rule, bytes_allowed ? "KIND=LIMIT with an age such as 90d, a number or bytes such as 20GiB, above 0"
                                   : "KIND=LIMIT with an age such as 90d or a number, above 0");
}

}  // namespace

absl::StatusOr<KeepRules> parse_retention(const std::vector<std::string>& rules) {
  KeepRules kept;
  const std::map<std::string, std::pair<KeepLimits*, bool>> kinds = {{"verdicts", {&kept.retention.verdicts, true}},
                                                                     {"errors", {&kept.retention.errors, false}},
                                                                     {"runs", {&kept.retention.runs, false}},
                                                                     {"golden", {&kept.golden, true}}};
  for (const std::string& rule : rules) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(rule, absl::MaxSplits('=', 1));
    const auto kind = kinds.find(parts.first);
    if (kind == kinds.end()) return wrong(rule, "KIND=LIMIT with verdicts, errors, runs or golden");
    const auto [limits, bytes_allowed] = kind->second;
    if (auto added = add_rule(rule, bytes_allowed, parts.second, limits); !added.ok()) return added;
  }
  return kept;
}

SoberClock::Wall::time_point SoberClock::now(Wall::time_point wall, Steady::time_point steady) const {
  return std::min(wall, wall_ + std::chrono::duration_cast<Wall::duration>(steady - steady_));
}

Housekeeping::Housekeeping(Parts parts, const KeepRules& rules)
    : parts_(std::move(parts)),
      rules_(rules),
      clock_(SoberClock::Wall::now(), SoberClock::Steady::now()),
      thread_([this] { loop(); }) {}

Housekeeping::~Housekeeping() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Housekeeping::count_soon() {
  {
    const std::lock_guard lock(mutex_);
    count_due_ = true;
  }
  wake_.notify_all();
}

bool Housekeeping::stopping() {
  const std::lock_guard lock(mutex_);
  return stop_;
}

void Housekeeping::loop() {
  std::unique_lock lock(mutex_);
  for (auto due = std::chrono::steady_clock::now(); !stop_;) {
    count_due_ = false;
    lock.unlock();
    try {
      if (std::chrono::steady_clock::now() >= due) {
        sweep();
        due = std::chrono::steady_clock::now() + kEvery;
      }
      count();
    } catch (const std::exception& failure) {
      if (parts_.log) parts_.log(absl::StrCat("--retention: ", failure.what()));
    }
    lock.lock();
    wake_.wait_until(lock, due, [this] { return stop_ || count_due_; });
  }
}

void Housekeeping::count() {
  const absl::Status counted = count_verdicts();
  if (counted.ok() || absl::IsCancelled(counted) || !parts_.log) return;
  parts_.log(absl::StrCat("verdicts of projects and jobs cannot be counted: ", std::string(counted.message())));
}

absl::Status Housekeeping::count_verdicts() {
  const auto stop = [this] { return stopping(); };
  if (const auto projects = parts_.projects->with_verdict_quota(); !projects.empty()) {
    const auto stored = parts_.store->verdicts_of_projects(stop);
    if (!stored.ok()) return stored.status();
    for (const std::string& project : projects) {
      const auto found = stored->find(project);
      parts_.projects->count_verdicts(project, found == stored->end() ? 0 : found->second);
    }
  }
  for (const auto& [project, job] : parts_.projects->jobs_with_verdict_quota()) {
    const auto stored = parts_.store->verdicts_of_job(project, job, stop);
    if (!stored.ok()) return stored.status();
    parts_.projects->count_verdicts(project, job, *stored);
  }
  return absl::OkStatus();
}

void Housekeeping::sweep() {
  const auto now = clock_.now(SoberClock::Wall::now(), SoberClock::Steady::now());
  const auto before = [&](absl::Duration age) {
    return age == absl::InfiniteDuration() ? SoberClock::Wall::time_point::min()
                                           : now - absl::ToChronoMicroseconds(age);
  };
  const Retention& retention = rules_.retention;
  if (retention.verdicts.any() || retention.errors.any() || retention.runs.any()) {
    std::promise<absl::Status> expired;
    parts_.store->expire(
        retention, absl::ToUnixMicros(absl::FromChrono(now)), [this] { return stopping(); },
        [&](const absl::Status& status) { expired.set_value(status); });
    const absl::Status status = expired.get_future().get();
    if (!status.ok() && !absl::IsCancelled(status) && parts_.log)
      parts_.log(absl::StrCat("--retention: ", std::string(status.message())));
  }
  if (retention.verdicts.age != absl::InfiniteDuration()) {
    for (TraceStore* const traces : {parts_.kept, parts_.references}) {
      traces->remove_before(before(retention.verdicts.age));
    }
  }
  if (rules_.golden.any()) parts_.golden->expire(before(rules_.golden.age), rules_.golden.count, rules_.golden.bytes);
  if (parts_.pairs != nullptr) parts_.pairs->expire(before(kPairsAge), 0, kPairsBytes, /*everywhere=*/true);
}

}  // namespace plumbline
