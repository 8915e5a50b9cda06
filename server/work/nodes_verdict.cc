#include "server/work/nodes_verdict.h"

#include <chrono>
#include <functional>
#include <future>

#include "server/log/log.h"
#include "server/nodes/combine.h"
#include "server/work/ranks_here.h"

namespace plumbline {
namespace {

absl::Status stored(const std::function<void(VerdictStore::Done)>& write) {
  std::promise<absl::Status> answer;
  write([&](const absl::Status& status) { answer.set_value({status.code(), status.message()}); });
  return answer.get_future().get();
}

// What the metrics count of it. Its operations are in those of the nodes' own verdicts.
Verdict counted(const StepIdentity& step, const v1::Verdict& wire) {
  Verdict verdict;
  verdict.identity = step;
  verdict.outcome = static_cast<Outcome>(wire.verdict());
  verdict.grade = static_cast<Grade>(wire.grade());
  verdict.cause = static_cast<Cause>(wire.cause());
  verdict.margin = wire.margin();
  verdict.exec_resolution = wire.exec_resolution();
  if (wire.has_surprise()) verdict.surprise = wire.surprise();
  return verdict;
}

}  // namespace

absl::Status judge_nodes(const NodeStep& step, absl::Duration waited, VerdictStore* store, Metrics* metrics) {
  StepOfNodes of{step.step, step.ranks_of_run, step.parts, step.fault, absl::FormatDuration(waited)};
  of.step.rank = kAllRanks;
  const auto known = store->digest_of(of.step);
  if (!known.ok() || *known) return known.status();  // It was made here, and is still to be shipped.
  v1::Verdict verdict = combine(of);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::int64_t now_us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  verdict.mutable_time()->set_seconds(now_us / 1'000'000);
  verdict.mutable_time()->set_nanos(static_cast<std::int32_t>(now_us % 1'000'000) * 1000);
  const absl::Status opened =
      stored([&](VerdictStore::Done done) { store->open_run(of.step, step.owner, "", std::move(done)); });
  if (!opened.ok()) return opened;
  const absl::Status appended =
      stored([&](VerdictStore::Done done) { store->append(verdict, {}, "", std::move(done)); });
  if (!appended.ok()) return appended;
  if (metrics != nullptr) metrics->add_verdict(counted(of.step, verdict));
  if (verdict.verdict() == v1::OUTCOME_TYPE_II) {
    log_event(LogLevel::kWarning, "type_ii",
              {{"verdict", verdict.id()}, {"trace_id", verdict.trace_id()}, {"says", verdict.sentence()}});
  }
  return absl::OkStatus();
}

}  // namespace plumbline
