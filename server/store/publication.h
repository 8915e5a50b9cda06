// The stream of verdicts, as one of the daemons that publish to it sees it: whatever its own history has is published
// there, by a thread of its own, in the order of commits, and nothing waits for that. The history stays the truth: what
// the stream has lost is published again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/nats/connect.h"
#include "server/store/ship_trouble.h"
#include "server/store/sqlite/publish_cursor.h"

namespace plumbline {

struct PublishState : Delivery {
  std::uint64_t published = 0;    // Verdicts that the stream acknowledged since the start,
  std::uint64_t known = 0;        // of which it had so many already;
  std::uint64_t turned_away = 0;  // those that it does not take, for their size;
  std::uint64_t replays = 0;      // times that it had lost some, and was filled again.
};

// Thread-safe.
class Publication {
 public:
  struct Options {
    NatsSettings server;  // Of check_nats_settings().
    std::string host;     // Messages name this daemon HOST/IDENTITY.
    absl::Duration retry_min = absl::Seconds(1), retry_max = absl::Seconds(30);
    absl::Duration idle_max = absl::Seconds(10);  // Without verdicts: how often it is asked whether it has all of them.
    // Of a stream that is made: for so long it remembers which messages it has.
    absl::Duration duplicates_window = absl::Minutes(20);
    // Take, on the publisher's thread, when the stream is lost (and why), when it is back (or there at first), that it
    // is filled again (and why), and what it turned away. May be empty.
    std::function<void(ShipTrouble, const std::string& why)> lost = {};
    std::function<void()> back = {};
    std::function<void(const std::string& why)> replayed = {};
    std::function<void(const std::string& what)> turned_away = {};
  };

  virtual ~Publication() = default;  // Waits for an attempt to connect.
  virtual PublishState state() const = 0;
  // Publishes what there is for at most `limit`, where the stream is up, and then nothing more.
  virtual void finish(absl::Duration limit) = 0;
};

// Begins to publish. Whether the server is there is no matter. Both must outlive what is returned. Errors are those of
// check_nats_settings().
absl::StatusOr<std::unique_ptr<Publication>> open_publication(Publication::Options options, SqlStore* store,
                                                              PublishCursor* cursor);

}  // namespace plumbline
