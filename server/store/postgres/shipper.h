// The shared history by PostgreSQL: a thread that ships the outbox, again and again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/store/courier.h"
#include "server/store/postgres/golden.h"
#include "server/store/postgres/node_steps.h"
#include "server/store/postgres/postgres.h"
#include "server/store/postgres/retention.h"
#include "server/store/records.h"
#include "server/store/shared_history.h"

namespace plumbline {

// What is in a shipment is written in one transaction, and acknowledged once that is committed: whatever fails, it is
// shipped again, and what is there already stays as it is. An identity has one session at a time, whose lock says so
// (pg_locks); the server ends sessions whose peer is gone within a minute.
class Shipper final : public SharedHistory {
 public:
  Shipper(Options options, SqlStore* store, Outbox* outbox);
  ~Shipper() override;
  Shipper(const Shipper&) = delete;
  Shipper& operator=(const Shipper&) = delete;

  ShipState state() const override;
  SharedReader* reader() override { return &reader_; }
  SharedGolden* golden() override { return &golden_; }
  SharedGolden* pairs() override { return &pairs_; }
  void finish(absl::Duration limit) override;

 private:
  absl::Status ship_all();  // Until nothing is left; also tells whether the history is there.
  absl::Status join();      // Connects, and says who we are; does nothing where that was done in this session.
  absl::Status take_identity();
  absl::Status ship(const Shipment& shipment);
  absl::Status ship_golden(GoldenOutbox* outbox, GoldenKind kind);  // Until nothing is left; null: nothing.
  absl::Status tell_shipped(std::int64_t through);  // The others, up to which of our sequences verdicts are there.
  absl::Status remove(const Shipment::Removal& removal);
  absl::Status begin();  // A transaction of the session that has joined.
  // Runs `write` within the transaction, which goes on where this record alone cannot be stored.
  absl::Status one(const std::string& what, const std::function<absl::Status(absl::Status* answer)>& write);
  // Whether the history's run of this name is ours; makes the run where there is none.
  absl::StatusOr<bool> ours(const StepIdentity& run, const std::string& owner, std::int64_t time_us);
  absl::Status tried(absl::Status shipped);  // Tells the reader, too, whether the history is there; the status.

  const Options options_;
  SqlStore* const store_;
  Outbox* const outbox_;
  const std::string instance_;  // Of this process: our own session that was cut off is not another daemon.
  const PostgresConnection connection_;
  SharedReader reader_;
  PostgresGolden golden_, pairs_;
  std::unique_ptr<SharedRetention> retention_;  // Null: everything is kept.
  std::unique_ptr<NodeSteps> nodes_;            // Null: this daemon judges no step of several.
  std::optional<RecordWriter> writer_;
  std::string history_;                // Which one it is.
  int joined_ = 0;                     // The session that has joined, by its process on the server; 0: none.
  std::map<std::string, bool> owned_;  // Within a transaction, by run: ours().
  std::vector<std::string> turned_;    // Within a transaction: what it does not take.
  std::uint64_t handle_ = 0;

  mutable std::mutex mutex_;
  ShipState state_;  // Less what the courier knows.
  const std::function<bool()> stop_;
  Courier courier_;  // Last: it uses all of the above.
};

}  // namespace plumbline
