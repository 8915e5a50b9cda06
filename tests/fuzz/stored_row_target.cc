// Rows of the database as a damaged disk, or another program, may have left them: what the daemon answers from them. An
// input is up to four pieces, each after its length: a verdict's summary, its detail, what a run remembers, and the
// numbers of the row.
#include <cstring>

#include "client/cpp/format.h"
#include "plumbline/v1/archive.pb.h"
#include "server/ingest/step_memory.h"
#include "server/store/sqlite/sqlite.h"
#include "tests/fuzz/database.h"
#include "tests/fuzz/pieces.h"

namespace plumbline::fuzz {
namespace {

constexpr std::size_t kInputMax = 1u << 14;

// Writes behind the store's back.
class Vandal {
 public:
  explicit Vandal(const Database& database)
      : connection_(*SqliteConnection::open(database.file(), "", SqliteConnection::Mode::kCreate)) {
    require(connection_->run("PRAGMA synchronous=OFF").ok(), "the disk is of no interest");
    verdict_ = *connection_->prepare(
        "UPDATE verdicts SET summary=?, detail=?, outcome=?, grade=?, cause=?, time_us=?, operations=?, opaque=?, "
        "surprise=?, margin=? WHERE step=1");
    memory_ = *connection_->prepare(
        "INSERT OR REPLACE INTO memories(project, job, run, rank, memory) VALUES('default', 'job', 'run-1', 0, ?)");
    run_ = *connection_->prepare("UPDATE runs SET first_seen_us=?, last_seen_us=?, last_step=?");
  }

  void write(const std::vector<std::string_view>& pieces) {
    const auto piece = [&](std::size_t i) { return i < pieces.size() ? pieces[i] : std::string_view(); };
    require(connection_->run("BEGIN").ok(), "the database takes rows");
    verdict_.bind_blob(piece(0)).bind_blob(piece(1));
    for (std::size_t i = 0; i < 6; ++i) verdict_.bind(number<std::int64_t>(piece(3), i));
    for (std::size_t i = 6; i < 8; ++i) verdict_.bind(number<double>(piece(3), i));
    require(verdict_.run().ok(), "any verdict");
    require(memory_.bind_blob(piece(2)).run().ok(), "any memory");
    for (std::size_t i = 8; i < 11; ++i) run_.bind(number<std::int64_t>(piece(3), i));
    require(run_.run().ok(), "any run");
    require(connection_->run("COMMIT").ok(), "the database takes rows");
  }

 private:
  template <typename Number>
  static Number number(std::string_view bytes, std::size_t index) {
    Number value = 0;
    if (bytes.size() >= (index + 1) * sizeof value) std::memcpy(&value, &bytes[index * sizeof value], sizeof value);
    return value;
  }

  const std::unique_ptr<SqliteConnection> connection_;
  SqlStatement verdict_, memory_, run_;
};

void require_answer(const absl::Status& status) {
  require(status.ok() || absl::IsDataLoss(status), "a row is read, or said to be damaged");
}

void ask(const VerdictStore& store) {
  const Visibility all;
  const auto verdict = store.get("default/job/run-1/0/1");
  require_answer(verdict.status());
  if (verdict.ok()) {
    require(!explain_verdict(*verdict).empty() && !format_verdict(*verdict).empty(), "a verdict has a text");
    require(!format_verdicts({*verdict}).empty() && !format_verdict_line(*verdict).empty(), "a verdict has a line");
  }
  for (const Order::Key key : {Order::Key::kTime, Order::Key::kSurprise}) {
    require_answer(store.list({}, {key, true}, nullptr, 10, true, all, {}).status());
  }
  v1::Filter filter;
  filter.set_project("default");
  filter.set_job("job");
  require_answer(store.stats(filter, all, {}).status());
  const auto jobs = store.jobs("", "", "", 10, all, {});
  require_answer(jobs.status());
  if (jobs.ok()) require(!format_jobs(*jobs).empty(), "jobs have a table");
  require_answer(store.runs("default", "job", "", -1, 10, all, {}).status());

  const StepIdentity run{"default", "job", "run-1", 0, 0};
  require(store.last_durable_step(run).ok() && store.digest_of(run).ok(), "a row's numbers are read");
  const auto bytes = store.memory_of(run);
  require(bytes.ok(), "a memory is read");
  v1::TraceHeader::Memory memory;
  TraceRecord record;
  if (memory.ParseFromString(*bytes)) remember(memory, &record);
}

}  // namespace

PLUMBLINE_FUZZ_TARGET(stored_row) {
  if (input.size() > kInputMax) return;
  static const Database database;
  static Vandal vandal(database);
  vandal.write(pieces(input));
  ask(database.store());
}

}  // namespace plumbline::fuzz
