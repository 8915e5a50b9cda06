// Appends of verdicts per second, of each engine of the store, on this machine's disk: with many waiting, as from many
// jobs, and one after the other, as from one job. Both engines sync.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <future>
#include <thread>
#include <vector>

#include "tests/unit/store/postgres_server.h"
#include "tests/unit/store/sqlite_fixture.h"

namespace plumbline {
namespace {

constexpr int kJobs = 8, kStepsOfAJob = 1000, kAlone = 300, kDaemons = 4;

double seconds(const std::chrono::steady_clock::time_point& since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

// A step after the other of each job, all of them in flight, spread over the stores.
double together(const std::vector<std::unique_ptr<VerdictStore>>& stores) {
  std::atomic<int> left = kJobs * kStepsOfAJob;
  std::promise<void> all;
  const auto start = std::chrono::steady_clock::now();
  for (int step = 0; step < kStepsOfAJob; ++step) {
    for (int job = 0; job < kJobs; ++job) {
      stores[static_cast<std::size_t>(job) % stores.size()]->append(
          to_proto(sample_verdict("job" + std::to_string(job), step)), {}, "", [&](const absl::Status& status) {
            if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
            if (--left == 0) all.set_value();
          });
    }
  }
  all.get_future().wait();
  return kJobs * kStepsOfAJob / seconds(start);
}

double alone(VerdictStore& store) {
  const auto start = std::chrono::steady_clock::now();
  for (int step = 0; step < kAlone; ++step) {
    const absl::Status status = append(store, to_proto(sample_verdict("alone", step)));
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  }
  return kAlone / seconds(start);
}

void print(const char* engine, std::size_t daemons, double many, double one) {
  std::printf("{\"engine\":\"%s\",\"daemons\":%zu,\"rows_per_s\":%.0f,\"rows_per_s_one_by_one\":%.0f}\n", engine,
              daemons, many, one);
}

int run() {
  {
    SqliteEngine engine;
    std::vector<std::unique_ptr<VerdictStore>> stores;
    stores.push_back(*engine.open());
    const double many = together(stores);
    print("sqlite", 1, many, alone(*stores[0]));
  }
  PostgresServer server(/*fsync=*/true);
  for (const std::size_t daemons : {1, kDaemons}) {
    std::vector<std::unique_ptr<VerdictStore>> stores;
    const std::string schema = server.fresh_schema();
    for (std::size_t i = 0; i < daemons; ++i) {
      stores.push_back(*open_postgres_store({.url = server.url(), .schema = schema}));
    }
    const double many = together(stores);
    print("postgres", daemons, many, alone(*stores[0]));
  }
  return 0;
}

}  // namespace
}  // namespace plumbline

int main() { return plumbline::run(); }
