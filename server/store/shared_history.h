// The history that several daemons share, as one of them sees it: whatever its own has is shipped there, by a thread of
// its own, and nothing waits for that; and it is read from there (fleet_reader.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/ingest/golden_outbox.h"
#include "server/store/shared_golden.h"
#include "server/store/shared_reader.h"
#include "server/store/ship_trouble.h"
#include "server/store/sqlite/outbox.h"

namespace plumbline {

struct ShipState : Delivery {
  std::uint64_t shipped = 0;      // Records that are in the shared history since the start;
  std::uint64_t turned_away = 0;  // and those that it does not take, which stay in our own alone.
};

// Thread-safe.
class SharedHistory {
 public:
  struct Options {
    std::string url;  // Of check_store_url().
    std::string schema = "plumbline";
    std::string host, version;  // What the history's table of nodes says of this daemon.
    bool same_users = false;    // As SharedReader::Parts.
    absl::Duration connect_timeout = absl::Seconds(5);
    absl::Duration statement_timeout = absl::Seconds(30);
    absl::Duration retry_min = absl::Seconds(1), retry_max = absl::Seconds(30);
    absl::Duration idle_max = absl::Seconds(10);  // Without records: how often it is asked whether it is there.
    // Take, on the shipper's thread, when the history is lost (and why), when it is back (or there at first), and what
    // it turned away. May be empty.
    std::function<void(ShipTrouble, const std::string& why)> lost = {};
    std::function<void()> back = {};
    std::function<void(const std::string& what)> turned_away = {};
    // What of the shared history is kept, whoever shipped it; none: everything. Applied so often, and where that is not
    // possible `untidy` takes why.
    Retention retention = {};
    absl::Duration tidy_every = absl::Minutes(1);
    std::function<void(const std::string& why)> untidy = {};
    // Golden runs to ship, and what is recorded of reference runs; null: none. They outlive the history.
    GoldenOutbox* golden = nullptr;
    GoldenOutbox* pairs = nullptr;
    // Of steps whose ranks stream to several daemons (postgres/node_steps.h): what makes the verdict of all; empty:
    // this daemon makes none. For so long their parts are waited for; so long after that another of them may judge, and
    // so long each has for it.
    JudgeNodes judge_nodes = {};
    absl::Duration nodes_timeout = absl::Minutes(5), others_judge_after = absl::Seconds(10);
    absl::Duration judge_lease = absl::Seconds(30);
    std::function<void(const std::string& why)> unjudged = {};  // Takes why none can be judged.
  };

  virtual ~SharedHistory() = default;  // Ends a statement that runs; an attempt to connect is waited for.
  virtual ShipState state() const = 0;
  // As long as the history:
  virtual SharedReader* reader() = 0;
  virtual SharedGolden* golden() = 0;
  virtual SharedGolden* pairs() = 0;
  // Ships what there is for at most `limit`, where the history is up, and then nothing more.
  virtual void finish(absl::Duration limit) = 0;
};

// INVALID_ARGUMENT: not postgresql://..., or with a password in it; UNIMPLEMENTED: built without PostgreSQL. The text
// repeats nothing of the URL's secrets.
absl::Status check_store_url(const std::string& url);

// Begins to ship. Whether the server is there is no matter. Both must outlive what is returned.
absl::StatusOr<std::unique_ptr<SharedHistory>> open_shared_history(SharedHistory::Options options, SqlStore* store,
                                                                   Outbox* outbox);

}  // namespace plumbline
