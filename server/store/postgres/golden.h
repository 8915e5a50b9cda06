// Golden runs in the shared history.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "server/ingest/golden_outbox.h"
#include "server/store/postgres/postgres.h"
#include "server/store/shared_golden.h"
#include "server/store/shared_reader.h"

namespace plumbline {

// Golden runs, or what is recorded of reference runs: the beginning of their tables' names.
enum class GoldenKind { kGolden, kPair };

// Within a transaction that writes, of the daemon `node`. `answer`: why the history does not take it: its golden run of
// this name is another run's or another user's. INVALID_ARGUMENT: a text that PostgreSQL cannot hold.
absl::Status write_golden(const PostgresConnection& connection, GoldenKind kind, const GoldenOutbox::Shipment& shipment,
                          const std::string& node, absl::Status* answer);

// One connection, which is made when it is needed first: who asks takes turns.
class PostgresGolden final : public SharedGolden {
 public:
  PostgresGolden(GoldenKind kind, PostgresSettings settings, SharedReader* reader)  // The reader outlives it.
      : kind_(kind), connection_(std::move(settings)), reader_(reader) {}

  absl::StatusOr<Reach> reach(const std::string& project, const std::string& name, std::int32_t rank,
                              std::int64_t step) override;

  absl::StatusOr<Origin> origin(const std::string& project, const std::string& name) override;
  absl::StatusOr<std::shared_ptr<const GoldenStep>> load(const std::string& project, const std::string& name,
                                                         const std::string& run, std::int32_t rank,
                                                         std::int64_t step) override;
  bool sees(const Visibility& here, const std::string& project, const Origin& origin) const override;

 private:
  absl::StatusOr<Origin> find(const std::string& project, const std::string& name) const;
  absl::StatusOr<GoldenStep> read(const std::string& project, const std::string& name, std::int32_t rank,
                                  std::int64_t step) const;
  // Tells the reader, too, where the history does not answer; the status.
  absl::Status told(const absl::Status& status) const;

  const GoldenKind kind_;
  std::mutex mutex_;
  const PostgresConnection connection_;
  SharedReader* const reader_;
};

}  // namespace plumbline
