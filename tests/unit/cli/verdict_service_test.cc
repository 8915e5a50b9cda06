// The query service over a real gRPC channel, asked by the C++ client.
#include "server/serve/verdict_service.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "client/cpp/client.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/unit/cli/query_server.h"

namespace plumbline {
namespace {

class VerdictServiceTest : public testing::Test {
 protected:
  QueryServer server_;
  Client client_{server_.address()};
};

TEST_F(VerdictServiceTest, PagesThroughVerdicts) {
  for (std::int64_t step = 0; step < 25; ++step)
    ASSERT_TRUE(append(server_.store(), to_proto(sample_verdict("a", step))).ok());
  auto stub = server_.stub();
  std::vector<std::int64_t> steps;
  v1::ListVerdictsRequest request;
  request.set_page_size(10);
  int pages = 0;
  do {
    grpc::ClientContext context;
    v1::ListVerdictsResponse response;
    ASSERT_TRUE(stub->ListVerdicts(&context, request, &response).ok());
    ++pages;
    for (const v1::Verdict& verdict : response.verdicts()) {
      steps.push_back(verdict.step());
      EXPECT_EQ(verdict.taps_size(), 0);
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(pages, 3);
  ASSERT_EQ(steps.size(), 25u);
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));

  // A page that ends exactly where the verdicts end has no token.
  request.set_page_size(25);
  request.clear_page_token();
  grpc::ClientContext context;
  v1::ListVerdictsResponse response;
  ASSERT_TRUE(stub->ListVerdicts(&context, request, &response).ok());
  EXPECT_EQ(response.verdicts_size(), 25);
  EXPECT_EQ(response.next_page_token(), "");
}

TEST_F(VerdictServiceTest, PagesThroughJobs) {
  for (int job = 0; job < 7; ++job) {
    ASSERT_TRUE(open_run(server_.store(), {"default", "job" + std::to_string(job), "r", 0, 0}).ok());
  }
  auto stub = server_.stub();
  std::set<std::string> names;
  v1::ListJobsRequest request;
  request.set_page_size(3);
  int pages = 0;
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    ASSERT_TRUE(stub->ListJobs(&context, request, &response).ok());
    ++pages;
    for (const v1::JobSummary& job : response.jobs()) EXPECT_TRUE(names.insert(job.job()).second);
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(names.size(), 7u);
  EXPECT_EQ(client_.jobs()->size(), 7u);
}

TEST_F(VerdictServiceTest, NamesTheFieldAtFault) {
  auto stub = server_.stub();
  const auto violation = [&](const v1::ListVerdictsRequest& request) {
    grpc::ClientContext context;
    v1::ListVerdictsResponse response;
    const grpc::Status status = stub->ListVerdicts(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    google::rpc::Status details;
    google::rpc::BadRequest bad;
    EXPECT_TRUE(details.ParseFromString(status.error_details()));
    EXPECT_EQ(details.details_size(), 1);
    if (details.details_size() != 1 || !details.details(0).UnpackTo(&bad)) return std::string();
    return bad.field_violations(0).field();
  };
  v1::ListVerdictsRequest request;
  request.set_page_size(-1);
  EXPECT_EQ(violation(request), "page_size");
  request.Clear();
  request.set_page_token("garbage");
  EXPECT_EQ(violation(request), "page_token");
  request.Clear();
  request.mutable_filter()->set_step_min(-1);
  EXPECT_EQ(violation(request), "filter.step_min");
  request.Clear();
  request.mutable_filter()->set_step_min(5);
  request.mutable_filter()->set_step_max(4);
  EXPECT_EQ(violation(request), "filter.step_max");
  request.Clear();
  request.mutable_filter()->set_verdict(static_cast<v1::Outcome>(77));
  EXPECT_EQ(violation(request), "filter.verdict");
  for (const std::string& trace : {std::string("abc"), std::string(32, '0'), std::string(32, 'A')}) {
    request.Clear();
    request.mutable_filter()->set_trace_id(trace);
    EXPECT_EQ(violation(request), "filter.trace_id") << trace;
  }
}

TEST_F(VerdictServiceTest, AnswersAboutOneVerdictAndJob) {
  ASSERT_TRUE(append(server_.store(), to_proto(sample_verdict("a", 1, Outcome::kTypeII, 8))).ok());
  const auto verdict = client_.verdict("default/a/run-1/0/1");
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_EQ(verdict->taps_size(), 2);
  EXPECT_EQ(client_.verdict("default/a/run-1/0/2").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(client_.verdict("a").status().code(), absl::StatusCode::kInvalidArgument);
  const auto explanation = client_.explain("default/a/run-1/0/1");
  ASSERT_TRUE(explanation.ok());
  EXPECT_NE(explanation->text().find("train.py:7"), std::string::npos);
  EXPECT_EQ(explanation->verdict().id(), "default/a/run-1/0/1");
  EXPECT_EQ(client_.job("", "a")->type_ii(), 1u) << "an empty project is the default one";
  EXPECT_EQ(client_.job("", "").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(client_.job("", "b").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(client_.stats({})->verdicts(), 1u);
}

// A watch on its own thread, which collects steps.
class Watcher {
 public:
  Watcher(const std::string& address, const v1::Filter& filter, bool past, std::size_t count)
      : client_(address), thread_([this, filter, past, count] {
          status_ = client_.watch(
              filter, past,
              [&](v1::Verdict verdict) {
                std::lock_guard lock(mutex_);
                steps_.push_back(verdict.step());
                changed_.notify_all();
                return steps_.size() < count;
              },
              std::chrono::milliseconds(300));
        }) {}
  ~Watcher() { join().IgnoreError(); }

  bool wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return steps_.size() >= count; });
  }
  void cancel() { client_.cancel(); }
  absl::Status join() {
    if (thread_.joinable()) thread_.join();
    return status_;
  }
  const std::vector<std::int64_t>& steps() const { return steps_; }

 private:
  Client client_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::int64_t> steps_;
  absl::Status status_;
  std::thread thread_;
};

std::vector<std::int64_t> first(std::int64_t count) {
  std::vector<std::int64_t> steps;
  for (std::int64_t step = 0; step < count; ++step) steps.push_back(step);
  return steps;
}

TEST_F(VerdictServiceTest, WatchSeesPastAndNewOnceEach) {
  for (std::int64_t step = 0; step < 150; ++step) {
    ASSERT_TRUE(append(server_.store(), to_proto(sample_verdict("a", step))).ok());
  }
  v1::Filter filter;
  filter.set_job("a");
  Watcher watcher(server_.address(), filter, true, 300);
  for (std::int64_t step = 150; step < 300; ++step) {
    ASSERT_TRUE(append(server_.store(), to_proto(sample_verdict("a", step))).ok());
    ASSERT_TRUE(append(server_.store(), to_proto(sample_verdict("b", step))).ok());
  }
  EXPECT_TRUE(watcher.wait_for(300));
  EXPECT_TRUE(watcher.join().ok());
  EXPECT_EQ(watcher.steps(), first(300));
}

TEST_F(VerdictServiceTest, WatchWithoutPastSeesOnlyWhatIsNew) {
  ASSERT_TRUE(append(server_.store(), to_proto(sample_verdict("a", 1000))).ok());
  auto stub = server_.stub();
  grpc::ClientContext context;
  auto reader = stub->WatchVerdicts(&context, {});
  reader->WaitForInitialMetadata();  // From here on nothing is missed.
  for (std::int64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(append(server_.store(), to_proto(sample_verdict("a", step))).ok());
  }
  v1::Verdict verdict;
  for (std::int64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(reader->Read(&verdict));
    EXPECT_EQ(verdict.step(), step);
    EXPECT_EQ(verdict.taps_size(), 2);
  }
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(VerdictServiceTest, ASlowWatcherHoldsNothingUpAndMissesNothing) {
  auto stub = server_.stub();
  grpc::ClientContext context;
  auto reader = stub->WatchVerdicts(&context, {});
  reader->WaitForInitialMetadata();
  Verdict large = sample_verdict("a", 0);
  large.notes.assign(1, std::string(64 << 10, 'x'));
  for (std::int64_t step = 0; step < 400; ++step) {  // 25 MB, far more than gRPC buffers.
    large.identity.step = step;
    ASSERT_TRUE(append(server_.store(), to_proto(large)).ok());
  }
  v1::Verdict verdict;
  for (std::int64_t step = 0; step < 400; ++step) {
    ASSERT_TRUE(reader->Read(&verdict));
    ASSERT_EQ(verdict.step(), step);
  }
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(VerdictServiceTest, WatchersComeAndGo) {
  for (int round = 0; round < 20; ++round) {
    Watcher watcher(server_.address(), {}, round % 2 == 0, 1000);
    ASSERT_TRUE(append(server_.store(), to_proto(sample_verdict("a", round))).ok());
    watcher.cancel();
    EXPECT_TRUE(watcher.join().ok());
  }
}

TEST_F(VerdictServiceTest, RefusesTooManyWatches) {
  auto stub = server_.stub();
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::Verdict>>> readers;
  for (int i = 0; i < 256; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub->WatchVerdicts(contexts.back().get(), {}));
    readers.back()->WaitForInitialMetadata();
  }
  EXPECT_EQ(client_.watch({}, false, [](v1::Verdict) { return true; }).code(), absl::StatusCode::kResourceExhausted);
  for (auto& context : contexts) context->TryCancel();
  for (auto& reader : readers) EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

// Reads one verdict of a watch and ends it; its token.
std::string token_after_one(v1::VerdictService::Stub& stub, const v1::WatchVerdictsRequest& request,
                            std::int64_t expected) {
  grpc::ClientContext context;
  const auto reader = stub.WatchVerdicts(&context, request);
  v1::Verdict verdict;
  EXPECT_TRUE(reader->Read(&verdict));
  EXPECT_EQ(verdict.step(), expected);
  context.TryCancel();
  reader->Finish();
  return verdict.resume_token();
}

TEST_F(VerdictServiceTest, AWatchGoesOnFromItsToken) {
  auto stub = server_.stub();
  for (std::int64_t step = 0; step < 10; ++step) {
    ASSERT_TRUE(append(server_.store(), to_proto(sample_verdict("a", step))).ok());
  }
  v1::WatchVerdictsRequest request;
  request.set_include_past(true);
  for (std::int64_t step = 0; step < 10; ++step) request.set_resume_token(token_after_one(*stub, request, step));
  ASSERT_TRUE(append(server_.store(), to_proto(sample_verdict("a", 10))).ok());
  token_after_one(*stub, request, 10);

  // A watch that saw nothing yet has its token from its headers.
  std::string token;
  {
    grpc::ClientContext context;
    const auto reader = stub->WatchVerdicts(&context, {});
    reader->WaitForInitialMetadata();
    const auto& headers = context.GetServerInitialMetadata();
    const auto found = headers.find("plumbline-resume-token");
    ASSERT_NE(found, headers.end());
    token.assign(found->second.data(), found->second.size());
    context.TryCancel();
    reader->Finish();
  }
  ASSERT_TRUE(append(server_.store(), to_proto(sample_verdict("a", 11))).ok());
  v1::WatchVerdictsRequest later;
  later.set_resume_token(token);
  token_after_one(*stub, later, 11);
}

TEST_F(VerdictServiceTest, ATokenOfAnotherWatchIsRefused) {
  auto stub = server_.stub();
  ASSERT_TRUE(append(server_.store(), to_proto(sample_verdict("a", 0))).ok());
  v1::WatchVerdictsRequest past;
  past.set_include_past(true);
  const std::string token = token_after_one(*stub, past, 0);
  const auto code = [&stub](const std::string& text, const std::string& job) {
    v1::WatchVerdictsRequest request;
    request.set_resume_token(text);
    request.mutable_filter()->set_job(job);
    grpc::ClientContext context;
    const auto reader = stub->WatchVerdicts(&context, request);
    v1::Verdict verdict;
    EXPECT_FALSE(reader->Read(&verdict));
    const grpc::Status status = reader->Finish();
    EXPECT_NE(status.error_message().find("resume_token: "), std::string::npos) << status.error_message();
    return status.error_code();
  };
  EXPECT_EQ(code("nonsense", ""), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code(token, "a"), grpc::StatusCode::INVALID_ARGUMENT) << "of another filter";
  EXPECT_EQ(code(token.substr(1), ""), grpc::StatusCode::INVALID_ARGUMENT);
  QueryServer other;
  ASSERT_TRUE(append(other.store(), to_proto(sample_verdict("a", 0))).ok());
  stub = other.stub();
  EXPECT_EQ(code(token, ""), grpc::StatusCode::ABORTED) << "of another daemon";
}

TEST_F(VerdictServiceTest, DrainEndsWatches) {
  Watcher idle(server_.address(), {}, true, 1000);
  ASSERT_TRUE(append(server_.store(), to_proto(sample_verdict("a", 0))).ok());
  ASSERT_TRUE(idle.wait_for(1));
  server_.service().drain();
  EXPECT_EQ(idle.join().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(client_.watch({}, false, [](v1::Verdict) { return true; }).code(), absl::StatusCode::kUnavailable);
}

TEST_F(VerdictServiceTest, DrainEndsAWatchThatDoesNotRead) {
  Verdict large = sample_verdict("a", 0);
  large.notes.assign(1, std::string(1 << 20, 'x'));
  for (std::int64_t step = 0; step < 30; ++step) {
    large.identity.step = step;
    ASSERT_TRUE(append(server_.store(), to_proto(large)).ok());
  }
  auto stub = server_.stub();
  grpc::ClientContext context;
  v1::WatchVerdictsRequest request;
  request.set_include_past(true);
  auto reader = stub->WatchVerdicts(&context, request);
  reader->WaitForInitialMetadata();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // For the server's write to be stuck.
  server_.service().drain();
  server_.shutdown();  // Hangs if the watch does.
  v1::Verdict verdict;
  while (reader->Read(&verdict)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

TEST(Client, TellsThatNobodyAnswers) {
  Client client("unix:/nonexistent/plumbline.sock");
  const auto jobs = client.jobs();
  EXPECT_EQ(jobs.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(jobs.status().message().find("unix:/nonexistent/plumbline.sock"), std::string::npos) << jobs.status();
}

}  // namespace
}  // namespace plumbline
