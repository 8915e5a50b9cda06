// Verdicts that the disk did not take, by the id of their step. The client sends such a step again; what was judged
// once is stored then, and not judged anew. Thread-safe. The oldest make room for newer ones: such a step is judged
// again.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/judge/verdict.h"
#include "server/store/node_part.h"
#include "server/store/store.h"

namespace plumbline {

struct JudgedStep {
  VerdictRecord wire;
  Verdict verdict;     // The same, for the metrics.
  std::string memory;  // What the run remembers once it is stored; empty: what it did before.
  // What other daemons are told of it, where ranks of its run stream to them.
  std::optional<NodePartRow> part = std::nullopt;
};

class Unstored {
 public:
  static constexpr std::size_t kStepsMax = 256;
  static constexpr std::size_t kBytesMax = std::size_t{64} << 20;  // Serialized verdicts may take no more.

  void put(const std::string& id, std::shared_ptr<const JudgedStep> judged);
  // Null: there is none, or its trace had another digest.
  std::shared_ptr<const JudgedStep> find(const std::string& id, const std::string& digest) const;
  bool holds(const std::string& id) const;
  void remove(const std::string& id);

 private:
  struct Entry {
    std::shared_ptr<const JudgedStep> judged;
    std::size_t bytes = 0;
    std::list<std::string>::iterator age;
  };
  void erase(std::map<std::string, Entry>::iterator entry);  // With the lock held.

  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
  std::list<std::string> ages_;  // Oldest first.
  std::size_t bytes_ = 0;
};

}  // namespace plumbline
