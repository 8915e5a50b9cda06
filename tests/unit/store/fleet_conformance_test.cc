// A daemon that ships what it has is, to whoever reads it through a FleetReader, a store like any other: the same suite
// holds while verdicts move from one history to the other.
#include <utility>

#include "server/store/fleet_reader.h"
#include "tests/unit/store/node.h"

namespace plumbline {
namespace {

// Writes to a daemon's own history, and reads from both.
class FleetStore final : public VerdictStore {
 public:
  explicit FleetStore(std::shared_ptr<Node> node) : node_(std::move(node)) {}
  ~FleetStore() override { node_->close(); }

  void open_run(const StepIdentity& run, const std::string& owner, const std::string& client, Done done) override {
    own().open_run(run, owner, client, std::move(done));
  }
  absl::StatusOr<std::optional<std::string>> owner_of(const StepIdentity& run) const override {
    return own().owner_of(run);
  }
  void append(const VerdictRecord& verdict, const Missed& missed, const std::string& memory, Done done) override {
    own().append(verdict, missed, memory, std::move(done));
  }
  void append_error(const StepIdentity& step, const absl::Status& error, const Missed& missed,
                    const std::string& trace_id, Done done) override {
    own().append_error(step, error, missed, trace_id, std::move(done));
  }
  void expire(const Retention& retention, std::int64_t now_us, Stop stop, Done done) override {
    own().expire(retention, now_us, std::move(stop), std::move(done));
  }
  void remove_job(const std::string& project, const std::string& job, Stop stop, Done done) override {
    own().remove_job(project, job, std::move(stop), std::move(done));
  }
  absl::StatusOr<std::int64_t> last_durable_step(const StepIdentity& run) const override {
    return own().last_durable_step(run);
  }
  absl::StatusOr<bool> was_refused(const StepIdentity& step) const override { return own().was_refused(step); }
  absl::StatusOr<std::string> memory_of(const StepIdentity& run) const override { return own().memory_of(run); }
  absl::StatusOr<std::optional<std::string>> digest_of(const StepIdentity& step) const override {
    return own().digest_of(step);
  }
  absl::StatusOr<VerdictRecord> get(const std::string& id) const override {
    auto found = reader().find(id, {}, {});
    if (found.ok()) found->clear_node();
    return found;
  }
  absl::StatusOr<std::int64_t> last_sequence() const override { return own().last_sequence(); }
  absl::StatusOr<std::map<std::string, std::uint64_t>> verdicts_of_projects(const Stop& stop) const override {
    return own().verdicts_of_projects(stop);
  }
  absl::StatusOr<std::uint64_t> verdicts_of_job(const std::string& project, const std::string& job,
                                                const Stop& stop) const override {
    return own().verdicts_of_job(project, job, stop);
  }
  bool takes_records() const override { return own().takes_records(); }
  std::uint64_t subscribe(std::function<void()> listener) override { return own().subscribe(std::move(listener)); }
  void unsubscribe(std::uint64_t handle) override { own().unsubscribe(handle); }

  absl::StatusOr<std::vector<StoredVerdict>> list(const v1::Filter& filter, const Order& order, const ListPlace* after,
                                                  int limit, bool whole, const Visibility& seen,
                                                  const Stop& stop) const override {
    // From a sequence of its own, a list is of the daemon's own history; from the beginning, of both.
    if (after != nullptr && after->cut.empty() && after->sequence == 0 && after->key.empty()) after = nullptr;
    auto found = reader().list(filter, order, after, limit, whole, seen, stop);
    if (found.ok()) {
      for (StoredVerdict& stored : *found) stored.verdict.clear_node();
    }
    return found;
  }
  // Refusals and gaps count in a job once they are shipped.
  absl::StatusOr<std::vector<v1::JobSummary>> jobs(const std::string& project, const std::string& after_project,
                                                   const std::string& after_job, int limit, const Visibility& seen,
                                                   const Stop& stop) const override {
    EXPECT_TRUE(node_->shipped());
    return reader().jobs(project, after_project, after_job, limit, seen, stop);
  }
  absl::StatusOr<v1::JobSummary> job(const std::string& project, const std::string& job, const Visibility& seen,
                                     const Stop& stop) const override {
    EXPECT_TRUE(node_->shipped());
    return reader().job(project, job, seen, stop);
  }
  absl::StatusOr<std::vector<v1::RunSummary>> runs(const std::string& project, const std::string& job,
                                                   const std::string& after_run, std::int32_t after_rank, int limit,
                                                   const Visibility& seen, const Stop& stop) const override {
    return reader().runs(project, job, after_run, after_rank, limit, seen, stop);
  }
  absl::StatusOr<std::vector<v1::RefusedStep>> errors(const std::string& project, const std::string& job,
                                                      const v1::RefusedStep& after, int limit, const Visibility& seen,
                                                      const Stop& stop) const override {
    return reader().errors(project, job, after, limit, seen, stop);
  }
  absl::StatusOr<v1::Stats> stats(const v1::Filter& filter, const Visibility& seen, const Stop& stop) const override {
    return reader().stats(filter, seen, stop);
  }

 private:
  SqlStore& own() const { return *node_->store; }
  FleetReader reader() const { return {node_->store.get(), node_->history->reader()}; }

  const std::shared_ptr<Node> node_;
};

class FleetEngine final : public StoreEngine {
 public:
  absl::StatusOr<std::unique_ptr<VerdictStore>> open() override {
    node_->statement_timeout = absl::Seconds(30);
    node_->open();
    if (!node_->answers()) return absl::UnavailableError(node_->why());
    return std::make_unique<FleetStore>(node_);
  }

 private:
  const std::shared_ptr<Node> node_ = std::make_shared<Node>(PostgresServer::shared().fresh_schema());
};

std::unique_ptr<StoreEngine> make_fleet() { return std::make_unique<FleetEngine>(); }

INSTANTIATE_TEST_SUITE_P(Fleet, StoreConformance, testing::Values(&make_fleet));

}  // namespace
}  // namespace plumbline
