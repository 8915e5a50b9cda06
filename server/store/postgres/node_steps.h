// Steps whose ranks stream to several daemons, where these meet: each daemon's part is written here, and one of them
// makes the verdict of all ranks once all are there, or were waited for long enough.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/node_part.h"
#include "server/store/postgres/postgres.h"

namespace plumbline {

// Writes a part, within a transaction of a session that says whose it is (plumbline.node). The same part again changes
// nothing. One of a step that has a verdict, or whose verdict is being made, is not taken, nor is one of ranks that
// another daemon gave with other traces, which the step is then told of: `answer` says so.
absl::Status store_node_part(const PostgresConnection& connection, const NodePartRow& part, const std::string& owner,
                             absl::Status* answer);
// Removes the steps of a run, with their parts.
absl::Status forget_node_steps(const PostgresConnection& connection, const StepIdentity& run);

// A thread with a connection of its own. One statement takes the right to judge a step, for a while: then no part is
// added to it any more, so that whoever judges it makes the same verdict. The daemon of the lowest rank comes first,
// another one that has a part in it, and so the same owner, a little later; when the one that took it has not shipped a
// verdict in its while, it is free again. A step goes with its parts once its verdict is in the history, where it is
// one, whoever shipped it. All times are the server's. Thread-safe.
class NodeSteps {
 public:
  struct Options {
    PostgresSettings settings;
    std::string node;  // This daemon's identity.
    JudgeNodes judge;
    absl::Duration deadline = absl::Minutes(5);  // From a step's first part: then it is judged with those there are.
    absl::Duration others_after = absl::Seconds(10);  // From when it may be judged: then any with a part may.
    absl::Duration lease = absl::Seconds(30);
    absl::Duration every = absl::Seconds(1), idle = absl::Seconds(10);  // While there are steps of ours, and not.
    std::function<void(const std::string&)> trouble = {};  // Takes why nothing is judged, once until something is.
  };
  explicit NodeSteps(Options options);
  ~NodeSteps();  // Waits for a verdict that is being stored, or for an attempt to connect.
  NodeSteps(const NodeSteps&) = delete;
  NodeSteps& operator=(const NodeSteps&) = delete;

  void wake();  // A part was shipped.

 private:
  void run();
  absl::StatusOr<bool> attempt();  // Whether steps of ours are there.
  // The next step that this daemon is to judge; false: none.
  absl::StatusOr<bool> claim(NodeStep* step);
  absl::Status load(NodeStep* step);

  const Options options_;
  const PostgresConnection connection_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool end_ = false, due_ = false;
  bool told_ = false;
  const std::function<bool()> stop_;
  std::thread thread_;  // Last: it uses all of the above.
};

}  // namespace plumbline
