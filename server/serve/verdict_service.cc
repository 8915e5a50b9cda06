#include "server/serve/verdict_service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/cpp/format.h"
#include "google/protobuf/util/time_util.h"
#include "server/fault/fault.h"
#include "server/ingest/trace_id.h"
#include "server/log/log.h"
#include "server/serve/identify.h"
#include "server/serve/paging.h"
#include "server/serve/project_quotas.h"
#include "server/serve/query_pool.h"
#include "server/serve/query_status.h"
#include "server/serve/watch.h"
#include "server/store/encode.h"
#include "server/store/fleet_reader.h"
#include "server/store/page_token.h"
#include "server/work/serial_executor.h"

namespace plumbline {
namespace {

constexpr int kThreads = VerdictStore::kReaders - 1;  // One more connection is for watches.
constexpr std::chrono::seconds kQueryTime{30};        // A call without a deadline has so long.
constexpr std::chrono::milliseconds kDrainWait{500};  // For watchers to take the message that is being written.
constexpr std::chrono::seconds kSharedTime{10};       // The shared history has so long, or half of what is left.
constexpr char kDefaultProject[] = "default";

absl::StatusOr<Order> order_of(const std::string& text) {
  const std::map<std::string, Order::Key> keys = {{"", Order::Key::kSequence},
                                                  {"sequence", Order::Key::kSequence},
                                                  {"time", Order::Key::kTime},
                                                  {"step", Order::Key::kStep},
                                                  {"surprise", Order::Key::kSurprise}};
  absl::string_view key = text;
  Order order;
  order.descending = absl::ConsumeSuffix(&key, " desc");
  const auto found = keys.find(std::string(key));
  if (found == keys.end() || (key.empty() && order.descending)) {
    return absl::InvalidArgumentError(
        absl::StrCat("order_by: expected sequence, time, step or surprise, perhaps with \" desc\", found \"",
                     text.substr(0, 64), "\""));
  }
  order.key = found->second;
  return order;
}

absl::Status check(const v1::Filter& filter) {
  if (!v1::Outcome_IsValid(filter.verdict())) {
    return absl::InvalidArgumentError(absl::StrCat("filter.verdict: expected an Outcome, found ", filter.verdict()));
  }
  if (!v1::Cause_IsValid(filter.cause())) {
    return absl::InvalidArgumentError(absl::StrCat("filter.cause: expected a Cause, found ", filter.cause()));
  }
  if (!v1::Grade_IsValid(filter.grade())) {
    return absl::InvalidArgumentError(absl::StrCat("filter.grade: expected a Grade, found ", filter.grade()));
  }
  if (!filter.trace_id().empty() && !is_trace_id(filter.trace_id())) {
    return absl::InvalidArgumentError(absl::StrCat("filter.trace_id: expected ", kTraceIdExpected, ", found \"",
                                                   filter.trace_id().substr(0, 64), "\""));
  }
  if (filter.has_rank() && filter.rank() < -1) {
    return absl::InvalidArgumentError(absl::StrCat("filter.rank: expected 0 or more, or -1, found ", filter.rank()));
  }
  if (filter.has_surprise_min() && std::isnan(filter.surprise_min())) {
    return absl::InvalidArgumentError("filter.surprise_min: expected a number, found NaN");
  }
  using Time = google::protobuf::util::TimeUtil;
  const auto valid = [](const google::protobuf::Timestamp& time) {
    return time.seconds() >= Time::kTimestampMinSeconds && time.seconds() <= Time::kTimestampMaxSeconds &&
           time.nanos() >= 0 && time.nanos() < 1'000'000'000;
  };
  for (const auto& [name, given, time] : {std::tuple{"time_min", filter.has_time_min(), filter.time_min()},
                                          std::tuple{"time_max", filter.has_time_max(), filter.time_max()}}) {
    if (given && !valid(time)) {
      return absl::InvalidArgumentError(
          absl::StrCat("filter.", name, ": expected a time, found ", time.seconds(), " s and ", time.nanos(), " ns"));
    }
  }
  if (filter.step_min() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("filter.step_min: expected 0 or more, found ", filter.step_min()));
  }
  if (filter.step_max() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("filter.step_max: expected 0 or more, found ", filter.step_max()));
  }
  if (filter.step_max() != 0 && filter.step_max() < filter.step_min()) {
    return absl::InvalidArgumentError(absl::StrCat("filter.step_max: expected step_min (", filter.step_min(),
                                                   ") or more, found ", filter.step_max()));
  }
  return absl::OkStatus();
}

v1::StepUnderWay to_proto(const StepUnderWay& step) {
  static_assert(static_cast<int>(StepUnderWay::Stage::kStoring) + 1 == v1::StepUnderWay::STAGE_STORING);
  v1::StepUnderWay message;
  message.set_id(step.step.id());
  message.set_project(step.step.project);
  message.set_job(step.step.job);
  message.set_run(step.step.run);
  message.set_rank(step.step.rank);
  message.set_step(step.step.step);
  message.set_stage(static_cast<v1::StepUnderWay::Stage>(static_cast<int>(step.stage) + 1));
  *message.mutable_since() = google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(absl::ToUnixMicros(step.since));
  return message;
}

}  // namespace

class VerdictService::Impl final : public v1::VerdictService::CallbackService {
 public:
  explicit Impl(Parts parts) : parts_(std::move(parts)), store_(parts_.store), access_(parts_.access) {}

  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override {
    return answer(context, [=, this](const Caller& caller, const Stop& stop) {
      const FleetReader reader = fleet(*context);
      const auto got = list_jobs(reader, access_->seen_by(caller), *request, stop, response);
      *response->mutable_history() = reader.history();
      return got;
    });
  }

  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                   v1::JobSummary* response) override {
    return answer(context, [=, this](const Caller& caller, const Stop& stop) {
      const FleetReader reader = fleet(*context);
      const auto got = take(find_job(reader, access_->seen_by(caller), *request, stop), response);
      *response->mutable_history() = reader.history();
      return got;
    });
  }

  grpc::ServerUnaryReactor* ListRuns(grpc::CallbackServerContext* context, const v1::ListRunsRequest* request,
                                     v1::ListRunsResponse* response) override {
    return answer(context, [=, this](const Caller& caller, const Stop& stop) {
      const FleetReader reader = fleet(*context);
      const auto got = list_runs(reader, access_->seen_by(caller), *request, stop, response);
      *response->mutable_history() = reader.history();
      return got;
    });
  }

  grpc::ServerUnaryReactor* ListErrors(grpc::CallbackServerContext* context, const v1::ListErrorsRequest* request,
                                       v1::ListErrorsResponse* response) override {
    return answer(context, [=, this](const Caller& caller, const Stop& stop) {
      const FleetReader reader = fleet(*context);
      const auto got = list_errors(reader, access_->seen_by(caller), *request, stop, response);
      *response->mutable_history() = reader.history();
      return got;
    });
  }

  grpc::ServerUnaryReactor* ListAudits(grpc::CallbackServerContext* context, const v1::ListAuditsRequest* request,
                                       v1::ListAuditsResponse* response) override {
    return answer(context, [=, this](const Caller& caller, const Stop&) {
      return list_audits(access_->seen_by(caller), *request, response);
    });
  }

  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context, const v1::DeleteJobRequest* request,
                                      v1::DeleteJobResponse* response) override {
    return answer(context, [=, this](const Caller& caller, const Stop& stop) {
      return delete_job(caller, *request, stop, response);
    });
  }

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest*,
                                          v1::ServerInfo* response) override {
    return answer(context, [=, this](const Caller& caller, const Stop& stop) {
      *response = parts_.info;
      *response->mutable_history() = fleet(*context).history();
      if (parts_.use == nullptr) return absl::OkStatus();
      return add_project_quotas({access_, store_, parts_.use, parts_.kept, parts_.bytes_in_flight},
                                access_->seen_by(caller), stop, response);
    });
  }

  grpc::ServerUnaryReactor* ListVerdicts(grpc::CallbackServerContext* context, const v1::ListVerdictsRequest* request,
                                         v1::ListVerdictsResponse* response) override {
    return answer(context, [=, this](const Caller& caller, const Stop& stop) {
      const FleetReader reader = fleet(*context);
      const auto got = list_verdicts(reader, access_->seen_by(caller), *request, stop, response);
      *response->mutable_history() = reader.history();
      return got;
    });
  }

  grpc::ServerUnaryReactor* GetVerdict(grpc::CallbackServerContext* context, const v1::GetVerdictRequest* request,
                                       v1::Verdict* response) override {
    return answer(context, [=, this](const Caller& caller, const Stop& stop) {
      return get_verdict(fleet(*context), caller, request->id(), stop, response);
    });
  }

  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context, const v1::GetStatsRequest* request,
                                     v1::Stats* response) override {
    return answer(context, [=, this](const Caller& caller, const Stop& stop) {
      if (auto checked = check(request->filter()); !checked.ok()) return checked;
      const FleetReader reader = fleet(*context);
      const auto got = take(reader.stats(request->filter(), access_->seen_by(caller), stop), response);
      *response->mutable_history() = reader.history();
      return got;
    });
  }

  grpc::ServerUnaryReactor* ExplainVerdict(grpc::CallbackServerContext* context, const v1::GetVerdictRequest* request,
                                           v1::Explanation* response) override {
    return answer(context, [=, this](const Caller& caller, const Stop& stop) {
      const auto got = get_verdict(fleet(*context), caller, request->id(), stop, response->mutable_verdict());
      if (!got.ok()) return got;
      response->set_text(explain_verdict(response->verdict()));
      return absl::OkStatus();
    });
  }

  grpc::ServerWriteReactor<v1::Verdict>* WatchVerdicts(grpc::CallbackServerContext* context,
                                                       const v1::WatchVerdictsRequest* request) override {
    const auto caller = identify(*context, *access_);
    // Asked before each page: what a watcher may see can change while he watches.
    const auto seen = [access = access_, caller = caller.ok() ? *caller : Caller{}]() -> absl::StatusOr<Visibility> {
      if (auto valid = access->still(caller); !valid.ok()) return valid;
      return access->seen_by(caller);
    };
    auto watch = std::make_shared<Watch>(FleetFeed(store_, parts_.shared, [this] { return stopping_.load(); }), &disk_,
                                         context, *request, seen, [this, context] { forget(context); });
    Watch* const reactor = watch.get();
    absl::Status refused = caller.ok() ? check(request->filter()) : caller.status();
    {
      std::lock_guard lock(mutex_);
      if (refused.ok() && draining_) refused = absl::UnavailableError("draining");
      if (refused.ok() && watches_.size() >= kWatchesMax) {
        refused = absl::ResourceExhaustedError(absl::StrCat("expected at most ", kWatchesMax, " watches at one time"));
      }
      watches_.emplace(context, watch);  // Refused or not: it lives until gRPC has let go of it.
    }
    if (refused.ok()) {
      watch->start();
    } else {
      watch->end(query_status(refused));
    }
    return reactor;
  }

  void drain() {
    stopping_ = true;
    std::unique_lock lock(mutex_);
    draining_ = true;
    for (const auto& watch : open_watches()) {
      lock.unlock();
      watch->end({grpc::StatusCode::UNAVAILABLE, "draining"});
      lock.lock();
    }
    if (forgot_.wait_for(lock, kDrainWait, [this] { return watches_.empty(); })) return;
    const auto stuck = open_watches();
    lock.unlock();
    for (const auto& watch : stuck) watch->cancel();
  }

 private:
  // Runs `work` on a thread for queries, then ends the call with what it returned. gRPC keeps context, request and
  // response alive until the call is finished. What its client left, or has no time for any more, is given up.
  template <typename Work>
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, Work work) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    auto caller = identify(*context, *access_);
    if (!caller.ok()) {
      reactor->Finish(query_status(caller.status()));
      return reactor;
    }
    using Clock = std::chrono::system_clock;  // gRPC's deadlines are of it.
    const Stop stop = [this, context, deadline = std::min(context->deadline(), Clock::now() + kQueryTime)] {
      return stopping_ || Clock::now() >= deadline || context->IsCancelled();
    };
    const bool posted = pool_.post([this, context, reactor, stop, caller = *std::move(caller), work = std::move(work)] {
      absl::Status status = absl::CancelledError();
      const absl::Status fault = contained("a query", [&] {
        if (!stop()) status = work(caller, stop);
      });
      if (!fault.ok()) status = fault;
      if (absl::IsCancelled(status) && stopping_) status = absl::UnavailableError("draining");
      if (absl::IsCancelled(status) && !context->IsCancelled()) {
        status = absl::DeadlineExceededError("the query took too long; ask for less at a time");
      }
      reactor->Finish(query_status(status));
    });
    if (!posted) {
      reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED,
                       absl::StrCat("expected at most ", kQueriesMax, " queries at one time")});
    }
    return reactor;
  }

  // For one call.
  FleetReader fleet(const grpc::CallbackServerContext& context) const {
    using Left = FleetReader::Clock::duration;
    const auto left = context.deadline() - std::chrono::system_clock::now();
    const Left patience = std::min<Left>(kSharedTime, std::chrono::duration_cast<Left>(left / 2));
    return {store_, parts_.shared, FleetReader::Clock::now() + patience};
  }

  // The job that a request names by `project` and `job`.
  template <typename Request>
  absl::StatusOr<v1::JobSummary> find_job(const VerdictReader& reader, const Visibility& seen, const Request& request,
                                          const Stop& stop) const {
    if (request.job().empty()) return absl::InvalidArgumentError("job: expected a job's name, found none");
    return reader.job(project_of(request), request.job(), seen, stop);
  }

  template <typename Request>
  static std::string project_of(const Request& request) {
    return request.project().empty() ? kDefaultProject : request.project();
  }

  template <typename Message>
  static absl::Status take(absl::StatusOr<Message> found, Message* response) {
    if (!found.ok()) return found.status();
    *response = std::move(*found);
    return absl::OkStatus();
  }

  absl::Status get_verdict(const FleetReader& reader, const Caller& caller, const std::string& id, const Stop& stop,
                           v1::Verdict* response) const {
    if (auto got = take(reader.find(id, access_->seen_by(caller), stop), response); !got.ok()) return got;
    note_eviction(response);
    return absl::OkStatus();
  }

  // Verdicts stay as they were when their step was judged; traces do not. Of other daemons' it is not known.
  void note_eviction(v1::Verdict* verdict) const {
    StepIdentity step;
    if (parts_.shared != nullptr && verdict->node() != parts_.shared->name()) return;
    if (parts_.kept == nullptr || verdict->trace() != v1::TRACE_STATE_KEPT || !parse_id(verdict->id(), &step)) return;
    if (parts_.kept->state(step) != TraceStore::State::kPresent) verdict->set_trace(v1::TRACE_STATE_EVICTED);
  }

  absl::Status list_jobs(const FleetReader& reader, const Visibility& seen, const v1::ListJobsRequest& request,
                         const Stop& stop, v1::ListJobsResponse* response) const {
    const auto size = page_size(request.page_size());
    if (!size.ok()) return size.status();
    const std::string question = "jobs " + request.project();
    std::string project, job;
    if (!request.page_token().empty()) {
      const auto place = read_page_token(question, request.page_token());
      if (!place.ok()) return place.status();
      const std::size_t slash = place->find('/');
      project = place->substr(0, slash);
      if (slash != std::string::npos) job = place->substr(slash + 1);
    }
    auto found = reader.jobs(request.project(), project, job, *size, seen, stop);
    if (!found.ok()) return found.status();
    if (found->empty()) return absl::OkStatus();
    const v1::JobSummary& last = found->back();
    const auto rest = reader.jobs(request.project(), last.project(), last.job(), 1, seen, stop);
    if (!rest.ok()) return rest.status();
    if (!rest->empty()) response->set_next_page_token(make_page_token(question, last.project() + "/" + last.job()));
    for (v1::JobSummary& summary : *found) *response->add_jobs() = std::move(summary);
    return absl::OkStatus();
  }

  absl::Status list_verdicts(const FleetReader& reader, const Visibility& seen, const v1::ListVerdictsRequest& request,
                             const Stop& stop, v1::ListVerdictsResponse* response) const {
    const auto size = page_size(request.page_size());
    if (!size.ok()) return size.status();
    if (auto checked = check(request.filter()); !checked.ok()) return checked;
    const auto order = order_of(request.order_by());
    if (!order.ok()) return order.status();
    const std::string question =
        absl::StrCat("verdicts ", request.order_by(), " ", request.filter().SerializeAsString());
    std::optional<ListPlace> after;
    if (!request.page_token().empty()) {
      const auto place = read_page_token(question, request.page_token());
      if (!place.ok()) return place.status();
      after = read_place(*place);
    }
    auto found = reader.list(request.filter(), *order, after ? &*after : nullptr, *size, /*whole=*/false, seen, stop);
    if (!found.ok()) return found.status();
    if (found->empty()) return absl::OkStatus();
    const ListPlace last = found->back();
    const auto rest = reader.list(request.filter(), *order, &last, 1, /*whole=*/false, seen, stop);
    if (!rest.ok()) return rest.status();
    if (!rest->empty()) {
      response->set_next_page_token(make_page_token(question, write_place(last)));
    }
    for (StoredVerdict& stored : *found) {
      note_eviction(&stored.verdict);
      *response->add_verdicts() = std::move(stored.verdict);
    }
    return absl::OkStatus();
  }

  absl::Status list_runs(const FleetReader& reader, const Visibility& seen, const v1::ListRunsRequest& request,
                         const Stop& stop, v1::ListRunsResponse* response) const {
    const auto size = page_size(request.page_size());
    if (!size.ok()) return size.status();
    if (const auto job = find_job(reader, seen, request, stop); !job.ok()) return job.status();
    const std::string project = project_of(request);
    const std::string question = absl::StrCat("runs ", project, "/", request.job());
    v1::RunSummary after;
    after.set_rank(-1);
    if (auto read = read_message_token(question, request.page_token(), &after); !read.ok()) return read;
    auto found = reader.runs(project, request.job(), after.run(), after.rank(), *size + 1, seen, stop);
    if (!found.ok()) return found.status();
    if (found->size() > static_cast<std::size_t>(*size)) {
      found->pop_back();
      after.set_run(found->back().run());
      after.set_rank(found->back().rank());
      response->set_next_page_token(make_page_token(question, after.SerializeAsString()));
    }
    for (v1::RunSummary& run : *found) *response->add_runs() = std::move(run);
    return absl::OkStatus();
  }

  absl::Status list_audits(const Visibility& seen, const v1::ListAuditsRequest& request,
                           v1::ListAuditsResponse* response) const {
    const auto size = page_size(request.page_size());
    if (!size.ok()) return size.status();
    const std::string question = absl::StrCat("audits ", request.project(), "/", request.job());
    std::string after;
    if (!request.page_token().empty()) {
      const auto place = read_page_token(question, request.page_token());
      if (!place.ok()) return place.status();
      after = *place;
    }
    if (parts_.pipeline == nullptr) return absl::OkStatus();
    auto found = parts_.pipeline->under_way(after, static_cast<std::size_t>(*size) + 1,
                                            [&](const StepIdentity& step, const std::string& owner) {
                                              return (request.project().empty() || request.project() == step.project) &&
                                                     (request.job().empty() || request.job() == step.job) &&
                                                     (seen.whole(step.project) || owner == seen.owner);
                                            });
    if (found.size() > static_cast<std::size_t>(*size)) {
      found.pop_back();
      response->set_next_page_token(make_page_token(question, found.back().step.id()));
    }
    for (const StepUnderWay& step : found) *response->add_audits() = to_proto(step);
    return absl::OkStatus();
  }

  absl::Status list_errors(const FleetReader& reader, const Visibility& seen, const v1::ListErrorsRequest& request,
                           const Stop& stop, v1::ListErrorsResponse* response) const {
    const auto size = page_size(request.page_size());
    if (!size.ok()) return size.status();
    if (const auto job = find_job(reader, seen, request, stop); !job.ok()) return job.status();
    const std::string project = project_of(request);
    const std::string question = absl::StrCat("errors ", project, "/", request.job());
    v1::RefusedStep after;
    after.set_rank(-1);
    if (auto read = read_message_token(question, request.page_token(), &after); !read.ok()) return read;
    auto found = reader.errors(project, request.job(), after, *size, seen, stop);
    if (!found.ok() || found->empty()) return found.status();
    after.set_run(found->back().run());
    after.set_rank(found->back().rank());
    after.set_step(found->back().step());
    after.set_digest(found->back().digest());
    const auto rest = reader.errors(project, request.job(), after, 1, seen, stop);
    if (!rest.ok()) return rest.status();
    if (!rest->empty()) response->set_next_page_token(make_page_token(question, after.SerializeAsString()));
    for (v1::RefusedStep& error : *found) *response->add_errors() = std::move(error);
    return absl::OkStatus();
  }

  // Where the page before ended; left as it is for the first page.
  template <typename Message>
  static absl::Status read_message_token(const std::string& question, const std::string& token, Message* after) {
    if (token.empty()) return absl::OkStatus();
    const auto place = read_page_token(question, token);
    if (!place.ok()) return place.status();
    if (!after->ParseFromString(*place)) return absl::InvalidArgumentError("page_token: expected one of this list");
    return absl::OkStatus();
  }

  // Only those who may handle every run of a job may delete it.
  absl::Status delete_job(const Caller& caller, const v1::DeleteJobRequest& request, const Stop& stop,
                          v1::DeleteJobResponse* response) const {
    auto job = find_job(*store_, access_->seen_by(caller), request, stop);  // What is there of others stays.
    if (!job.ok()) return job.status();
    const std::string project = project_of(request);
    if (auto allowed = check_handles_all(caller, project, request.job(), stop); !allowed.ok()) return allowed;
    if (parts_.runs != nullptr && !parts_.runs->forget_job(project, request.job())) {
      return absl::FailedPreconditionError(absl::StrCat(
          "job: expected one without a stream, found that one is open on a run of \"", request.job(), "\""));
    }
    std::promise<absl::Status> removed;
    store_->remove_job(
        project, request.job(), [this] { return stopping_.load(); },
        [&](const absl::Status& status) { removed.set_value(status); });
    if (absl::Status status = removed.get_future().get(); !status.ok()) return status;
    for (TraceStore* const traces : {parts_.kept, parts_.references}) {
      if (traces != nullptr) response->set_traces(response->traces() + traces->remove_job(project, request.job()));
    }
    if (parts_.pairs != nullptr) parts_.pairs->remove_job(project, request.job());
    log_event(LogLevel::kInfo, "job_deleted",
              {{"job", absl::StrCat(project, "/", request.job())},
               {"by", caller.name()},
               {"verdicts", absl::StrCat(job->steps())},
               {"traces", absl::StrCat(response->traces())}});
    if (parts_.removed) parts_.removed();
    *response->mutable_removed() = *std::move(job);
    return absl::OkStatus();
  }

  absl::Status check_handles_all(const Caller& caller, const std::string& project, const std::string& job,
                                 const Stop& stop) const {
    if (access_->may(caller, Role::kAdmin, project)) return absl::OkStatus();
    constexpr int kRunsAtATime = 1000;
    v1::RunSummary after;
    after.set_rank(-1);
    for (;;) {
      const auto runs = store_->runs(project, job, after.run(), after.rank(), kRunsAtATime, Visibility{}, stop);
      if (!runs.ok()) return runs.status();
      for (const v1::RunSummary& run : *runs) {
        if (access_->handles(caller, project, run.owner())) continue;
        return absl::PermissionDeniedError(
            absl::StrCat("job: expected one whose runs are all of ", caller.name(), ", found \"", job, "\""));
      }
      if (runs->size() < kRunsAtATime) return absl::OkStatus();
      after = runs->back();
    }
  }

  std::vector<std::shared_ptr<Watch>> open_watches() const {  // With mutex_ held.
    std::vector<std::shared_ptr<Watch>> open;
    for (const auto& [context, watch] : watches_) open.push_back(watch);
    return open;
  }

  void forget(grpc::CallbackServerContext* context) {
    std::shared_ptr<Watch> last;  // Destroyed after the lock is given back.
    std::lock_guard lock(mutex_);
    const auto found = watches_.find(context);
    if (found == watches_.end()) return;
    last = std::move(found->second);
    watches_.erase(found);
    forgot_.notify_all();
  }

  const Parts parts_;
  SqlStore* const store_;
  const Access* const access_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable forgot_;
  std::map<grpc::CallbackServerContext*, std::shared_ptr<Watch>> watches_;
  bool draining_ = false;
  SerialExecutor disk_;  // For watches. It and the pool are last: their threads use all of the above.
  QueryPool pool_{kThreads, kQueriesMax};
};

VerdictService::VerdictService(Parts parts) : impl_(std::make_unique<Impl>(std::move(parts))) {}
VerdictService::~VerdictService() = default;
grpc::Service* VerdictService::service() { return impl_.get(); }
void VerdictService::drain() { impl_->drain(); }

}  // namespace plumbline
