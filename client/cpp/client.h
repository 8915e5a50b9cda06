// Asks a plumblined: plumbline.v1.VerdictService and ArchiveService with typed calls.
//
// Thread-safe, except that one watch at a time runs in a Client. Errors: the server's status, with a message that names
// the address where the server could not be reached (UNAVAILABLE) or did not answer in time (DEADLINE_EXCEEDED).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/credentials.h"
#include "plumbline/v1/archive.grpc.pb.h"
#include "plumbline/v1/query.grpc.pb.h"

namespace plumbline {

class Client {
 public:
  static constexpr std::chrono::seconds kDeadline{30};  // Each call has it, but watch() and those of the archive.
  static constexpr std::chrono::seconds kPatience{60};  // Of watch().

  // `address`: "unix:///run/plumbline.sock", "unix:relative.sock" or "HOST:PORT". Connects with the first call.
  explicit Client(const std::string& address, const Credentials& credentials = {});
  ~Client();

  // Every page. An empty project: all of them.
  absl::StatusOr<std::vector<v1::JobSummary>> jobs(const std::string& project = "");
  absl::StatusOr<v1::JobSummary> job(const std::string& project, const std::string& job);

  // Calls `each` with every verdict that matches, in order of commit, without taps, contributors and alignment;
  // page by page.
  absl::Status verdicts(const v1::Filter& filter, const std::function<void(v1::Verdict)>& each);

  // The first `count` that match by an order of ListVerdictsRequest.order_by ("sequence desc": the last committed).
  absl::StatusOr<std::vector<v1::Verdict>> verdicts(const v1::Filter& filter, const std::string& order_by,
                                                    std::size_t count);

  // The first `count` of a job's runs and of its refused steps.
  absl::StatusOr<std::vector<v1::RunSummary>> runs(const std::string& project, const std::string& job,
                                                   std::size_t count);
  absl::StatusOr<std::vector<v1::RefusedStep>> refused(const std::string& project, const std::string& job,
                                                       std::size_t count);
  // The first `count` of the steps that have no answer yet. Empty project or job: any.
  absl::StatusOr<std::vector<v1::StepUnderWay>> audits(const std::string& project, const std::string& job,
                                                       std::size_t count);
  absl::StatusOr<v1::ServerInfo> server_info();
  v1::History history() const;  // Of the last answer of the above that said which histories it is from.

  absl::StatusOr<v1::Verdict> verdict(const std::string& id);  // "project/job/run/rank/step"
  absl::StatusOr<v1::Explanation> explain(const std::string& id);
  absl::StatusOr<v1::Stats> stats(const v1::Filter& filter);

  // Calls `each` with every new verdict that matches (with include_past, first those on disk) until it returns false
  // (OK), cancel() is called (OK) or the server ends the stream. Where a connection was cut, or the daemon stopped, the
  // watch goes on from where it was if the daemon answers again within `patience`: no verdict is missed and none comes
  // twice.
  absl::Status watch(const v1::Filter& filter, bool include_past, const std::function<bool(v1::Verdict)>& each,
                     std::chrono::milliseconds patience = kPatience);
  void cancel();  // From any thread.

  using Sink = std::function<bool(const std::string&)>;    // False: it takes no more.
  using Source = std::function<bool(std::string* bytes)>;  // False: there is no more. At most 1 MiB each.

  // The trace behind a verdict, as a file's bytes.
  absl::Status export_trace(const std::string& id, const Sink& sink);
  // Audits the trace behind a verdict again, or, where `id` is empty, that of a file. An empty profile: its own.
  absl::StatusOr<v1::Explanation> replay(const std::string& id, const Source& file, const std::string& profile);
  // Reduces such a trace to the operation at fault: the script, then through `data` the file that belongs beside it.
  absl::Status reproduce(const std::string& id, const Source& file, const std::string& profile, const Sink& script,
                         const Sink& data);

  absl::StatusOr<std::vector<v1::GoldenSummary>> golden(const std::string& project);  // Empty: of any.
  absl::Status export_golden(const v1::GoldenName& golden, const Sink& sink);
  // Empty project and name: the file's own.
  absl::StatusOr<v1::GoldenSummary> import_golden(const v1::GoldenName& golden, const Source& file);
  absl::Status remove_golden(const v1::GoldenName& golden);

 private:
  template <typename Request, typename Response>
  absl::StatusOr<Response> call(grpc::Status (v1::VerdictService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                                 Response*),
                                const Request& request);
  // Page after page, up to `count` of what each page's `items` hold.
  template <typename Request, typename Page, typename Item>
  absl::StatusOr<std::vector<Item>> listed(grpc::Status (v1::VerdictService::Stub::*method)(grpc::ClientContext*,
                                                                                            const Request&, Page*),
                                           Request request, google::protobuf::RepeatedPtrField<Item>* (Page::*items)(),
                                           std::size_t count = SIZE_MAX);
  void introduce(grpc::ClientContext& context) const;  // With the token.
  absl::Status status_of(const grpc::Status& status) const;
  absl::Status drain(grpc::ClientReader<v1::FileChunk>& reader, grpc::ClientContext& context, const Sink& sink) const;

  template <typename Response>
  void note_history(const Response& response);

  struct Watch;
  struct Watched;
  // Makes one call of a watch, which goes on from request's token where it has one, and leaves there where it came to.
  Watched watch_once(v1::WatchVerdictsRequest* request, const std::function<bool(v1::Verdict)>& each);

  const std::string address_;
  const std::string token_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::VerdictService::Stub> stub_;
  std::unique_ptr<v1::ArchiveService::Stub> archive_;
  std::unique_ptr<Watch> watch_;
  mutable std::mutex history_mutex_;
  v1::History history_;
};

}  // namespace plumbline
