#include "client/cpp/client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline {

struct Client::Watch {
  std::mutex mutex;
  std::condition_variable changed;
  grpc::ClientContext* context = nullptr;  // The context of the watch that runs.
  bool cancelled = false;
};

Client::Client(const std::string& address, const Credentials& credentials)
    : address_(address), token_(credentials.token), watch_(std::make_unique<Watch>()) {
  grpc::ChannelArguments arguments;  // A daemon that was started again is found within a second.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  channel_ = grpc::CreateCustomChannel(
      address,
      credentials.tls ? grpc::SslCredentials({credentials.authorities, credentials.key, credentials.certificate})
                      : grpc::InsecureChannelCredentials(),
      arguments);
  stub_ = v1::VerdictService::NewStub(channel_);
  archive_ = v1::ArchiveService::NewStub(channel_);
}

Client::~Client() = default;

void Client::introduce(grpc::ClientContext& context) const {
  if (!token_.empty()) context.AddMetadata("authorization", "Bearer " + token_);
}

absl::Status Client::status_of(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  if (code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded) {
    return absl::Status(code, absl::StrCat("no answer from ", address_, ": ", status.error_message()));
  }
  return absl::Status(code, status.error_message());
}

template <typename Response>
void Client::note_history(const Response& response) {
  if constexpr (requires { response.history(); }) {
    if (!response.has_history()) return;
    const std::lock_guard lock(history_mutex_);
    history_ = response.history();
  }
}

v1::History Client::history() const {
  const std::lock_guard lock(history_mutex_);
  return history_;
}

template <typename Request, typename Response>
absl::StatusOr<Response> Client::call(grpc::Status (v1::VerdictService::Stub::*method)(grpc::ClientContext*,
                                                                                       const Request&, Response*),
                                      const Request& request) {
  grpc::ClientContext context;
  introduce(context);
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  Response response;
  const grpc::Status status = (stub_.get()->*method)(&context, request, &response);
  if (!status.ok()) return status_of(status);
  note_history(response);
  return response;
}

template <typename Request, typename Page, typename Item>
absl::StatusOr<std::vector<Item>> Client::listed(
    grpc::Status (v1::VerdictService::Stub::*method)(grpc::ClientContext*, const Request&, Page*), Request request,
    google::protobuf::RepeatedPtrField<Item>* (Page::*items)(), std::size_t count) {
  std::vector<Item> found;
  do {
    request.set_page_size(static_cast<int>(std::min(count - found.size(), std::size_t{1000})));
    auto page = call(method, request);
    if (!page.ok()) return page.status();
    for (Item& item : *((*page).*items)()) found.push_back(std::move(item));
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty() && found.size() < count);
  return found;
}

absl::StatusOr<std::vector<v1::JobSummary>> Client::jobs(const std::string& project) {
  v1::ListJobsRequest request;
  request.set_project(project);
  return listed(&v1::VerdictService::Stub::ListJobs, request, &v1::ListJobsResponse::mutable_jobs);
}

absl::StatusOr<v1::JobSummary> Client::job(const std::string& project, const std::string& job) {
  v1::GetJobRequest request;
  request.set_project(project);
  request.set_job(job);
  return call(&v1::VerdictService::Stub::GetJob, request);
}

absl::Status Client::verdicts(const v1::Filter& filter, const std::function<void(v1::Verdict)>& each) {
  v1::ListVerdictsRequest request;
  *request.mutable_filter() = filter;
  request.set_page_size(1000);
  do {
    auto page = call(&v1::VerdictService::Stub::ListVerdicts, request);
    if (!page.ok()) return page.status();
    for (v1::Verdict& verdict : *page->mutable_verdicts()) each(std::move(verdict));
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::Verdict>> Client::verdicts(const v1::Filter& filter, const std::string& order_by,
                                                          std::size_t count) {
  v1::ListVerdictsRequest request;
  *request.mutable_filter() = filter;
  request.set_order_by(order_by);
  return listed(&v1::VerdictService::Stub::ListVerdicts, request, &v1::ListVerdictsResponse::mutable_verdicts, count);
}

absl::StatusOr<std::vector<v1::RunSummary>> Client::runs(const std::string& project, const std::string& job,
                                                         std::size_t count) {
  v1::ListRunsRequest request;
  request.set_project(project);
  request.set_job(job);
  return listed(&v1::VerdictService::Stub::ListRuns, request, &v1::ListRunsResponse::mutable_runs, count);
}

absl::StatusOr<std::vector<v1::RefusedStep>> Client::refused(const std::string& project, const std::string& job,
                                                             std::size_t count) {
  v1::ListErrorsRequest request;
  request.set_project(project);
  request.set_job(job);
  return listed(&v1::VerdictService::Stub::ListErrors, request, &v1::ListErrorsResponse::mutable_errors, count);
}

absl::StatusOr<std::vector<v1::StepUnderWay>> Client::audits(const std::string& project, const std::string& job,
                                                             std::size_t count) {
  v1::ListAuditsRequest request;
  request.set_project(project);
  request.set_job(job);
  return listed(&v1::VerdictService::Stub::ListAudits, request, &v1::ListAuditsResponse::mutable_audits, count);
}

absl::StatusOr<v1::ServerInfo> Client::server_info() {
  return call(&v1::VerdictService::Stub::GetServerInfo, v1::GetServerInfoRequest());
}

absl::StatusOr<v1::Verdict> Client::verdict(const std::string& id) {
  v1::GetVerdictRequest request;
  request.set_id(id);
  return call(&v1::VerdictService::Stub::GetVerdict, request);
}

absl::StatusOr<v1::Explanation> Client::explain(const std::string& id) {
  v1::GetVerdictRequest request;
  request.set_id(id);
  return call(&v1::VerdictService::Stub::ExplainVerdict, request);
}

absl::StatusOr<v1::Stats> Client::stats(const v1::Filter& filter) {
  v1::GetStatsRequest request;
  *request.mutable_filter() = filter;
  return call(&v1::VerdictService::Stub::GetStats, request);
}

struct Client::Watched {
  grpc::Status status;
  bool enough = false;  // `each`, or cancel(), said so.
  bool began = false;   // The server answered.
};

Client::Watched Client::watch_once(v1::WatchVerdictsRequest* request, const std::function<bool(v1::Verdict)>& each) {
  grpc::ClientContext context;
  introduce(context);
  {
    std::lock_guard lock(watch_->mutex);
    if (watch_->cancelled) return {{}, true};
    watch_->context = &context;
  }
  auto reader = stub_->WatchVerdicts(&context, *request);
  reader->WaitForInitialMetadata();
  const auto& headers = context.GetServerInitialMetadata();
  const auto token = headers.find("plumbline-resume-token");
  Watched watched;
  watched.began = token != headers.end();
  if (watched.began) request->set_resume_token({token->second.data(), token->second.size()});
  for (v1::Verdict verdict; !watched.enough && reader->Read(&verdict); verdict.Clear()) {
    request->set_resume_token(verdict.resume_token());
    verdict.clear_resume_token();
    watched.enough = !each(std::move(verdict));
  }
  if (watched.enough) context.TryCancel();
  watched.status = reader->Finish();
  std::lock_guard lock(watch_->mutex);
  watch_->context = nullptr;
  watched.enough = watched.enough || watch_->cancelled;
  return watched;
}

absl::Status Client::watch(const v1::Filter& filter, bool include_past, const std::function<bool(v1::Verdict)>& each,
                           std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kPause{100};
  using Clock = std::chrono::steady_clock;
  v1::WatchVerdictsRequest request;
  *request.mutable_filter() = filter;
  request.set_include_past(include_past);
  Clock::time_point until = Clock::now();
  for (;;) {
    const Watched watched = watch_once(&request, each);
    if (watched.enough) return absl::OkStatus();
    // A daemon from before there were tokens gives none: what it would tell a second time is not known.
    if (watched.began) until = Clock::now() + patience;
    // CANCELLED: the daemon, which had to end, did not wait for us to take its last word; we ourselves say enough.
    const bool cut = watched.status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                     watched.status.error_code() == grpc::StatusCode::CANCELLED;
    const bool again = cut && !request.resume_token().empty();
    if (!again || Clock::now() >= until) return status_of(watched.status);
    std::unique_lock lock(watch_->mutex);
    if (watch_->changed.wait_for(lock, kPause, [this] { return watch_->cancelled; })) return absl::OkStatus();
  }
}

absl::Status Client::drain(grpc::ClientReader<v1::FileChunk>& reader, grpc::ClientContext& context,
                           const Sink& sink) const {
  v1::FileChunk chunk;
  bool taken = true;
  while (taken && reader.Read(&chunk)) taken = sink(chunk.data());
  if (!taken) context.TryCancel();
  const grpc::Status status = reader.Finish();
  return taken ? status_of(status) : absl::OkStatus();
}

absl::Status Client::export_trace(const std::string& id, const Sink& sink) {
  grpc::ClientContext context;
  introduce(context);
  v1::ExportTraceRequest request;
  request.set_id(id);
  return drain(*archive_->ExportTrace(&context, request), context, sink);
}

namespace {

// Sends an id, or the file where it is empty.
template <typename Writer>
void send_trace(const std::string& id, const Client::Source& file, const std::string& profile, Writer& writer) {
  v1::ReplayRequest request;
  request.set_id(id);
  request.set_profile(profile);
  bool open = writer.Write(request);
  request.Clear();
  while (id.empty() && open && file(request.mutable_data())) open = writer.Write(request);
  writer.WritesDone();
}

}  // namespace

absl::StatusOr<v1::Explanation> Client::replay(const std::string& id, const Source& file, const std::string& profile) {
  grpc::ClientContext context;
  introduce(context);
  v1::Explanation response;
  const auto writer = archive_->Replay(&context, &response);
  send_trace(id, file, profile, *writer);
  const grpc::Status status = writer->Finish();
  if (!status.ok()) return status_of(status);
  return response;
}

absl::Status Client::reproduce(const std::string& id, const Source& file, const std::string& profile,
                               const Sink& script, const Sink& data) {
  grpc::ClientContext context;
  introduce(context);
  const auto stream = archive_->Reproduce(&context);
  send_trace(id, file, profile, *stream);
  v1::ReproducerChunk chunk;
  bool taken = true;
  while (taken && stream->Read(&chunk)) {
    taken = (chunk.script().empty() || script(chunk.script())) && (chunk.data().empty() || data(chunk.data()));
  }
  if (!taken) context.TryCancel();
  const grpc::Status status = stream->Finish();
  return taken ? status_of(status) : absl::OkStatus();
}

absl::StatusOr<std::vector<v1::GoldenSummary>> Client::golden(const std::string& project) {
  std::vector<v1::GoldenSummary> all;
  v1::ListGoldenRequest request;
  request.set_project(project);
  request.set_page_size(1000);
  do {
    grpc::ClientContext context;
    introduce(context);
    v1::ListGoldenResponse page;
    const grpc::Status status = archive_->ListGolden(&context, request, &page);
    if (!status.ok()) return status_of(status);
    for (v1::GoldenSummary& golden : *page.mutable_golden()) all.push_back(std::move(golden));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return all;
}

absl::Status Client::export_golden(const v1::GoldenName& golden, const Sink& sink) {
  grpc::ClientContext context;
  introduce(context);
  return drain(*archive_->ExportGolden(&context, golden), context, sink);
}

absl::StatusOr<v1::GoldenSummary> Client::import_golden(const v1::GoldenName& golden, const Source& file) {
  grpc::ClientContext context;
  introduce(context);
  v1::GoldenSummary response;
  const auto writer = archive_->ImportGolden(&context, &response);
  v1::ImportGoldenRequest request;
  request.set_project(golden.project());
  request.set_name(golden.name());
  for (bool open = writer->Write(request); open && file(request.mutable_data());) open = writer->Write(request);
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  if (!status.ok()) return status_of(status);
  return response;
}

absl::Status Client::remove_golden(const v1::GoldenName& golden) {
  grpc::ClientContext context;
  introduce(context);
  v1::GoldenSummary response;
  return status_of(archive_->RemoveGolden(&context, golden, &response));
}

void Client::cancel() {
  std::lock_guard lock(watch_->mutex);
  watch_->cancelled = true;
  watch_->changed.notify_all();
  if (watch_->context) watch_->context->TryCancel();
}

}  // namespace plumbline
