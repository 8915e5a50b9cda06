#include "server/work/pairing.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

struct Outcomes {
  std::vector<std::string> seen;
  std::function<void(bool)> note(const std::string& name) {
    return [this, name](bool arrived) { seen.push_back(name + (arrived ? " arrived" : " gave up")); };
  }
};

TEST(Pairing, ResumesWhatWaitsWhenItArrives) {
  Pairing pairing;
  Outcomes outcomes;
  pairing.wait("a", kStart, outcomes.note("one"));
  pairing.wait("b", kStart, outcomes.note("other"));
  pairing.wait("a", kStart, outcomes.note("two"));
  pairing.arrived("a");
  pairing.arrived("a");
  EXPECT_EQ(outcomes.seen, (std::vector<std::string>{"one arrived", "two arrived"}));
  EXPECT_EQ(pairing.waiting(), 1u);
}

TEST(Pairing, GivesUpAtTheDeadlineAndNotBefore) {
  Pairing pairing;
  Outcomes outcomes;
  EXPECT_EQ(pairing.next_deadline(), absl::InfiniteFuture());
  pairing.wait("a", kStart + absl::Seconds(60), outcomes.note("late"));
  pairing.wait("b", kStart + absl::Seconds(30), outcomes.note("early"));
  EXPECT_EQ(pairing.next_deadline(), kStart + absl::Seconds(30));
  pairing.expire(kStart + absl::Seconds(30) - absl::Nanoseconds(1));
  EXPECT_TRUE(outcomes.seen.empty());
  pairing.expire(kStart + absl::Seconds(30));
  EXPECT_EQ(outcomes.seen, std::vector<std::string>{"early gave up"});
  pairing.arrived("b");
  EXPECT_EQ(outcomes.seen.size(), 1u) << "only once";
  pairing.expire(absl::InfiniteFuture());
  EXPECT_EQ(outcomes.seen.back(), "late gave up");
  EXPECT_EQ(pairing.waiting(), 0u);
}

TEST(Pairing, WhatIsResumedMayWaitAgain) {
  Pairing pairing;
  int resumed = 0;
  pairing.wait("a", kStart, [&](bool) {
    ++resumed;
    pairing.wait("a", kStart + absl::Seconds(1), [&](bool) { ++resumed; });
  });
  pairing.arrived("a");
  EXPECT_EQ(resumed, 1);
  pairing.arrived("a");
  EXPECT_EQ(resumed, 2);
}

}  // namespace
}  // namespace plumbline
