// Verdicts of a daemon's own history in the order of their commits, as they are sent elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumbline/v1/verdict.pb.h"
#include "server/store/sql.h"
#include "server/store/sql_store.h"

namespace plumbline {

struct UnsentVerdicts {
  struct Verdict {
    std::int64_t sequence = 0;
    v1::Verdict verdict;  // Whole.
    std::string owner;    // Of its run; empty: not known.
  };
  std::vector<Verdict> verdicts;
  std::vector<std::string> unreadable;  // What is wrong with rows that are damaged: nobody can send them.
  std::int64_t through = 0;             // The last of them, by sequence.
  bool more = false;                    // Something was left.
};

// Those after a sequence: at most so many, and so many bytes, of which one verdict may have more.
absl::StatusOr<UnsentVerdicts> read_unsent(const SqlConnection& reader, std::int64_t after, int records_max,
                                           std::size_t bytes_max);

struct Backlog {
  std::int64_t records = 0;
  std::int64_t oldest_us = 0;  // When the oldest of them was written; 0: there is none.
};
// By what each statement answers.
absl::StatusOr<Backlog> read_backlog(const SqlConnection& reader, const char* records, const char* oldest_us);

// Makes a change of the store, and waits for its commit.
absl::Status commit_change(SqlStore* store, SqlStore::Change change);

}  // namespace plumbline
