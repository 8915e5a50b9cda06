// One record at a time, written within a transaction of any engine's connection: what a daemon appends to its own
// history, and what it ships to the one that several daemons share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumbline/v1/verdict.pb.h"
#include "server/ingest/trace.h"
#include "server/store/sql.h"
#include "server/store/store.h"

namespace plumbline {

// A verdict cut in two for the row, and what the row says beside it.
struct VerdictRow {
  StepIdentity step;
  v1::Verdict keys;  // Without texts, taps and contributors.
  std::int64_t time_us = 0;
  std::string summary, detail, memory;
};

// INVALID_ARGUMENT: its `id` does not agree with its identity, or it has no `time` or no `digest`.
absl::StatusOr<VerdictRow> make_row(const v1::Verdict& verdict);

// Not thread-safe; each method runs within a transaction that writes. A status that is not OK means that what the
// method did has to be taken back. `answer` is set where the history keeps what it has: that is committed, and told.
class RecordWriter {
 public:
  // The connection must outlive the writer.
  static absl::StatusOr<RecordWriter> prepare(const SqlConnection* connection);

  // As VerdictStore::open_run(), with the times between which the run was seen. `answer`: PERMISSION_DENIED.
  absl::Status open_run(const StepIdentity& run, const std::string& owner, const std::string& client,
                        std::int64_t first_us, std::int64_t last_us, absl::Status* answer);
  // As VerdictStore::append(). `answer`: ALREADY_EXISTS.
  absl::Status verdict(const VerdictRow& row, const Missed& missed, absl::Status* answer);
  // As VerdictStore::append_error(). With a digest: the step's verdict is of another trace, and this one was turned
  // away.
  absl::Status error(const StepIdentity& step, std::string_view digest, const absl::Status& error, const Missed& missed,
                     const std::string& trace_id, std::int64_t time_us);
  // Its run must be there.
  absl::Status gap(const StepIdentity& step, const Missed& missed);

  // Who opened the run; nullopt: nobody did.
  absl::StatusOr<std::optional<std::string>> owner(const StepIdentity& run);

 private:
  explicit RecordWriter(const SqlConnection* connection) : connection_(connection) {}
  absl::Status touch_run(const StepIdentity& run, std::int64_t first_us, std::int64_t last_us,
                         const std::string& owner);
  absl::Status write_error(const StepIdentity& step, std::string_view digest, const absl::Status& error,
                           const std::string& trace_id, std::int64_t time_us);

  const SqlConnection* connection_;
  SqlStatement touch_run_, client_, owner_, digest_, insert_verdict_, clear_error_, insert_error_, insert_gap_,
      remember_;
};

}  // namespace plumbline
