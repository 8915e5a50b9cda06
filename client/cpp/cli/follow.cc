#include "client/cpp/cli/follow.h"

#include <nats/nats.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cpp/cli/output.h"
#include "client/cpp/cli/signals.h"
#include "client/cpp/client.h"
#include "client/cpp/format.h"
#include "client/cpp/nats/connect.h"
#include "client/cpp/nats/message.h"

namespace plumbline {
namespace {

constexpr std::int64_t kTurnMs = 200;  // How long a signal may have to wait.
constexpr int kTurnsToLook = 25;       // So often, without messages, it is asked whether the stream is the same.
constexpr std::chrono::seconds kRetry{1};

template <typename T, void (*destroy)(T*)>
struct Destroy {
  void operator()(T* object) const { destroy(object); }
};
using StreamInfo = std::unique_ptr<jsStreamInfo, Destroy<jsStreamInfo, jsStreamInfo_Destroy>>;
using Message = std::unique_ptr<natsMsg, Destroy<natsMsg, natsMsg_Destroy>>;
using Metadata = std::unique_ptr<jsMsgMetaData, Destroy<jsMsgMetaData, jsMsgMetaData_Destroy>>;
using Subscription = std::unique_ptr<natsSubscription, Destroy<natsSubscription, natsSubscription_Destroy>>;

std::function<std::string(const char*)> headers_of(natsMsg* message) {
  return [message](const char* name) -> std::string {
    const char* value = nullptr;
    return natsMsgHeader_Get(message, name, &value) == NATS_OK && value != nullptr ? value : "";
  };
}

bool matches(const v1::Filter& filter, const v1::Verdict& verdict) {
  const auto is = [](const std::string& wanted, const std::string& found) { return wanted.empty() || wanted == found; };
  return is(filter.project(), verdict.project()) && is(filter.job(), verdict.job()) &&
         is(filter.run(), verdict.run()) && is(filter.trace_id(), verdict.trace_id()) &&
         (filter.verdict() == v1::OUTCOME_UNSPECIFIED || filter.verdict() == verdict.verdict()) &&
         verdict.step() >= filter.step_min() && (filter.step_max() == 0 || verdict.step() <= filter.step_max());
}

// Reads a stream to its end and on, through the loss of the server and of the stream itself: what was shown is not
// shown again when daemons publish it anew, since each daemon's messages have numbers of its own that grow.
class Follower {
 public:
  Follower(NatsSettings settings, bool past) : settings_(std::move(settings)), past_(past) {}

  using Each = std::function<bool(const PublishedVerdict&)>;  // False: that is enough.
  using Tell = std::function<void(const std::string&)>;

  // Until `stop` or enough. An error: why it cannot go on now; called again, it does.
  absl::Status read(const std::atomic<bool>& stop, const Each& each, const Tell& tell);
  bool began() const { return !stream_.empty(); }  // The stream was there once.

 private:
  absl::StatusOr<StreamInfo> look(bool with_nodes);
  absl::Status skip_past(const jsStreamInfo& info);  // What is there is not shown, however often it comes.
  absl::StatusOr<Subscription> subscribe();
  absl::Status error(natsStatus status, jsErrCode code, const std::string& doing) const {
    return nats_error(status, code, absl::StrCat(settings_.address, ": ", doing));
  }
  bool take(natsMsg* message, const Each& each, const Tell& tell);

  const NatsSettings settings_;
  const bool past_;
  std::unique_ptr<NatsConnection> connection_;
  std::string stream_;                        // By when it was made; empty: none was read yet.
  std::uint64_t last_ = 0;                    // The number, in that stream, of the last message that was read.
  std::map<std::string, std::int64_t> seen_;  // By node: the number, in its history, of its last verdict that came.
};

absl::StatusOr<StreamInfo> Follower::look(bool with_nodes) {
  jsOptions options;
  jsOptions_Init(&options);
  options.Wait = absl::ToInt64Milliseconds(settings_.answer_timeout);
  if (with_nodes) options.Stream.Info.SubjectsFilter = kStreamSubjects;
  jsStreamInfo* told = nullptr;
  jsErrCode code{};
  const natsStatus status = js_GetStreamInfo(&told, connection_->stream(), kStreamName, &options, &code);
  StreamInfo info(told);
  if (code == JSStreamNotFoundErr) {
    return absl::NotFoundError(
        absl::StrCat(settings_.address, ": there is no stream ", kStreamName, ": no daemon has published to it yet"));
  }
  if (status != NATS_OK) return error(status, code, "the stream cannot be asked for");
  return info;
}

absl::Status Follower::skip_past(const jsStreamInfo& info) {
  last_ = info.State.LastSeq;
  const jsStreamStateSubjects* const subjects = info.State.Subjects;
  for (int i = 0; subjects != nullptr && i < subjects->Count; ++i) {
    natsMsg* got = nullptr;
    jsErrCode code{};
    const natsStatus status =
        js_GetLastMsg(&got, connection_->stream(), kStreamName, subjects->List[i].Subject, nullptr, &code);
    const Message message(got);
    if (code == JSNoMessageFoundErr) continue;
    if (status != NATS_OK) return error(status, code, "the last message cannot be asked for");
    const auto read = read_message(natsMsg_GetSubject(got), headers_of(got),
                                   {natsMsg_GetData(got), static_cast<std::size_t>(natsMsg_GetDataLength(got))});
    if (read.ok()) seen_[read->node] = read->sequence;
  }
  return absl::OkStatus();
}

absl::StatusOr<Subscription> Follower::subscribe() {
  auto info = look(stream_.empty() && !past_);
  if (!info.ok()) return info.status();
  const std::string stream = absl::StrCat((*info)->Created);
  const bool first = stream_.empty();
  if (stream != stream_ || (*info)->State.LastSeq < last_) last_ = 0;  // It is another one, or has lost its end.
  if (first && !past_) {
    if (auto skipped = skip_past(**info); !skipped.ok()) return skipped;
  }
  jsSubOptions options;
  jsSubOptions_Init(&options);
  options.Ordered = true;
  options.Stream = kStreamName;
  options.Config.DeliverPolicy = js_DeliverByStartSequence;
  options.Config.OptStartSeq = last_ + 1;
  natsSubscription* made = nullptr;
  jsErrCode code{};
  const natsStatus status = js_SubscribeSync(&made, connection_->stream(), kStreamSubjects, nullptr, &options, &code);
  if (status != NATS_OK) return error(status, code, "the stream cannot be followed");
  stream_ = stream;
  return Subscription(made);
}

bool Follower::take(natsMsg* message, const Each& each, const Tell& tell) {
  jsMsgMetaData* told = nullptr;
  if (natsMsg_GetMetaData(&told, message) == NATS_OK) last_ = told->Sequence.Stream;
  const Metadata metadata(told);
  const auto read = read_message(natsMsg_GetSubject(message), headers_of(message),
                                 {natsMsg_GetData(message), static_cast<std::size_t>(natsMsg_GetDataLength(message))});
  if (!read.ok()) {
    tell(absl::StrCat("message ", last_, " of the stream ", kStreamName,
                      " is not ours, and is skipped: ", std::string(read.status().message())));
    return true;
  }
  std::int64_t& seen = seen_[read->node];
  if (read->sequence <= seen) return true;
  seen = read->sequence;
  return each(*read);
}

absl::Status Follower::read(const std::atomic<bool>& stop, const Each& each, const Tell& tell) {
  if (connection_ == nullptr || !connection_->is_open()) {
    connection_.reset();
    auto connected = NatsConnection::connect(settings_);
    if (!connected.ok()) return connected.status();
    connection_ = *std::move(connected);
  }
  const auto subscription = subscribe();
  if (!subscription.ok()) return subscription.status();
  for (int turns = 0; !stop;) {
    natsMsg* got = nullptr;
    const natsStatus status = natsSubscription_NextMsg(&got, subscription->get(), kTurnMs);
    const Message message(got);
    if (status == NATS_OK) {
      turns = 0;
      if (!take(got, each, tell)) return absl::OkStatus();
      continue;
    }
    if (status != NATS_TIMEOUT || !connection_->is_open()) {
      connection_.reset();
      return absl::UnavailableError(absl::StrCat(settings_.address, ": the connection was lost"));
    }
    if (++turns % kTurnsToLook != 0) continue;
    const auto info = look(false);
    if (!info.ok()) return info.status();
    if (absl::StrCat((*info)->Created) != stream_ || (*info)->State.LastSeq < last_) {
      return absl::AbortedError(absl::StrCat(settings_.address, ": the stream ", kStreamName, " was made anew"));
    }
  }
  return absl::OkStatus();
}

// The address that the daemon publishes to, by its flags.
absl::StatusOr<std::string> ask_daemon(const PlumbOptions& options) {
  Client client(options.server, options.credentials);
  const auto info = client.server_info();
  if (!info.ok()) return info.status();
  for (const auto& flag : info->flags()) {
    if (flag.name() == "publish" && !flag.value().empty()) return flag.value();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(options.server, " publishes to no stream: give --publish, or start it with --publish"));
}

}  // namespace

int follow(const PlumbOptions& options, const v1::Filter& filter, std::ostream& out, std::ostream& err) {
  const HoldSignals held;
  NatsSettings settings = options.stream;
  if (settings.address.empty()) {
    auto address = ask_daemon(options);
    if (!address.ok()) return fail(err, address.status());
    settings.address = *std::move(address);
  }
  settings.name = "plumb follow";
  if (auto checked = check_nats_settings(settings); !checked.ok()) return fail(err, checked);
  std::atomic<bool> stop = false;
  std::mutex mutex;
  std::condition_variable stopped;
  const EndOnSignal end_on_signal(held, [&] {
    const std::lock_guard lock(mutex);
    stop = true;
    stopped.notify_all();
  });
  Follower follower(settings, options.past);
  int code = kExitTypeI;
  std::int64_t shown = 0;
  bool told = false;
  const auto each = [&](const PublishedVerdict& read) {
    told = false;
    if (!matches(filter, read.verdict)) return true;
    code = worse_exit_code(code, exit_code(read.verdict.verdict()));
    out << (options.json ? json_line(read.verdict) : format_verdict_line(read.verdict)) << std::flush;
    return out.good() && (options.count == 0 || ++shown < options.count);
  };
  const auto tell = [&](const std::string& line) { fail(err, line); };
  for (;;) {
    const absl::Status status = follower.read(stop, each, tell);
    if (status.ok()) return code;
    // At the start an address may be wrong; later the server is expected back.
    const bool waits = follower.began() || absl::IsNotFound(status);
    if (!waits || absl::IsPermissionDenied(status) || absl::IsInvalidArgument(status)) return fail(err, status);
    if (!told) fail(err, absl::StrCat(std::string(status.message()), "; it is tried again"));
    told = true;
    std::unique_lock lock(mutex);
    if (stopped.wait_for(lock, kRetry, [&] { return stop.load(); })) return code;
  }
}

}  // namespace plumbline
