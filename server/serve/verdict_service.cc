#include "server/serve/verdict_service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/format.h"
#include "server/serve/query_status.h"
#include "server/serve/watch.h"
#include "server/store/encode.h"
#include "server/store/page_token.h"
#include "server/work/serial_executor.h"

namespace plumbline {
namespace {

constexpr int kPageDefault = 100;
constexpr int kPageMax = 1000;
constexpr int kQueriesMax = 1024;                     // Waiting for the disk; past it: RESOURCE_EXHAUSTED.
constexpr std::size_t kWatchesMax = 256;              // At one time; the same.
constexpr std::chrono::milliseconds kDrainWait{500};  // For watchers to take the message that is being written.
constexpr char kDefaultProject[] = "default";

absl::StatusOr<int> page_size(int asked) {
  if (asked < 0 || asked > kPageMax) {
    return absl::InvalidArgumentError(absl::StrCat("page_size: expected 0 to ", kPageMax, ", found ", asked));
  }
  return asked == 0 ? kPageDefault : asked;
}

absl::Status check(const v1::Filter& filter) {
  if (!v1::Outcome_IsValid(filter.verdict())) {
    return absl::InvalidArgumentError(
        absl::StrCat("filter.verdict: expected TYPE_I, TYPE_II or INCONCLUSIVE, found ", filter.verdict()));
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

}  // namespace

class VerdictService::Impl final : public v1::VerdictService::CallbackService {
 public:
  Impl(VerdictStore* store, const TraceStore* kept) : store_(store), kept_(kept) {}

  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override {
    return answer(context, [this, request, response] { return list_jobs(*request, response); });
  }

  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                   v1::JobSummary* response) override {
    return answer(context, [this, request, response] {
      if (request->job().empty()) return absl::InvalidArgumentError("job: expected a job's name, found none");
      return take(store_->job(request->project().empty() ? kDefaultProject : request->project(), request->job()),
                  response);
    });
  }

  grpc::ServerUnaryReactor* ListVerdicts(grpc::CallbackServerContext* context, const v1::ListVerdictsRequest* request,
                                         v1::ListVerdictsResponse* response) override {
    return answer(context, [this, request, response] { return list_verdicts(*request, response); });
  }

  grpc::ServerUnaryReactor* GetVerdict(grpc::CallbackServerContext* context, const v1::GetVerdictRequest* request,
                                       v1::Verdict* response) override {
    return answer(context, [this, request, response] { return get_verdict(request->id(), response); });
  }

  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context, const v1::GetStatsRequest* request,
                                     v1::Stats* response) override {
    return answer(context, [this, request, response] {
      if (auto checked = check(request->filter()); !checked.ok()) return checked;
      return take(store_->stats(request->filter()), response);
    });
  }

  grpc::ServerUnaryReactor* ExplainVerdict(grpc::CallbackServerContext* context, const v1::GetVerdictRequest* request,
                                           v1::Explanation* response) override {
    return answer(context, [this, request, response] {
      if (auto got = get_verdict(request->id(), response->mutable_verdict()); !got.ok()) return got;
      response->set_text(explain_verdict(response->verdict()));
      return absl::OkStatus();
    });
  }

  grpc::ServerWriteReactor<v1::Verdict>* WatchVerdicts(grpc::CallbackServerContext* context,
                                                       const v1::WatchVerdictsRequest* request) override {
    auto watch = std::make_shared<Watch>(store_, &disk_, context, *request, [this, context] { forget(context); });
    Watch* const reactor = watch.get();
    absl::Status refused = check(request->filter());
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
  // Runs `work` on the disk's thread, then ends the call with what it returned. gRPC keeps request and response alive
  // until the call is finished.
  template <typename Work>
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, Work work) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (waiting_.fetch_add(1) >= kQueriesMax) {
      --waiting_;
      reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED,
                       absl::StrCat("expected at most ", kQueriesMax, " queries at one time")});
      return reactor;
    }
    disk_.post([this, reactor, work = std::move(work)] {
      const grpc::Status status = query_status(work());
      --waiting_;
      reactor->Finish(status);
    });
    return reactor;
  }

  template <typename Message>
  static absl::Status take(absl::StatusOr<Message> found, Message* response) {
    if (!found.ok()) return found.status();
    *response = std::move(*found);
    return absl::OkStatus();
  }

  absl::Status get_verdict(const std::string& id, v1::Verdict* response) const {
    if (auto got = take(store_->get(id), response); !got.ok()) return got;
    note_eviction(response);
    return absl::OkStatus();
  }

  // Verdicts stay as they were when their step was judged; traces do not.
  void note_eviction(v1::Verdict* verdict) const {
    StepIdentity step;
    if (kept_ == nullptr || verdict->trace() != v1::KEPT || !parse_id(verdict->id(), &step)) return;
    if (kept_->state(step) != TraceStore::State::kPresent) verdict->set_trace(v1::EVICTED);
  }

  absl::Status list_jobs(const v1::ListJobsRequest& request, v1::ListJobsResponse* response) const {
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
    auto found = store_->jobs(request.project(), project, job, *size);
    if (!found.ok()) return found.status();
    if (found->empty()) return absl::OkStatus();
    const v1::JobSummary& last = found->back();
    const auto rest = store_->jobs(request.project(), last.project(), last.job(), 1);
    if (!rest.ok()) return rest.status();
    if (!rest->empty()) response->set_next_page_token(make_page_token(question, last.project() + "/" + last.job()));
    for (v1::JobSummary& summary : *found) *response->add_jobs() = std::move(summary);
    return absl::OkStatus();
  }

  absl::Status list_verdicts(const v1::ListVerdictsRequest& request, v1::ListVerdictsResponse* response) const {
    const auto size = page_size(request.page_size());
    if (!size.ok()) return size.status();
    if (auto checked = check(request.filter()); !checked.ok()) return checked;
    const std::string question = "verdicts " + request.filter().SerializeAsString();
    std::int64_t after = 0;
    if (!request.page_token().empty()) {
      const auto place = read_page_token(question, request.page_token());
      if (!place.ok()) return place.status();
      std::from_chars(place->data(), place->data() + place->size(), after);  // Ours: it was checked.
    }
    auto found = store_->list(request.filter(), after, *size, /*whole=*/false);
    if (!found.ok()) return found.status();
    if (found->empty()) return absl::OkStatus();
    const std::int64_t last = found->back().sequence;
    const auto rest = store_->list(request.filter(), last, 1, /*whole=*/false);
    if (!rest.ok()) return rest.status();
    if (!rest->empty()) response->set_next_page_token(make_page_token(question, absl::StrCat(last)));
    for (StoredVerdict& stored : *found) {
      note_eviction(&stored.verdict);
      *response->add_verdicts() = std::move(stored.verdict);
    }
    return absl::OkStatus();
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

  VerdictStore* const store_;
  const TraceStore* const kept_;
  std::atomic<int> waiting_{0};
  std::mutex mutex_;
  std::condition_variable forgot_;
  std::map<grpc::CallbackServerContext*, std::shared_ptr<Watch>> watches_;
  bool draining_ = false;
  SerialExecutor disk_;  // Last: its thread uses all of the above.
};

VerdictService::VerdictService(VerdictStore* store, const TraceStore* kept)
    : impl_(std::make_unique<Impl>(store, kept)) {}
VerdictService::~VerdictService() = default;
grpc::Service* VerdictService::service() { return impl_.get(); }
void VerdictService::drain() { impl_->drain(); }

}  // namespace plumbline
