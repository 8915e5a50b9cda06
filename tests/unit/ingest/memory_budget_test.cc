#include "server/ingest/memory_budget.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

using Answer = MemoryBudget::Answer;

TEST(MemoryBudget, GivesBackWhatWasTaken) {
  MemoryBudget budget(100);
  {
    MemoryBudget::Reservation one(&budget);
    EXPECT_EQ(one.take(60), Answer::kGranted);
    MemoryBudget::Reservation moved = std::move(one);
    EXPECT_EQ(moved.bytes(), 60u);
    EXPECT_EQ(one.bytes(), 0u);
    EXPECT_EQ(budget.used(), 60u);
    EXPECT_EQ(one.take(40), Answer::kGranted) << "what was moved from can be used again";
  }
  EXPECT_EQ(budget.used(), 0u);
}

TEST(MemoryBudget, NeverExceedsItsLimitWhateverIsAsked) {
  MemoryBudget budget(100);
  MemoryBudget::Reservation one(&budget), two(&budget);
  EXPECT_EQ(one.take(100), Answer::kGranted);
  EXPECT_EQ(two.take(UINT64_MAX), Answer::kWait);
  EXPECT_EQ(budget.used(), 100u);
}

TEST(MemoryBudget, RefusesWhoeverWouldMakeEverybodyWait) {
  MemoryBudget budget(100);
  MemoryBudget::Reservation one(&budget), two(&budget), three(&budget);
  ASSERT_EQ(one.take(40), Answer::kGranted);
  ASSERT_EQ(two.take(40), Answer::kGranted);
  ASSERT_EQ(three.take(20), Answer::kGranted);
  EXPECT_EQ(one.take(10), Answer::kWait);
  EXPECT_EQ(two.take(10), Answer::kWait);
  EXPECT_EQ(three.take(1), Answer::kDeadlock);
  three.release();
  EXPECT_EQ(one.take(10), Answer::kGranted);
  EXPECT_EQ(two.take(10), Answer::kGranted);
}

TEST(MemoryBudget, AloneOneIsRefusedAtOnce) {
  MemoryBudget budget(100);
  MemoryBudget::Reservation one(&budget);
  ASSERT_EQ(one.take(90), Answer::kGranted);
  EXPECT_EQ(one.take(20), Answer::kDeadlock);
}

TEST(MemoryBudget, ARelaseBetweenAskingAndWaitingIsNotSleptThrough) {
  MemoryBudget budget(100);
  MemoryBudget::Reservation one(&budget), two(&budget);
  ASSERT_EQ(one.take(90), Answer::kGranted);
  ASSERT_EQ(two.take(20), Answer::kWait);
  one.release();
  bool called = false;
  two.when_released([&called] { called = true; });
  EXPECT_TRUE(called);
}

TEST(MemoryBudget, ReservationsOfAShareTakeNoMoreThanItTogether) {
  MemoryBudget budget(100);
  std::uint64_t limit = 30;
  const auto share =
      std::make_shared<MemoryBudget::Share>(MemoryBudget::Share::Of{"project", "p"}, [&] { return limit; });
  MemoryBudget::Reservation one(&budget, share), two(&budget, share), other(&budget);
  EXPECT_EQ(one.take(20), Answer::kGranted);
  EXPECT_EQ(two.take(20), Answer::kBeyondShare);
  EXPECT_EQ(two.take(UINT64_MAX), Answer::kBeyondShare);
  EXPECT_EQ(two.bytes(), 0u) << "nothing was taken";
  EXPECT_EQ(two.take(10), Answer::kGranted);
  EXPECT_EQ(other.take(70), Answer::kGranted) << "others have the rest";
  {
    const MemoryBudget::Reservation moved = std::move(one);
    EXPECT_EQ(two.take(1), Answer::kBeyondShare) << "what was moved is held yet";
  }
  EXPECT_EQ(two.take(20), Answer::kGranted);
  limit = 5;
  EXPECT_EQ(one.take(1), Answer::kBeyondShare) << "more is held than a new limit allows";
  two.release();
  EXPECT_EQ(one.take(5), Answer::kGranted) << "what was moved from belongs to the share yet";
}

TEST(MemoryBudget, AShareWithinAnotherIsHeldAgainstBoth) {
  using Share = MemoryBudget::Share;
  MemoryBudget budget(100);
  std::uint64_t of_a_job = 20;
  const auto whole = std::make_shared<Share>(Share::Of{"project", "p"}, [] { return 30; });
  const auto first = std::make_shared<Share>(
      Share::Of{"job", "p/a"}, [&] { return of_a_job; }, whole);
  const auto second = std::make_shared<Share>(
      Share::Of{"job", "p/b"}, [&] { return of_a_job; }, whole);
  MemoryBudget::Reservation one(&budget, first), two(&budget, second);
  EXPECT_EQ(one.take(21), Answer::kBeyondShare);
  EXPECT_EQ(one.beyond().of().name, "p/a");
  EXPECT_EQ(one.take(20), Answer::kGranted);
  EXPECT_EQ(two.take(11), Answer::kBeyondShare);
  EXPECT_EQ(two.beyond().of().name, "p") << "the job has room, its project has none";
  EXPECT_EQ(two.take(10), Answer::kGranted);
  EXPECT_EQ(budget.used(*first), 20u);
  EXPECT_EQ(budget.used(*second), 10u);
  EXPECT_EQ(budget.used(*whole), 30u);
  one.give_back(5);
  EXPECT_EQ(budget.used(*first), 15u);
  EXPECT_EQ(two.take(5), Answer::kGranted) << "what one job gave back is the project's";
  one.release();
  two.release();
  EXPECT_EQ(budget.used(*whole), 0u);
  EXPECT_EQ(budget.used(), 0u);
}

TEST(MemoryBudget, APartGivenBackIsOthersAtOnce) {
  MemoryBudget budget(100);
  MemoryBudget::Reservation one(&budget), two(&budget);
  ASSERT_EQ(one.take(90), Answer::kGranted);
  ASSERT_EQ(two.take(20), Answer::kWait);
  bool called = false;
  two.when_released([&called] { called = true; });
  one.give_back(30);
  EXPECT_TRUE(called);
  EXPECT_EQ(one.bytes(), 60u);
  EXPECT_EQ(two.take(20), Answer::kGranted);
  one.give_back(UINT64_MAX);
  EXPECT_EQ(one.bytes(), 0u);
  EXPECT_EQ(budget.used(), 20u);
}

TEST(MemoryBudget, CallsBackOnce) {
  MemoryBudget budget(100);
  MemoryBudget::Reservation one(&budget), two(&budget), three(&budget);
  ASSERT_EQ(one.take(50), Answer::kGranted);
  ASSERT_EQ(three.take(40), Answer::kGranted);
  ASSERT_EQ(two.take(20), Answer::kWait);
  int called = 0;
  two.when_released([&called] { ++called; });
  EXPECT_EQ(called, 0);
  one.release();
  three.release();
  EXPECT_EQ(called, 1);
}

}  // namespace
}  // namespace plumbline
