#include "server/serve/audit_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "server/ingest/limits.h"
#include "server/log/log.h"
#include "server/pipeline/audit.h"
#include "server/serve/audit_stream.h"
#include "server/serve/identify.h"
#include "server/serve/status.h"
#include "server/work/run_memory.h"
#include "server/work/steady.h"

namespace plumbline {

namespace {

constexpr std::size_t kClientBytesMax = 64;  // A client's version is no longer.

void log_refused_run(const v1::Identity& identity, const absl::Status& status) {
  log_event(LogLevel::kWarning, "run_refused",
            {{"run", absl::StrCat(identity.project().substr(0, 200), "/", identity.job().substr(0, 200), "/",
                                  identity.run().substr(0, 200), "/", identity.rank())},
             {"code", absl::StatusCodeToString(status.code())},
             {"message", std::string(status.message())}});
}

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
  const auto refuse = [reactor, request](const absl::Status& status, const std::string& field) {
    log_refused_run(request->identity(), status);
    reactor->Finish(to_grpc_status(status, field));
    return reactor;
  };
  if (draining()) return refuse(absl::UnavailableError("the daemon is draining"), "");
  const auto caller = identify(*context, *parts_.access);
  if (!caller.ok()) return refuse(caller.status(), "");

  RunRegistry::Request open;
  open.identity.project = request->identity().project();
  open.identity.job = request->identity().job();
  open.identity.run = request->identity().run();
  open.identity.rank = request->identity().rank();
  if (auto denied = parts_.access->check(*caller, Role::kStream, open.identity.project); !denied.ok()) {
    return refuse(denied, "identity.project");
  }
  open.owner = caller->name();
  open.pairs_with_any = parts_.access->may(*caller, Role::kRead, open.identity.project);
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
  open.ranks_here.assign(request->ranks_here().begin(), request->ranks_here().end());
  open.replicated = request->replicated();
  const auto failed = [reactor](const absl::Status& fault) { reactor->Finish(to_grpc_status(fault)); };
  const auto work = [this, reactor, response, client = request->client_version().substr(0, kClientBytesMax),
                     caller = *caller](RunRegistry::Request open, const SharedOrigin& shared) {
    std::shared_ptr<Run> run;
    std::string field;
    const auto wrong_run = [&](const absl::Status& status) {
      v1::Identity identity;
      identity.set_project(open.identity.project);
      identity.set_job(open.identity.job);
      identity.set_run(open.identity.run);
      identity.set_rank(open.identity.rank);
      log_refused_run(identity, status);
    };
    if (const auto denied = admit(caller, &open, &field); !denied.ok()) {
      wrong_run(denied);
      return reactor->Finish(to_grpc_status(denied, field));
    }
    if (!parts_.runs->known(open.identity)) {
      auto memory = remembered(open);
      if (!memory.ok()) return reactor->Finish(to_grpc_status(memory.status()));
      open.memory = *std::move(memory);
    }
    if (const auto wrong = check_golden(caller, open, shared)) return reactor->Finish(to_grpc_status(wrong));
    if (const auto wrong = parts_.runs->open(open, &run)) {
      wrong_run(absl::Status(wrong.code, wrong.message()));
      return reactor->Finish(to_grpc_status(wrong));
    }
    if (const auto wrong = begin_golden(*run)) return reactor->Finish(to_grpc_status(wrong));
    const auto last = parts_.store->last_durable_step(run->judged(-1));
    if (!last.ok()) return reactor->Finish(to_grpc_status(last.status()));
    response->set_last_durable_step(*last);
    const bool regions_allowed = caller.peer.process > 0;
    const auto opened = [this, run, reactor, response, regions_allowed](const absl::Status& status) {
      if (!status.ok()) return reactor->Finish(to_grpc_status(status));
      if (parts_.metrics != nullptr) {
        parts_.metrics->open_job(run->identity.project, run->identity.job);
        for (const char* limited : parts_.projects->quota(run->identity.project).limited()) {
          parts_.metrics->add_quota_refusals(run->identity.project, limited, 0);
        }
      }
      log_event(LogLevel::kInfo, "run_opened",
                {{"run", run->identity.run_id()}, {"owner", run->owner}, {"profile", run->profile_name}});
      response->set_handle(run->handle);
      response->mutable_identity()->set_project(run->identity.project);
      response->mutable_identity()->set_job(run->identity.job);
      response->mutable_identity()->set_run(run->identity.run);
      response->mutable_identity()->set_rank(run->identity.rank);
      *response->mutable_plan() = plan(*run, regions_allowed);
      response->set_server_version(options_.version);
      reactor->Finish(grpc::Status::OK);
    };
    parts_.store->open_run(run->identity, run->owner, client, opened);
  };
  const auto on_disk = [this, open, work, failed](const SharedOrigin& shared) {
    parts_.disk->post([work, open, shared] { work(open, shared); }, failed);
  };
  if (parts_.shared_golden == nullptr || (open.golden.empty() && open.record_golden.empty())) {
    on_disk(absl::UnavailableError("no history is shared"));
  } else {
    parts_.asking->post([this, open, on_disk] { on_disk(shared_origin(open)); }, failed);
  }
  return reactor;
}

AuditService::SharedOrigin AuditService::shared_origin(const RunRegistry::Request& open) const {
  return parts_.shared_golden->origin(open.identity.project, open.golden.empty() ? open.record_golden : open.golden);
}

absl::StatusOr<StepMemory> AuditService::remembered(const RunRegistry::Request& open) const {
  StepIdentity judged = open.identity;
  if (open.ranks > 1) judged.rank = open.ranks_here.empty() ? 0 : open.ranks_here.front();
  const auto bytes = parts_.store->memory_of(judged);
  if (!bytes.ok()) return bytes.status();
  return memory_from(*bytes);
}

absl::Status AuditService::admit(const Caller& caller, RunRegistry::Request* open, std::string* field) const {
  const std::string& project = open->identity.project;
  const auto owner = parts_.store->owner_of(open->identity);
  if (!owner.ok()) return owner.status();
  if (*owner && !parts_.access->handles(caller, project, **owner)) {
    *field = "identity.run";
    return absl::PermissionDeniedError(absl::StrCat("identity.run: expected a run that ", caller.name(),
                                                    " opened, found \"", open->identity.run,
                                                    "\", which another did: choose another name"));
  }
  if (*owner) open->owner = **owner;  // An administrator goes on with another's.
  std::optional<StepIdentity> reference;
  if (RunRegistry::reference_of(*open, &reference) || !reference)
    return absl::OkStatus();  // What is wrong shows later.
  const auto theirs = parts_.store->owner_of(*reference);
  if (!theirs.ok()) return theirs.status();
  if (*theirs && !parts_.access->sees(caller, project, **theirs)) {
    *field = "reference_run";
    return absl::PermissionDeniedError(absl::StrCat("reference_run: expected a run that ", caller.name(),
                                                    " may see, found \"", open->reference_run,
                                                    "\", which another opened"));
  }
  return absl::OkStatus();
}

Violation AuditService::check_golden(const Caller& caller, const RunRegistry::Request& open,
                                     const SharedOrigin& shared) const {
  const std::string& project = open.identity.project;
  if (!open.record_golden.empty() && shared.ok()) {
    const std::string run = absl::StrCat(open.identity.job, "/", open.identity.run);
    if (shared->owner == open.owner && shared->run == run) return {};
    return {absl::StatusCode::kAlreadyExists, "record_golden",
            absl::StrCat("golden run '", open.record_golden, "' of the shared history was recorded by run ",
                         shared->run, ": choose another name, or remove it on its node (plumb golden remove)")};
  }
  if (open.golden.empty()) return {};
  const auto owner = parts_.golden->owner_of(project, open.golden);
  if (absl::IsNotFound(owner.status()) && parts_.shared_golden != nullptr) {
    if (!shared.ok() && !absl::IsUnavailable(shared.status())) {
      return {shared.status().code(), "golden", std::string(shared.status().message())};
    }
    if (!shared.ok()) {
      return {
          absl::StatusCode::kUnavailable, "golden",
          absl::StrCat(owner.status().message(), " here, and the shared history is away: ", shared.status().message())};
    }
    if (parts_.shared_golden->sees(parts_.access->seen_by(caller), project, *shared)) return {};
  } else if (!owner.ok()) {
    return {owner.status().code(), "golden", std::string(owner.status().message())};
  } else if (parts_.access->sees(caller, project, *owner)) {
    return {};
  }
  return {absl::StatusCode::kPermissionDenied, "golden",
          absl::StrCat("expected a golden run that ", caller.name(), " may see, found '", open.golden,
                       "', which another recorded")};
}

Violation AuditService::begin_golden(const Run& run) const {
  if (run.record_golden.empty()) return {};
  v1::GoldenHeader header;
  header.set_project(run.identity.project);
  header.set_name(run.record_golden);
  header.set_run(absl::StrCat(run.identity.job, "/", run.identity.run));
  header.set_profile(run.profile_name);
  const std::int64_t now_us = absl::ToUnixMicros(absl::Now());
  header.mutable_time()->set_seconds(now_us / 1'000'000);
  header.mutable_time()->set_nanos(static_cast<std::int32_t>(now_us % 1'000'000 * 1000));
  const absl::Status begun = parts_.golden->begin(header, run.owner);
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
  plan.set_carried(true);
  if (regions_allowed) plan.set_region_chunk_bytes_max(limits::kRegionChunkBytesMax);
  plan.set_cuda_regions(regions_allowed && parts_.open_device_memory != nullptr);
  return plan;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AuditService::Audit(grpc::CallbackServerContext* context) {
  return AuditStream::start(this, context, identify(*context, *parts_.access));
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
  const auto ended = [this] { return streams_.empty(); };
  if (deadline == absl::InfiniteFuture()) {
    ended_.wait(lock, ended);
    return true;
  }
  return ended_.wait_for(lock, absl::ToChronoNanoseconds(deadline - steady_now()), ended);
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

std::shared_ptr<MemoryBudget::Share> AuditService::share_of(const std::string& project, const std::string& job) {
  using Share = MemoryBudget::Share;
  const std::lock_guard lock(mutex_);
  std::erase_if(shares_, [](const auto& each) { return each.second.expired(); });
  const auto shared = [&](const std::string& of_job, Share::Of of, std::uint64_t Quota::*limit,
                          std::shared_ptr<Share> within) {
    std::weak_ptr<Share>& kept = shares_[{project, of_job}];
    auto share = kept.lock();
    if (share == nullptr) {
      const auto most = [projects = parts_.projects, project, limit] { return projects->quota(project).*limit; };
      kept = share = std::make_shared<Share>(std::move(of), most, std::move(within));
    }
    return share;
  };
  auto whole = shared("", {"project", project, "bytes_in_flight"}, &Quota::bytes_in_flight, nullptr);
  return shared(job, {"job", absl::StrCat(project, "/", job), "job_bytes_in_flight"}, &Quota::job_bytes_in_flight,
                std::move(whole));
}

std::size_t AuditService::streams() const {
  const std::lock_guard lock(mutex_);
  return streams_.size();
}

std::uint64_t AuditService::bytes_in_flight(const std::string& project, const std::string& job) const {
  std::shared_ptr<MemoryBudget::Share> share;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = shares_.find({project, job}); found != shares_.end()) share = found->second.lock();
  }
  return share == nullptr ? 0 : parts_.memory->used(*share);
}

absl::Status AuditService::add_stream(const std::shared_ptr<AuditStream>& stream) {
  const std::lock_guard lock(mutex_);
  streams_.insert(stream);
  const std::size_t of_user = ++streams_of_users_[stream->user()];
  if (streams_.size() > options_.streams_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("expected at most ", options_.streams_max, " streams at a time (--max-streams)"));
  }
  if (of_user > options_.streams_of_a_user_max) {
    return absl::ResourceExhaustedError(absl::StrCat("expected at most ", options_.streams_of_a_user_max,
                                                     " streams of one user at a time (--max-streams-per-user)"));
  }
  return absl::OkStatus();
}

void AuditService::remove_stream(const std::shared_ptr<AuditStream>& stream) {
  {
    const std::lock_guard lock(mutex_);
    streams_.erase(stream);
    if (const auto of_user = streams_of_users_.find(stream->user()); --of_user->second == 0)
      streams_of_users_.erase(of_user);
    // Under the lock: whoever waits may destroy the service as soon as it is released.
    ended_.notify_all();
  }
}

}  // namespace plumbline
