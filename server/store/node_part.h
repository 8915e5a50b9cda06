// What a daemon tells the others of a step whose ranks stream to several of them, as the store keeps it until it is
// shipped, and the shared history until the step has one verdict.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/ingest/trace.h"

namespace plumbline {

struct NodePartRow {
  StepIdentity step;                // Of the lowest rank that streams to the daemon.
  std::vector<std::int32_t> ranks;  // All that do, ascending.
  std::int32_t ranks_of_run = 0;
  std::string digest;  // Of their traces.
  std::string part;    // A serialized plumbline.v1.NodePart.
};

// A step of which all parts are there, or are waited for no longer.
struct NodeStep {
  StepIdentity step;  // Without a rank.
  std::int32_t ranks_of_run = 0;
  std::string owner;               // Of the run, as the daemon of its lowest rank knows it.
  std::string fault;               // Why its parts are not one step's; empty: they are.
  std::vector<std::string> parts;  // Ascending by rank.
};

// Makes the verdict of all ranks, and stores it in the daemon's own history: OK once that is durable.
using JudgeNodes = std::function<absl::Status(const NodeStep&)>;

}  // namespace plumbline
