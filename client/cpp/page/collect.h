// Asks the daemon for what the page shows, and leaves out what would make it too large, saying so.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "client/cpp/client.h"
#include "client/cpp/page/sources.h"
#include "client/page/page.pb.h"

namespace plumbline {

struct PageLimits {
  std::size_t steps = 1000;  // In charts and tables: the last ones.
  std::size_t type_ii = 50;  // TYPE_II steps before these that are listed all the same.
  std::size_t full = 24;     // Steps with taps, contributors and notes.
  // All that takes no more as JSON; a step in full is left out for it, but not the first TYPE_II.
  std::size_t bytes = 400'000;
  std::size_t taps = 60;              // A step shows no more,
  int aligned = 80;                   // and of the operations side by side those around where the programs part.
  std::size_t text_bytes = 16 << 10;  // One sentence or reproducer is no longer.
  std::size_t jobs = 200;
  std::size_t runs = 100, refused = 100, audits = 100;
};

// Thread-safe. Errors: the daemon's.
class Collector {
 public:
  Collector(Client& client, std::filesystem::path sources, PageLimits limits = {})
      : client_(client), limits_(limits), sources_(std::move(sources)) {}

  absl::Status head(const std::string& server, page::Page* page);  // When, and what answers.
  absl::Status jobs(const std::string& project, page::Page* page);
  absl::Status job(const std::string& project, const std::string& job, bool reproducer, page::Page* page);
  absl::StatusOr<page::Step> step(const std::string& id, bool reproducer);

 private:
  void take_alignment(v1::Verdict* verdict) const;
  void take_taps(v1::Verdict* verdict, std::uint32_t* left_out) const;
  absl::Status add_full(const std::vector<v1::Verdict>& steps, bool reproducer, page::Job* job);
  double drift(const v1::Verdict& verdict, std::size_t* bytes);

  Client& client_;
  const PageLimits limits_;
  std::mutex mutex_;
  Sources sources_;                       // Guarded by mutex_.
  std::map<std::string, double> drifts_;  // The key is a verdict's id and digest; guarded by mutex_.
  // The key is the summary's bytes, so that what did not change is not asked for again.
  std::map<std::string, page::JobRow> rows_;
};

}  // namespace plumbline
