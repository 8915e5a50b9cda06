// Hears of verdicts that other daemons committed.
#pragma once

#include <functional>
#include <thread>

#include "server/store/postgres/postgres.h"

namespace plumbline {

// A thread with a connection of its own, on which the server tells of each commit that added verdicts to the schema.
class PostgresListener {
 public:
  // `notify` runs on the thread: after each such commit (several may be one call), and whenever a connection was made,
  // since anything may have happened before.
  PostgresListener(PostgresSettings settings, std::function<void()> notify);
  ~PostgresListener();  // Waits for the thread: while it connects, up to the limit of that.
  PostgresListener(const PostgresListener&) = delete;
  PostgresListener& operator=(const PostgresListener&) = delete;

 private:
  void run();
  bool listen();                          // Until the connection is lost (true) or the end has come (false).
  bool wait(int descriptor, int for_ms);  // False: the end has come. A negative descriptor is none.

  const PostgresSettings settings_;
  const std::function<void()> notify_;
  const int end_;  // An eventfd.
  std::thread thread_;
};

}  // namespace plumbline
