// The verdicts of all daemons that share a history, as they come: ours from our own history, at once and whether or not
// they are shipped, those of the others from the shared one. Each of the two is in the order of its sequences, which is
// that of its commits (FORMAT.md), so that whoever goes on from the last sequences misses nothing and sees nothing
// twice.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/shared_reader.h"
#include "server/store/sql_store.h"

namespace plumbline {

// Not thread-safe, but for subscribe() and unsubscribe().
class FleetFeed {
 public:
  struct Page {
    std::vector<v1::Verdict> verdicts;  // Whole.
    bool more = false;                  // Ask again; otherwise once there was a commit.
  };

  // Both must outlive the feed; `shared` may be null. What it asks of the shared history is given up once `stop` says
  // so.
  FleetFeed(SqlStore* own, SharedReader* shared, Stop stop = {}) : own_(own), shared_(shared), stop_(std::move(stop)) {}

  // From now on, or with all of the past first. Subscribe before. While the shared history is away the feed is of our
  // own; the others' verdicts follow when it is back, where it was there at the beginning or the past was asked for
  // all of them, otherwise those that come from then on.
  absl::Status begin(bool include_past);
  // In place of begin(): on from where a token of the same filter says. INVALID_ARGUMENT: it is none. ABORTED: it is of
  // another data directory, or of one that lost what the token is behind.
  absl::Status resume(const v1::Filter& filter, const std::string& token);
  // Where the feed is, which resume() goes on from, in this process or another one. Printable; no secret.
  std::string token(const v1::Filter& filter) const;
  // The next verdicts that match, at most twice `limit`, each with the token of what comes after it. ABORTED: the
  // shared history was made anew.
  absl::StatusOr<Page> next(const v1::Filter& filter, const Visibility& seen, int limit);
  // "fleet", or "own", followed by ": " and the reason where a history is shared; in printable ASCII.
  std::string scope() const;

  std::pair<std::uint64_t, std::uint64_t> subscribe(const std::function<void()>& listener);
  void unsubscribe(std::pair<std::uint64_t, std::uint64_t> handles);

 private:
  void failed(const absl::Status& status) const;
  absl::Status next_shared(const v1::Filter& filter, const Visibility& seen, int limit, Page* page);

  SqlStore* const own_;
  SharedReader* const shared_;
  const Stop stop_;
  std::string own_history_;  // The data directory's identity.
  bool include_past_ = false;
  std::string history_;  // The shared one's identity, once it was asked.
  // Everything that matches up to these was told: of our own, and of the shared history first of the past, up to
  // its end, then of the others.
  std::int64_t own_after_ = 0, past_after_ = 0, past_through_ = 0, others_after_ = 0;
};

}  // namespace plumbline
