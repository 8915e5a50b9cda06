// Verdicts for tests.
#pragma once

#include <future>
#include <string>

#include "server/store/encode.h"
#include "server/store/store.h"

namespace plumbline {

inline Verdict sample_verdict(const std::string& job, std::int64_t step, Outcome outcome = Outcome::kTypeI,
                              double margin = 0.5, double surprise = 0.25) {
  Verdict verdict;
  verdict.identity = {"default", job, "run-1", 0, step};
  verdict.time_unix_us = 1'700'000'000'000'000 + step * 1'000'000;
  verdict.outcome = outcome;
  verdict.grade = Grade::kProven;
  verdict.cause = outcome == Outcome::kTypeII ? Cause::kMathematics : Cause::kRounding;
  verdict.sentence = "Rounding explains the deviation of the loss.";
  verdict.surprise = surprise;
  verdict.margin = margin;
  verdict.digest = std::string(32, 'a');
  verdict.audit_seconds = 0.25;
  verdict.coverage.operations = 10;
  verdict.coverage.audited = 9;
  verdict.coverage.opaque = 1;
  verdict.taps.resize(2);
  verdict.taps[0].name = "loss";
  verdict.taps[1].name = "grad:w";
  verdict.contributors.push_back({{"aten::mm", "train.py:7", "head", "fp32"}, 0.75, 3});
  AlignedOperation operation;
  operation.target = Place{"aten::div", "train.py:8", "head", "fp32"};
  operation.deviation = 0.25;
  operation.allowed = 1e-15;
  verdict.alignment = Alignment{{operation}, 0, 0, 0, 3, 1, 0, 0};
  return verdict;
}

// A status of its own: a shared one is counted in a library that the thread sanitizer does not see.
inline absl::Status own(const absl::Status& status) { return {status.code(), status.message()}; }

// Appends and waits for the answer.
inline absl::Status append(VerdictStore& store, const v1::Verdict& verdict, const Missed& missed = {}) {
  std::promise<absl::Status> answer;
  store.append(verdict, missed, "", [&](const absl::Status& status) { answer.set_value(own(status)); });
  return answer.get_future().get();
}

inline absl::Status append_error(VerdictStore& store, const StepIdentity& step, const absl::Status& error,
                                 const Missed& missed = {}, const std::string& trace_id = "") {
  std::promise<absl::Status> answer;
  store.append_error(step, error, missed, trace_id, [&](const absl::Status& status) { answer.set_value(own(status)); });
  return answer.get_future().get();
}

inline absl::Status open_run(VerdictStore& store, const StepIdentity& run) {
  std::promise<absl::Status> answer;
  store.open_run(run, "", "1.0", [&](const absl::Status& status) { answer.set_value(own(status)); });
  return answer.get_future().get();
}

}  // namespace plumbline
