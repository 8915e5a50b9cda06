#include "server/serve/audit_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "server/ingest/limits.h"
#include "server/pipeline/audit.h"
#include "server/serve/audit_stream.h"
#include "server/serve/status.h"
#include "server/work/run_memory.h"
#include "server/work/steady.h"

namespace plumbline {

namespace {

constexpr std::size_t kClientBytesMax = 64;  // Of a client's version.

bool over_unix_socket(const grpc::CallbackServerContext& context) { return absl::StartsWith(context.peer(), "unix:"); }

}  // namespace

AuditService::AuditService(Parts parts, Options options)
    : parts_(parts), options_(std::move(options)), deadlines_([this] { watch_deadlines(); }) {}

AuditService::~AuditService() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  tick_.notify_all();
  deadlines_.join();
}

void AuditService::watch_deadlines() {
  // A deadline is kept to a tenth of itself.
  const absl::Duration shortest = std::min(options_.open_timeout, options_.step_timeout);
  const absl::Duration tick = std::clamp(shortest / 10, absl::Milliseconds(10), absl::Seconds(1));
  std::unique_lock lock(mutex_);
  while (!tick_.wait_for(lock, absl::ToChronoMilliseconds(tick), [this] { return stop_; })) {
    const std::vector<std::shared_ptr<AuditStream>> streams(streams_.begin(), streams_.end());
    lock.unlock();
    for (const auto& stream : streams) stream->keep_deadlines(steady_now());
    lock.lock();
  }
}

grpc::ServerUnaryReactor* AuditService::OpenJob(grpc::CallbackServerContext* context, const v1::OpenJobRequest* request,
                                                v1::Job* response) {
  auto* reactor = context->DefaultReactor();
  const auto refuse = [reactor](const absl::Status& status, const std::string& field) {
    reactor->Finish(to_grpc_status(status, field));
    return reactor;
  };
  if (draining()) return refuse(absl::UnavailableError("the daemon is draining"), "");

  RunRegistry::Request open;
  open.identity.project = request->identity().project();
  open.identity.job = request->identity().job();
  open.identity.run = request->identity().run();
  open.identity.rank = request->identity().rank();
  open.profile_name = request->profile().empty() ? "ieee" : request->profile();
  open.profile = parts_.profiles->find(open.profile_name);
  if (request->has_alpha()) open.alpha = request->alpha();
  open.reference_run = request->reference_run();
  open.keep_traces = request->reference();
  if (open.profile == nullptr) {
    const auto names = parts_.profiles->names();
    return refuse(absl::NotFoundError(absl::StrCat("profile: expected one of ", absl::StrJoin(names, ", "),
                                                   ", perhaps with +", absl::StrJoin(ProfileRegistry::options(), ", +"),
                                                   ", found \"", open.profile_name.substr(0, 128), "\"")),
                  "profile");
  }
  open.golden = request->golden();
  open.record_golden = request->record_golden();
  open.budget = {request->budget().step_share(), request->budget().bytes_per_second()};
  open.ranks = request->ranks();
  open.replicated = request->replicated();
  const auto failed = [reactor](const absl::Status& fault) { reactor->Finish(to_grpc_status(fault)); };
  const auto work = [this, open, reactor, response, client = request->client_version().substr(0, kClientBytesMax),
                     regions_allowed = over_unix_socket(*context)]() mutable {
    std::shared_ptr<Run> run;
    if (!parts_.runs->known(open.identity)) {
      auto memory = remembered(open);
      if (!memory.ok()) return reactor->Finish(to_grpc_status(memory.status()));
      open.memory = *std::move(memory);
    }
    if (const auto wrong = check_golden(open)) return reactor->Finish(to_grpc_status(wrong));
    if (const auto wrong = parts_.runs->open(open, &run)) return reactor->Finish(to_grpc_status(wrong));
    if (const auto wrong = begin_golden(*run)) return reactor->Finish(to_grpc_status(wrong));
    const auto last = parts_.store->last_durable_step(run->judged(-1));
    if (!last.ok()) return reactor->Finish(to_grpc_status(last.status()));
    response->set_last_durable_step(*last);
    parts_.store->open_run(run->identity, "", client,
                           [this, run, reactor, response, regions_allowed](const absl::Status& status) {
                             if (!status.ok()) return reactor->Finish(to_grpc_status(status));
                             response->set_handle(run->handle);
                             response->mutable_identity()->set_project(run->identity.project);
                             response->mutable_identity()->set_job(run->identity.job);
                             response->mutable_identity()->set_run(run->identity.run);
                             response->mutable_identity()->set_rank(run->identity.rank);
                             *response->mutable_plan() = plan(*run, regions_allowed);
                             response->set_server_version(options_.version);
                             reactor->Finish(grpc::Status::OK);
                           });
  };
  parts_.disk->post(work, failed);
  return reactor;
}

absl::StatusOr<StepMemory> AuditService::remembered(const RunRegistry::Request& open) const {
  StepIdentity judged = open.identity;
  if (open.ranks > 1) judged.rank = 0;
  const auto bytes = parts_.store->memory_of(judged);
  if (!bytes.ok()) return bytes.status();
  return memory_from(*bytes);
}

Violation AuditService::check_golden(const RunRegistry::Request& open) const {
  if (open.golden.empty()) return {};
  const absl::Status known = parts_.golden->check(open.identity.project, open.golden);
  if (known.ok()) return {};
  return {known.code(), "golden", std::string(known.message())};
}

Violation AuditService::begin_golden(const Run& run) const {
  if (run.record_golden.empty()) return {};
  v1::GoldenHeader header;
  header.set_project(run.identity.project);
  header.set_name(run.record_golden);
  header.set_run(absl::StrCat(run.identity.job, "/", run.identity.run));
  header.set_profile(run.profile_name);
  header.mutable_time()->set_seconds(absl::ToUnixSeconds(absl::Now()));
  const absl::Status begun = parts_.golden->begin(header);
  if (begun.ok()) return {};
  return {begun.code(), "record_golden", std::string(begun.message())};
}

v1::CapturePlan AuditService::plan(const Run& run, bool regions_allowed) const {
  v1::CapturePlan plan;
  for (const std::string& name : lowered_operations()) plan.add_lowered_ops(name);
  for (const auto& [name, kind] : decision_operations()) {
    auto* decision = plan.add_decisions();
    decision->set_op(name);
    decision->set_kind(static_cast<v1::Decision::Kind>(kind));
  }
  for (const WantedResult& result : parts_.runs->wanted(run.identity)) {
    auto* wanted = plan.add_wanted();
    wanted->set_op(result.op);
    wanted->set_fused(result.fused);
  }
  plan.set_chunk_bytes_max(limits::kChunkBytesMax);
  plan.set_batch_bytes_max(limits::kBatchBytesMax);
  plan.set_step_bytes_max(options_.step_bytes_max);
  if (regions_allowed) plan.set_region_chunk_bytes_max(limits::kRegionChunkBytesMax);
  plan.set_cuda_regions(regions_allowed && parts_.open_device_memory != nullptr);
  return plan;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AuditService::Audit(grpc::CallbackServerContext* context) {
  return AuditStream::start(this, context, over_unix_socket(*context));
}

void AuditService::begin_drain() {
  std::vector<std::shared_ptr<AuditStream>> streams;
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    streams.assign(streams_.begin(), streams_.end());
  }
  for (const auto& stream : streams) stream->begin_drain();
}

bool AuditService::wait_for_streams(absl::Time deadline) {
  std::unique_lock lock(mutex_);
  return ended_.wait_until(lock, absl::ToChronoTime(deadline), [this] { return streams_.empty(); });
}

bool AuditService::draining() const {
  const std::lock_guard lock(mutex_);
  return draining_;
}

std::uint64_t AuditService::window_bytes() const {
  std::size_t streams = 0;
  {
    const std::lock_guard lock(mutex_);
    streams = std::max<std::size_t>(1, streams_.size());
  }
  const std::uint64_t left = parts_.memory->limit() - parts_.memory->used();
  return std::clamp<std::uint64_t>(left / (2 * streams), limits::kWindowBytesMin, limits::kWindowBytesMax);
}

bool AuditService::add_stream(const std::shared_ptr<AuditStream>& stream) {
  const std::lock_guard lock(mutex_);
  streams_.insert(stream);
  return streams_.size() <= options_.streams_max;
}

void AuditService::remove_stream(const std::shared_ptr<AuditStream>& stream) {
  {
    const std::lock_guard lock(mutex_);
    streams_.erase(stream);
    // Under the lock: whoever waits may destroy the service as soon as it is released.
    ended_.notify_all();
  }
}

}  // namespace plumbline
