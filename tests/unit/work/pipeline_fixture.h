// A pipeline on a temporary directory, and steps for it.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "server/work/step_pipeline.h"
#include "tests/unit/ingest/frames_of_a_step.h"
#include "tests/unit/ingest/temporary_directory.h"
#include "tests/unit/work/fake_device.h"

namespace plumbline {

class PipelineFixture : public ::testing::Test {
 protected:
  void SetUp() override { start(absl::InfiniteDuration()); }

  void start(absl::Duration reference_timeout) {
    stop();
    Workers::Options workers;
    workers.host_workers = host_workers_;
    workers.host_bytes = 1u << 30;
    std::vector<std::unique_ptr<DeviceWorker>> devices;
    if (device_bytes_ > 0) devices.push_back(board_.worker("cuda:0", device_bytes_));
    workers_ = std::make_unique<Workers>(std::move(workers), std::move(devices));
    disk_ = std::make_unique<SerialExecutor>();
    runs_ = std::make_unique<RunRegistry>();
    auto store = open_sqlite_store(directory_.path, {vfs_, {}});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    auto references = TraceStore::open(directory_.path + "/traces", 1u << 30, TraceContent::kPaired);
    ASSERT_TRUE(references.ok());
    references_ = *std::move(references);
    auto kept = TraceStore::open(directory_.path + "/kept", 1u << 30, TraceContent::kWhole);
    ASSERT_TRUE(kept.ok());
    kept_ = *std::move(kept);
    StepPipeline::Options options = pipeline_options_;
    options.reference_timeout = reference_timeout;
    StepPipeline::Parts parts{store_.get(), references_.get(), kept_.get(), nullptr,
                              runs_.get(),  workers_.get(),    disk_.get(), nullptr};
    parts.pairs = pairs_;
    parts.shared_pairs = shared_pairs_;
    pipeline_ = std::make_unique<StepPipeline>(parts, options);
  }

  void stop() {
    if (disk_ == nullptr) return;
    disk_->flush();
    pipeline_->give_up();
    workers_.reset();
    store_.reset();
    disk_.reset();
    pipeline_.reset();
  }
  void TearDown() override { stop(); }

  RunRegistry::Request request_of(const std::string& name) {
    RunRegistry::Request request;
    request.identity = options_of_a_run().run;
    request.identity.run = name;
    request.profile = &profile_;
    request.profile_name = "ieee";
    return request;
  }

  std::shared_ptr<plumbline::Run> open(const std::string& name, const std::string& reference = "", bool keep = false) {
    RunRegistry::Request request = request_of(name);
    request.reference_run = reference;
    request.keep_traces = keep;
    std::shared_ptr<plumbline::Run> run;
    EXPECT_TRUE(runs_->open(request, &run).ok());
    return run;
  }

  std::future<StepAnswer> submit(const std::shared_ptr<plumbline::Run>& run, std::vector<v1::AuditRequest> frames,
                                 std::shared_ptr<const StepClient> client = nullptr) {
    auto options = options_of_a_run();
    options.run = run->identity;
    TraceAssembler assembler(options);
    EXPECT_EQ(offer(assembler, frames).progress, TraceAssembler::Progress::kStepDone);
    auto answer = std::make_shared<std::promise<StepAnswer>>();
    pipeline_->submit(
        run, assembler.take_step(), [answer](const StepAnswer& done) { answer->set_value(done); }, std::move(client));
    return answer->get_future();
  }

  // y = 1 + 2, exactly.
  static std::vector<v1::AuditRequest> sum(std::int64_t step) {
    const float values[] = {1, 1, 2, 2, 3, 3};
    auto frames = frames_of_a_step(step);
    for (int i = 0; i < 3; ++i) {
      frames[6 + i].mutable_data()->set_data(reinterpret_cast<const char*>(values + 2 * i), 8);
    }
    frames[3].mutable_op()->clear_decision();
    return frames;
  }

  TemporaryDirectory directory_;
  StepPipeline::Options pipeline_options_;
  Profile profile_;
  std::unique_ptr<RunRegistry> runs_;
  std::unique_ptr<SerialExecutor> disk_;
  test::FakeBoard board_{1 << 30};
  std::int64_t device_bytes_ = 0;  // 0: no device.
  int host_workers_ = 1;
  std::string vfs_;  // The store's; empty means the platform's.
  std::unique_ptr<Workers> workers_;
  std::unique_ptr<VerdictStore> store_;
  std::unique_ptr<TraceStore> references_, kept_;
  GoldenStore* pairs_ = nullptr;  // Of a history that daemons share.
  SharedGolden* shared_pairs_ = nullptr;
  std::unique_ptr<StepPipeline> pipeline_;
};

}  // namespace plumbline
