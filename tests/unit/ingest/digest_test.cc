#include <gtest/gtest.h>

#include <set>

#include "tests/unit/ingest/frames_of_a_step.h"

namespace plumbline {
namespace {

std::string digest(const std::vector<v1::AuditRequest>& frames) {
  const auto trace = trace_of(frames);
  return trace == nullptr ? "" : trace->digest;
}

TEST(Digest, IsTheSameForAStepSentAgain) { EXPECT_EQ(digest(frames_of_a_step(1)), digest(frames_of_a_step(1))); }

TEST(Digest, DoesNotDependOnWhatWasMissedBefore) {
  auto frames = frames_of_a_step(1);
  frames[0].mutable_step_begin()->set_missed(3);
  frames[0].mutable_step_begin()->add_missed_reasons("queue_full");
  EXPECT_EQ(digest(frames), digest(frames_of_a_step(1)));
}

TEST(Digest, DoesNotDependOnTheTraceId) {
  auto frames = frames_of_a_step(1);
  frames[0].mutable_step_begin()->set_trace_id(std::string(32, 'a'));
  EXPECT_EQ(digest(frames), digest(frames_of_a_step(1)));
}

TEST(Digest, ChangesWithAnythingOfTheStep) {
  std::set<std::string> digests = {"", digest(frames_of_a_step(1)), digest(frames_of_a_step(2))};
  auto content = frames_of_a_step(1);
  content[6].mutable_data()->set_data("12345679");
  digests.insert(digest(content));
  auto swapped = frames_of_a_step(1);
  swapped[6].mutable_data()->set_payload(2);
  swapped[7].mutable_data()->set_payload(1);
  digests.insert(digest(swapped));
  auto name = frames_of_a_step(1);
  name[4].mutable_tap()->set_name("z");
  digests.insert(digest(name));
  auto source = frames_of_a_step(1);
  source[3].mutable_op()->set_source("train.py:1");
  digests.insert(digest(source));
  auto outputs = frames_of_a_step(1);
  outputs[0].mutable_step_begin()->set_outputs(true);
  digests.insert(digest(outputs));
  EXPECT_EQ(digests.size(), 8u);
}

}  // namespace
}  // namespace plumbline
