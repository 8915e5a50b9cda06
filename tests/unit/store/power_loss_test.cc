// An acknowledged verdict survives power loss; and a store on a disk that lies about syncing does lose some, which
// shows that this test can tell.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "tests/unit/store/power_loss_vfs.h"
#include "tests/unit/store/sample.h"

namespace plumbline {
namespace {

constexpr std::size_t kWaitingMax = 2000;

struct Loss {
  std::size_t acknowledged = 0;
  std::size_t lost = 0;  // Acknowledged before the power failed, and not there after.
  bool opens = false;    // The database that is left opens without an error.
  bool goes_on = false;  // And takes further verdicts.
};

// Lets four threads append until about `verdicts` are acknowledged, cuts the power at a moment that suits nobody, and
// opens what is left.
Loss cut_power(bool disk_syncs, std::size_t verdicts, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string pattern = testing::TempDir() + "plumbline-power-XXXXXX";
  const std::string dir = mkdtemp(pattern.data());
  const std::string after = dir + "/after";
  reset_power_loss_vfs(disk_syncs);

  Loss loss;
  std::mutex mutex;
  std::set<std::string> acknowledged;
  {
    auto store = open_sqlite_store(dir + "/before", {"power_loss", {}});
    EXPECT_TRUE(store.ok()) << store.status();
    if (!store.ok()) return loss;
    bool cut = false;
    std::size_t appended = 0;
    std::vector<std::thread> writers;
    for (int writer = 0; writer < 4; ++writer) {
      writers.emplace_back([&, writer] {
        for (std::int64_t step = 0;; ++step) {
          const v1::Verdict verdict = to_proto(sample_verdict("job" + std::to_string(writer), step));
          (*store)->append(verdict, {}, "", [&, id = verdict.id()](const absl::Status& status) {
            std::lock_guard lock(mutex);
            if (status.ok()) acknowledged.insert(id);
          });
          if (step % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(500));
          std::unique_lock lock(mutex);
          ++appended;
          while (!cut && appended > acknowledged.size() + kWaitingMax) {  // What waits is committed at the end, too.
            lock.unlock();
            std::this_thread::sleep_for(std::chrono::microseconds(500));
            lock.lock();
          }
          if (cut) return;
        }
      });
    }
    std::set<std::string> before;
    while (before.size() < verdicts) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      std::lock_guard lock(mutex);
      before = acknowledged;
    }
    lose_power(after, random);  // The writers go on meanwhile, as a machine does until it stops.
    {
      std::lock_guard lock(mutex);
      cut = true;
    }
    for (std::thread& writer : writers) writer.join();

    loss.acknowledged = before.size();
    auto left = open_sqlite_store(after);
    loss.opens = left.ok();
    for (const std::string& id : before) loss.lost += !left.ok() || !(*left)->get(id).ok();
    if (left.ok()) loss.goes_on = append(**left, to_proto(sample_verdict("afterwards", 1))).ok();
  }
  std::filesystem::remove_all(dir);
  return loss;
}

TEST(PowerLoss, AcknowledgedVerdictsSurvive) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const Loss loss = cut_power(/*disk_syncs=*/true, 20 * seed, seed);
    EXPECT_GE(loss.acknowledged, 20 * seed);
    EXPECT_TRUE(loss.opens) << "seed " << seed;
    EXPECT_EQ(loss.lost, 0u) << "seed " << seed;
    EXPECT_TRUE(loss.goes_on) << "seed " << seed;
  }
}

// Past the first checkpoint (1000 pages of log) pages move into the database itself.
TEST(PowerLoss, AcknowledgedVerdictsSurviveCheckpoints) {
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    const Loss loss = cut_power(/*disk_syncs=*/true, 4000, seed);
    EXPECT_TRUE(loss.opens) << "seed " << seed;
    EXPECT_EQ(loss.lost, 0u) << "seed " << seed;
  }
}

TEST(PowerLoss, ADiskThatLiesIsFoundOut) {
  std::size_t lost = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) lost += cut_power(/*disk_syncs=*/false, 50, seed).lost;
  EXPECT_GT(lost, 0u);
}

}  // namespace
}  // namespace plumbline
