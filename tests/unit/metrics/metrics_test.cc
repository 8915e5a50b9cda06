#include "server/metrics/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "server/metrics/call_series.h"

namespace plumbline {
namespace {

Verdict sample(const std::string& job) {
  Verdict verdict;
  verdict.identity = {"default", job, "run", 0, 1};
  verdict.outcome = Outcome::kTypeII;
  verdict.grade = Grade::kProven;
  verdict.surprise = 0.75;
  verdict.margin = 0.25;
  verdict.math_resolution = 3e-10;
  verdict.audit_seconds = 0.5;
  verdict.phase_seconds = {{"replay", 0.2}, {"polish", 0.1}};
  verdict.coverage.operations = 10;
  verdict.coverage.audited = 7;
  verdict.coverage.opaque = 1;
  verdict.hazards.push_back({"overflow", {}, 0.1, "", ""});
  return verdict;
}

// The value of a series, as the text format has it; empty if it is not there.
std::string value_of(const std::string& page, const std::string& series) {
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(series + " ")) return line.substr(series.size() + 1);
  }
  return {};
}

TEST(Metrics, HasEveryFamilyOfTheDesign) {
  Metrics metrics("1.2.3", "c0ffee", "cpu");
  metrics.add_verdict(sample("a"));
  metrics.add_dropped_steps("queue_full");
  metrics.set_worker_up("cpu", true);
  metrics.set_worker_audit_bytes("cpu", 5);
  metrics.set_steps_waiting(0, 0);
  const std::string page = metrics.scrape();
  for (const char* family : {"verdicts_total",
                             "steps_total",
                             "surprise",
                             "margin",
                             "math_resolution",
                             "exec_resolution",
                             "step_audit_seconds",
                             "ingest_bytes_total",
                             "ops_total",
                             "hazards_total",
                             "queue_steps",
                             "worker_busy_ratio",
                             "worker_memory_bytes",
                             "memory_limit_bytes",
                             "streams",
                             "steps_waiting",
                             "worker_up",
                             "worker_audit_bytes",
                             "worker_restarts_total",
                             "worker_spills_total",
                             "dropped_steps_total",
                             "store_commit_seconds",
                             "join_seconds",
                             "store_errors_total",
                             "build_info"}) {
    EXPECT_NE(page.find(std::string("# HELP plumbline_") + family + " "), std::string::npos) << family;
  }
  EXPECT_EQ(value_of(page, R"(plumbline_build_info{backend="cpu",commit="c0ffee",version="1.2.3"})"), "1");
}

TEST(Metrics, TellsOfTheSharedHistoryWhereThereIsOne) {
  Metrics metrics("v", "c0ffee", "cpu");
  EXPECT_EQ(metrics.scrape().find("plumbline_history"), std::string::npos);
  Metrics::SharedHistory history;
  history.backlog_records = 3;
  history.backlog_seconds = 1.5;
  history.shipped = 7;
  history.turned_away = 1;
  history.errors = {{"unreachable", 2}, {"refused", 0}};
  metrics.set_shared_history(history);
  history.up = true;
  history.shipped = 9;
  metrics.set_shared_history(history);
  const std::string page = metrics.scrape();
  EXPECT_EQ(value_of(page, "plumbline_history_up"), "1");
  EXPECT_EQ(value_of(page, "plumbline_history_backlog_records"), "3");
  EXPECT_EQ(value_of(page, "plumbline_history_backlog_seconds"), "1.5");
  EXPECT_EQ(value_of(page, "plumbline_history_shipped_total"), "9") << "counted since the start, not added up";
  EXPECT_EQ(value_of(page, "plumbline_history_turned_away_total"), "1");
  EXPECT_EQ(value_of(page, R"(plumbline_history_errors_total{reason="unreachable"})"), "2");
  EXPECT_EQ(value_of(page, R"(plumbline_history_errors_total{reason="refused"})"), "0");
}

TEST(Metrics, TellsOfTheStreamWhereThereIsOne) {
  Metrics metrics("v", "c0ffee", "cpu");
  EXPECT_EQ(metrics.scrape().find("plumbline_publish"), std::string::npos);
  metrics.set_publication({true, 3, 1.5, 7, 1, 2, {{"unreachable", 2}, {"identity", 0}}});
  metrics.set_publication({false, 4, 2.5, 9, 1, 2, {{"unreachable", 3}, {"identity", 0}}});
  const std::string page = metrics.scrape();
  EXPECT_EQ(value_of(page, "plumbline_publish_up"), "0");
  EXPECT_EQ(value_of(page, "plumbline_publish_backlog_verdicts"), "4");
  EXPECT_EQ(value_of(page, "plumbline_publish_backlog_seconds"), "2.5");
  EXPECT_EQ(value_of(page, "plumbline_publish_verdicts_total"), "9") << "counted since the start, not added up";
  EXPECT_EQ(value_of(page, "plumbline_publish_turned_away_total"), "1");
  EXPECT_EQ(value_of(page, "plumbline_publish_replays_total"), "2");
  EXPECT_EQ(value_of(page, R"(plumbline_publish_errors_total{reason="unreachable"})"), "3");
  EXPECT_EQ(value_of(page, R"(plumbline_publish_errors_total{reason="identity"})"), "0");
}

TEST(Metrics, CountsAVerdict) {
  Metrics metrics("v", "c0ffee", "cpu");
  metrics.add_verdict(sample("a"));
  metrics.add_verdict(sample("a"));
  const std::string page = metrics.scrape();
  EXPECT_EQ(value_of(page, R"(plumbline_verdicts_total{grade="PROVEN",job="a",project="default",verdict="TYPE_II"})"),
            "2");
  EXPECT_EQ(value_of(page, R"(plumbline_steps_total{job="a",outcome="audited",project="default"})"), "2");
  EXPECT_EQ(value_of(page, "plumbline_surprise_count"), "2");
  EXPECT_EQ(value_of(page, "plumbline_surprise_sum"), "1.5");
  EXPECT_EQ(value_of(page, R"(plumbline_surprise_bucket{le="1"})"), "2");
  EXPECT_EQ(value_of(page, R"(plumbline_surprise_bucket{le="0.5"})"), "0");
  EXPECT_EQ(value_of(page, "plumbline_margin_count"), "2");
  EXPECT_EQ(value_of(page, R"(plumbline_margin_bucket{le="0.3"})"), "2");
  EXPECT_EQ(value_of(page, R"(plumbline_margin_bucket{le="0.1"})"), "0");
  EXPECT_EQ(value_of(page, "plumbline_math_resolution_count"), "2");
  EXPECT_EQ(value_of(page, "plumbline_exec_resolution_count"), "0") << "not asked";
  EXPECT_EQ(value_of(page, R"(plumbline_step_audit_seconds_count{phase="replay"})"), "2");
  EXPECT_EQ(value_of(page, R"(plumbline_step_audit_seconds_count{phase="other"})"), "2");
  EXPECT_EQ(value_of(page, R"(plumbline_step_audit_seconds_sum{phase="total"})"), "1");
  EXPECT_EQ(value_of(page, R"(plumbline_ops_total{coverage="audited"})"), "14");
  EXPECT_EQ(value_of(page, R"(plumbline_ops_total{coverage="opaque"})"), "2");
  EXPECT_EQ(value_of(page, R"(plumbline_ops_total{coverage="unaudited"})"), "4");
  EXPECT_EQ(value_of(page, R"(plumbline_hazards_total{kind="overflow"})"), "2");
}

TEST(Metrics, CountsStepsAndBytes) {
  Metrics metrics("v", "c0ffee", "cpu");
  metrics.add_steps("default", "a", StepOutcome::kMissed, 3);
  metrics.add_steps("default", "a", StepOutcome::kRefused);
  metrics.add_steps("default", "a", StepOutcome::kMissed, -5);  // A client's nonsense must not end the process.
  metrics.add_dropped_steps("queue_full", 2);
  metrics.add_dropped_steps("a reason that a client made up");
  metrics.add_ingest_bytes(Transport::kGrpc, 1000);
  const std::string page = metrics.scrape();
  EXPECT_EQ(value_of(page, R"(plumbline_steps_total{job="a",outcome="missed",project="default"})"), "3");
  EXPECT_EQ(value_of(page, R"(plumbline_steps_total{job="a",outcome="refused",project="default"})"), "1");
  EXPECT_EQ(value_of(page, R"(plumbline_dropped_steps_total{reason="queue_full"})"), "2");
  EXPECT_EQ(value_of(page, R"(plumbline_dropped_steps_total{reason="other"})"), "1");
  EXPECT_EQ(value_of(page, R"(plumbline_ingest_bytes_total{transport="grpc"})"), "1000");
}

TEST(Metrics, CountsWhatAClientDropped) {
  Metrics metrics("v", "c0ffee", "cpu");
  metrics.add_missed("default", "a", 5, {"queue_full", "perturbing_op", "queue_full"});
  metrics.add_missed("default", "a", 1, {"queue_full", "queue_full"});  // More reasons than steps.
  metrics.add_missed("default", "a", 0, {"queue_full"});
  const std::string page = metrics.scrape();
  EXPECT_EQ(value_of(page, R"(plumbline_steps_total{job="a",outcome="missed",project="default"})"), "6");
  EXPECT_EQ(value_of(page, R"(plumbline_dropped_steps_total{reason="queue_full"})"), "3");
  EXPECT_EQ(value_of(page, R"(plumbline_dropped_steps_total{reason="perturbing_op"})"), "1");
  EXPECT_EQ(value_of(page, R"(plumbline_dropped_steps_total{reason="other"})"), "2");
}

TEST(Metrics, InfiniteRatiosAreCountedAndNotSummed) {
  Metrics metrics("v", "c0ffee", "cpu");
  Verdict verdict = sample("a");
  metrics.add_verdict(verdict);
  verdict.margin = verdict.surprise = std::numeric_limits<double>::infinity();
  metrics.add_verdict(verdict);
  verdict.margin = verdict.surprise = kNotAsked;
  metrics.add_verdict(verdict);
  const std::string page = metrics.scrape();
  EXPECT_EQ(value_of(page, "plumbline_surprise_count"), "2");
  EXPECT_EQ(value_of(page, R"(plumbline_surprise_bucket{le="1000"})"), "1");
  EXPECT_EQ(value_of(page, "plumbline_surprise_sum"), "0.75");
  EXPECT_EQ(value_of(page, "plumbline_margin_count"), "2");
  EXPECT_EQ(value_of(page, "plumbline_margin_sum"), "0.25");
}

TEST(Metrics, LabelsStayBounded) {
  Metrics metrics("v", "c0ffee", "cpu");
  for (std::size_t i = 0; i < Metrics::kJobsMax + 50; ++i) {
    Verdict verdict = sample("job-" + std::to_string(i));
    verdict.hazards[0].kind = "hazard-" + std::to_string(i);
    metrics.add_verdict(verdict);
  }
  const std::string page = metrics.scrape();
  EXPECT_EQ(value_of(page, R"(plumbline_verdicts_total{grade="PROVEN",job="other",project="other",verdict="TYPE_II"})"),
            "50");
  EXPECT_EQ(
      value_of(page, R"(plumbline_verdicts_total{grade="PROVEN",job="job-0",project="default",verdict="TYPE_II"})"),
      "1");
  EXPECT_EQ(value_of(page, R"(plumbline_hazards_total{kind="other"})"),
            std::to_string(Metrics::kJobsMax + 50 - Metrics::kHazardsMax));
}

TEST(Metrics, AGpuHasTheLabelsByWhichOtherExportersKnowIt) {
  Metrics metrics("v", "c0ffee", "cuda");
  metrics.set_worker_gpu("cuda:0", {"3", "GPU-00112233-4455-6677-8899-aabbccddeeff"});
  metrics.set_worker_gpu("cuda:1", {"", "GPU-00000000-0000-0000-0000-000000000001"});
  for (const char* worker : {"cuda:0", "cuda:1", "cpu"}) metrics.set_worker_up(worker, true);
  metrics.set_worker_audit_bytes("cuda:0", 7);
  metrics.add_worker_restart("cuda:0");
  const std::string page = metrics.scrape();
  const std::string gpu = R"({UUID="GPU-00112233-4455-6677-8899-aabbccddeeff",gpu="3",worker="cuda:0"})";
  EXPECT_EQ(value_of(page, "plumbline_worker_up" + gpu), "1");
  EXPECT_EQ(value_of(page, "plumbline_worker_audit_bytes" + gpu), "7");
  EXPECT_EQ(value_of(page, "plumbline_worker_restarts_total" + gpu), "1");
  EXPECT_EQ(value_of(page, R"(plumbline_worker_up{UUID="GPU-00000000-0000-0000-0000-000000000001",worker="cuda:1"})"),
            "1");
  EXPECT_EQ(value_of(page, R"(plumbline_worker_up{worker="cpu"})"), "1");
}

TEST(Metrics, CommitsAreTimedAndWhatTheDiskDoesNotTakeIsCounted) {
  Metrics metrics("v", "c0ffee", "cpu");
  EXPECT_EQ(value_of(metrics.scrape(), "plumbline_store_errors_total"), "0");
  metrics.add_commit(0.002, 5, true);
  metrics.add_commit(4, 256, false);
  const std::string page = metrics.scrape();
  EXPECT_EQ(value_of(page, "plumbline_store_commit_seconds_count"), "2");
  EXPECT_EQ(value_of(page, R"(plumbline_store_commit_seconds_bucket{le="0.003"})"), "1");
  EXPECT_EQ(value_of(page, R"(plumbline_store_commit_seconds_bucket{le="3"})"), "1");
  EXPECT_EQ(value_of(page, "plumbline_store_errors_total"), "256");
}

TEST(Metrics, JoinsAreTimed) {
  Metrics metrics("v", "c0ffee", "cpu");
  EXPECT_EQ(value_of(metrics.scrape(), "plumbline_join_seconds_count"), "0");
  metrics.add_join(0.002);
  metrics.add_join(2);
  const std::string page = metrics.scrape();
  EXPECT_EQ(value_of(page, R"(plumbline_join_seconds_bucket{le="0.003"})"), "1");
  EXPECT_EQ(value_of(page, "plumbline_join_seconds_count"), "2");
}

TEST(Metrics, CallsAreCountedByMethodAndUnknownMethodsShareOne) {
  Metrics metrics("v", "c0ffee", "cpu");
  metrics.calls().add(CallKind::kUnary, "p.Jobs", "Get");
  metrics.calls().add(CallKind::kBidiStream, "p.Jobs", "Talk");
  const std::string get = R"(grpc_method="Get",grpc_service="p.Jobs",grpc_type="unary")";
  EXPECT_EQ(value_of(metrics.scrape(), R"(grpc_server_handled_total{grpc_code="NotFound",)" + get + "}"), "0");
  const CallSeries::Method& method = metrics.calls().find("/p.Jobs/Get");
  method.begin();
  method.begin();
  method.end(5, 0.2);
  metrics.calls().find("/p.Jobs/Talk").end(0, 7);
  for (const char* name : {"/p.Jobs/a", "/p.Jobs/b", "", "/"}) {
    metrics.calls().find(name).begin();
    metrics.calls().find(name).end(99, 1);
  }
  const std::string page = metrics.scrape();
  EXPECT_EQ(value_of(page, "grpc_server_started_total{" + get + "}"), "2");
  EXPECT_EQ(value_of(page, R"(grpc_server_handled_total{grpc_code="NotFound",)" + get + "}"), "1");
  EXPECT_EQ(value_of(page, "grpc_server_handling_seconds_count{" + get + "}"), "1");
  EXPECT_EQ(value_of(page, "grpc_server_handling_seconds_sum{" + get + "}"), "0.2");
  EXPECT_EQ(page.find(R"(grpc_server_handling_seconds_count{grpc_method="Talk")"), std::string::npos);
  EXPECT_EQ(value_of(page, R"(grpc_server_handled_total{grpc_code="Unknown",grpc_method="other",grpc_service="other",)"
                           R"(grpc_type="bidi_stream"})"),
            "4");
}

TEST(Metrics, TheProcessIsThisOne) {
  const std::string page = Metrics("v", "c0ffee", "cpu").scrape();
  EXPECT_GT(std::stod(value_of(page, "process_resident_memory_bytes")), 1e6);
  EXPECT_GT(std::stod(value_of(page, "process_open_fds")), 2);
  EXPECT_LT(std::abs(std::stod(value_of(page, "process_start_time_seconds")) - absl::ToUnixSeconds(absl::Now())), 3600);
  const double before = std::stod(value_of(page, "process_cpu_seconds_total"));
  for (const absl::Time end = absl::Now() + absl::Milliseconds(50); absl::Now() < end;) continue;
  Metrics again("v", "c0ffee", "cpu");
  EXPECT_GT(std::stod(value_of(again.scrape(), "process_cpu_seconds_total")), before);
}

struct Clock {
  std::shared_ptr<absl::Time> now = std::make_shared<absl::Time>(absl::UnixEpoch());
  std::function<absl::Time()> tell() const {
    return [now = now] { return *now; };
  }
};

std::string opened(const std::string& job) {
  return R"(plumbline_verdicts_total{grade="PROVEN",job=")" + job + R"(",project="default",verdict="TYPE_II"})";
}

TEST(Metrics, AJobThatWorksKeepsItsPlaceAndOneThatIsQuietMakesRoom) {
  Clock clock;
  Metrics metrics("v", "c0ffee", "cpu", clock.tell());
  metrics.add_verdict(sample("works"));
  metrics.add_verdict(sample("quiet"));
  *clock.now += absl::Minutes(11);
  metrics.add_verdict(sample("works"));
  for (std::size_t i = 0; i < Metrics::kJobsMax + 50; ++i) metrics.open_job("default", "flood-" + std::to_string(i));
  std::string page = metrics.scrape();
  EXPECT_EQ(value_of(page, opened("works")), "2");
  EXPECT_EQ(page.find(R"(job="quiet")"), std::string::npos) << "it made room for one";
  EXPECT_EQ(value_of(page, opened("flood-0")), "0");
  metrics.add_verdict(sample("late"));
  EXPECT_EQ(metrics.scrape().find(R"(job="late")"), std::string::npos) << "all are at work: it counts as other";
  *clock.now += absl::Minutes(11);
  metrics.add_verdict(sample("late"));
  EXPECT_EQ(value_of(metrics.scrape(), opened("late")), "1");
}

TEST(Metrics, SeriesOfJobsThatHaveEndedGo) {
  Clock clock;
  Metrics metrics("v", "c0ffee", "cpu", clock.tell());
  metrics.add_verdict(sample("ended"));
  metrics.add_steps("default", "goes on", StepOutcome::kRefused);
  *clock.now += absl::Hours(23);
  metrics.add_steps("default", "goes on", StepOutcome::kRefused);
  EXPECT_EQ(value_of(metrics.scrape(), opened("ended")), "1");
  *clock.now += absl::Hours(2);
  const std::string page = metrics.scrape();
  EXPECT_EQ(page.find(R"(job="ended")"), std::string::npos);
  EXPECT_EQ(value_of(page, R"(plumbline_steps_total{job="goes on",outcome="refused",project="default"})"), "2");
}

TEST(Metrics, RefreshesGaugesBeforeAScrape) {
  Metrics metrics("v", "c0ffee", "cpu");
  metrics.on_scrape([&] {
    metrics.set_queue_steps(4);
    metrics.set_worker_busy_ratio(0.75);
    metrics.set_worker_memory_bytes(1024);
    metrics.set_memory_limit_bytes(4096);
    metrics.set_streams(3);
    metrics.set_steps_waiting(1, 2);
  });
  const std::string page = metrics.scrape();
  EXPECT_EQ(value_of(page, "plumbline_queue_steps"), "4");
  EXPECT_EQ(value_of(page, "plumbline_worker_busy_ratio"), "0.75");
  EXPECT_EQ(value_of(page, "plumbline_worker_memory_bytes"), "1024");
  EXPECT_EQ(value_of(page, "plumbline_memory_limit_bytes"), "4096");
  EXPECT_EQ(value_of(page, "plumbline_streams"), "3");
  EXPECT_EQ(value_of(page, "plumbline_steps_waiting{for=\"reference\"}"), "1");
  EXPECT_EQ(value_of(page, "plumbline_steps_waiting{for=\"ranks\"}"), "2");
}

TEST(Metrics, ThreadsCountTogether) {
  Metrics metrics("v", "c0ffee", "cpu");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 500; ++n) metrics.add_verdict(sample("a"));
    });
  }
  for (int n = 0; n < 5; ++n) EXPECT_FALSE(metrics.scrape().empty());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(value_of(metrics.scrape(), "plumbline_margin_count"), "2000");
}

}  // namespace
}  // namespace plumbline
