#include "server/store/nats/publisher.h"

#include <nats/nats.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/nats/message.h"

namespace plumbline {
namespace {

constexpr int kJoinsMax = 3;  // In one attempt: others may change the stream while we look at it.

template <typename T, void (*destroy)(T*)>
struct Destroy {
  void operator()(T* object) const { destroy(object); }
};
using StreamInfo = std::unique_ptr<jsStreamInfo, Destroy<jsStreamInfo, jsStreamInfo_Destroy>>;
using Message = std::unique_ptr<natsMsg, Destroy<natsMsg, natsMsg_Destroy>>;
using PubAck = std::unique_ptr<jsPubAck, Destroy<jsPubAck, jsPubAck_Destroy>>;

std::string header_of(natsMsg* message, const char* name) {
  const char* value = nullptr;
  return natsMsgHeader_Get(message, name, &value) == NATS_OK && value != nullptr ? value : "";
}

}  // namespace

Publisher::Publisher(Options options, SqlStore* store, PublishCursor* cursor)
    : options_(std::move(options)),
      store_(store),
      cursor_(cursor),
      subject_(message_subject(cursor->node())),
      courier_({"the publisher's thread", options_.retry_min, options_.retry_max, options_.idle_max, options_.lost,
                options_.back},
               [this] { return deliver(); }) {
  handle_ = store_->subscribe([this] { courier_.wake(); });
}

Publisher::~Publisher() {
  store_->unsubscribe(handle_);
  finish(absl::ZeroDuration());
}

void Publisher::finish(absl::Duration limit) {
  const auto end =
      Courier::Clock::now() + (courier_.delivery().up ? absl::ToChronoNanoseconds(limit) : std::chrono::nanoseconds(0));
  courier_.end_by(end);
  if (courier_.wait_until(end)) return;
  std::shared_ptr<NatsConnection> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting = connection_;
  }
  if (waiting != nullptr) waiting->close();
  courier_.wait();
}

PublishState Publisher::state() const {
  const std::lock_guard lock(mutex_);
  PublishState all = state_;
  static_cast<Delivery&>(all) = courier_.delivery();
  return all;
}

absl::Status Publisher::lose(absl::Status status) {
  place_.reset();
  std::shared_ptr<NatsConnection> lost;
  const std::lock_guard lock(mutex_);
  lost.swap(connection_);
  return status;
}

absl::Status Publisher::failed(int result, int stream_error, const std::string& doing) {
  return lose(nats_error(result, stream_error, absl::StrCat(connection_->name(), ": ", doing)));
}

void Publisher::turn_away(const std::string& what) {
  {
    const std::lock_guard lock(mutex_);
    ++state_.turned_away;
  }
  if (options_.turned_away) options_.turned_away(what);
}

absl::Status Publisher::deliver() {
  for (int joins = 0; joins < kJoinsMax; ++joins) {
    if (auto joined = join(); !joined.ok()) return joined;
    bool any = false;
    const absl::Status published = publish_all(&any);
    if (absl::IsAborted(published)) {
      place_.reset();  // The stream is not as we left it.
      continue;
    }
    if (!published.ok() || any) return published;
    // Nobody but us looks whether the stream still has everything.
    bool found = false;
    const auto stream = look_at_stream(&found);
    if (!stream.ok()) return stream.status();
    const auto last = found ? last_message() : LastMessage();
    if (!last.ok()) return last.status();
    if (found && stream->identity == place_->stream && last->number == place_->last) return absl::OkStatus();
    place_.reset();
  }
  return lose(absl::UnavailableError(
      absl::StrCat(options_.server.address, ": the stream ", kStreamName, " changes while we look at it")));
}

absl::Status Publisher::publish_all(bool* any) {
  for (;;) {
    const auto unsent = cursor_->next(place_->published);
    if (!unsent.ok()) return unsent.status();
    if (unsent->verdicts.empty() && unsent->unreadable.empty()) return absl::OkStatus();
    absl::Status stopped;
    std::uint64_t published = 0, known = 0;
    PublishCursor::Place place = *place_;
    for (const UnsentVerdicts::Verdict& verdict : unsent->verdicts) {
      const auto sent = courier_.is_over() ? absl::CancelledError("the daemon ends") : send(verdict);
      if (!sent.ok()) {
        stopped = sent.status();
      } else if (*sent == Sent::kOutOfOrder) {
        stopped = absl::AbortedError("out of order");
      }
      if (!stopped.ok()) break;
      place.published = verdict.sequence;
      if (place_) place.last = place_->last;
      if (*sent == Sent::kTooLarge) {
        turn_away(absl::StrCat(verdict.verdict.id(), ": larger than the server's messages, even without its taps"));
        continue;
      }
      ++published;
      known += *sent == Sent::kKnown;
    }
    if (stopped.ok()) {
      place.published = unsent->through;
      for (const std::string& what : unsent->unreadable) turn_away(what);
    }
    // What was acknowledged is not published again, whatever came after it.
    if (auto moved = cursor_->move(place); !moved.ok()) return lose(moved);
    if (place_) place_ = place;
    *any = true;
    {
      const std::lock_guard lock(mutex_);
      state_.published += published;
      state_.known += known;
    }
    if (!stopped.ok()) return stopped;
    if (!unsent->more) return absl::OkStatus();
  }
}

absl::StatusOr<Publisher::Sent> Publisher::send(const UnsentVerdicts::Verdict& sent) {
  v1::Verdict verdict = sent.verdict;
  verdict.set_node(absl::StrCat(options_.host, "/", cursor_->node()));
  auto answer = send(verdict, sent.sequence, true);
  if (!answer.ok() || *answer != Sent::kTooLarge) return answer;
  verdict.clear_taps();
  verdict.clear_contributors();
  return send(verdict, sent.sequence, false);
}

absl::StatusOr<Publisher::Sent> Publisher::send(const v1::Verdict& verdict, std::int64_t sequence, bool whole) {
  constexpr std::int64_t kHeadersMax = 1024;
  const std::string body = verdict.SerializeAsString(), id = message_id(verdict);
  if (static_cast<std::int64_t>(body.size()) + kHeadersMax > natsConnection_GetMaxPayload(connection_->raw())) {
    return Sent::kTooLarge;
  }
  natsMsg* made = nullptr;
  natsStatus status = natsMsg_Create(&made, subject_.c_str(), nullptr, body.data(), static_cast<int>(body.size()));
  const Message message(made);
  const auto header = [&](const char* name, const std::string& value) {
    if (status == NATS_OK) status = natsMsgHeader_Set(made, name, value.c_str());
  };
  header(kMessageHeader, whole ? kWholeVerdict : kVerdictSummary);
  header(kSequenceHeader, absl::StrCat(sequence));
  if (status != NATS_OK) return failed(status, 0, "a message");
  jsPubOptions options;
  jsPubOptions_Init(&options);
  options.MaxWait = absl::ToInt64Milliseconds(options_.server.answer_timeout);
  options.MsgId = id.c_str();
  options.ExpectStream = kStreamName;
  options.ExpectLastSubjectSeq = place_->last;
  options.ExpectNoMessage = place_->last == 0;
  jsPubAck* acknowledged = nullptr;
  jsErrCode error{};
  status = js_PublishMsg(&acknowledged, connection_->stream(), made, &options, &error);
  const PubAck ack(acknowledged);
  if (status != NATS_OK && error == JSStreamWrongLastSequenceErr) return Sent::kOutOfOrder;
  if (status != NATS_OK && error == JSStreamMessageExceedsMaximumErr) return Sent::kTooLarge;
  if (status != NATS_OK) return failed(status, error, "a verdict was not acknowledged");
  if (ack->Duplicate) return Sent::kKnown;
  place_->last = ack->Sequence;
  return Sent::kYes;
}

absl::Status Publisher::join() {
  if (connection_ != nullptr && !connection_->is_open()) {
    lose(absl::OkStatus()).IgnoreError();
  }
  if (place_) return absl::OkStatus();
  if (connection_ == nullptr) {
    auto connected = NatsConnection::connect(options_.server);
    if (!connected.ok()) return connected.status();
    const std::lock_guard lock(mutex_);
    connection_ = *std::move(connected);
  }
  const auto stream = open_stream();
  if (!stream.ok()) return stream.status();
  const auto last = last_message();
  if (!last.ok()) return last.status();
  return settle(*stream, *last);
}

absl::StatusOr<Publisher::Stream> Publisher::look_at_stream(bool* found) {
  jsStreamInfo* told = nullptr;
  jsErrCode error{};
  const natsStatus status = js_GetStreamInfo(&told, connection_->stream(), kStreamName, nullptr, &error);
  const StreamInfo info(told);
  *found = status == NATS_OK;
  if (error == JSStreamNotFoundErr) return Stream();
  if (!*found) return failed(status, error, "the stream cannot be asked for");
  const jsStreamConfig& config = *info->Config;
  const auto takes_ours = [](const char* subject) {
    return std::strcmp(subject, kStreamSubjects) == 0 || std::strcmp(subject, "plumbline.verdicts.>") == 0 ||
           std::strcmp(subject, "plumbline.>") == 0;
  };
  if (std::none_of(config.Subjects, config.Subjects + config.SubjectsLen, takes_ours)) {
    return lose(absl::FailedPreconditionError(absl::StrCat(connection_->name(), ": expected a stream ", kStreamName,
                                                           " of ", kStreamSubjects, ", found one of other subjects")));
  }
  return Stream{absl::StrCat(info->Created), info->State.FirstSeq};
}

absl::StatusOr<Publisher::Stream> Publisher::open_stream() {
  bool found = false;
  auto stream = look_at_stream(&found);
  if (!stream.ok() || found) return stream;
  jsStreamConfig config;
  jsStreamConfig_Init(&config);
  const char* subjects[] = {kStreamSubjects};
  config.Name = kStreamName;
  config.Subjects = subjects;
  config.SubjectsLen = 1;
  config.Storage = js_FileStorage;
  config.Duplicates = absl::ToInt64Nanoseconds(options_.duplicates_window);
  jsErrCode error{};
  const natsStatus status = js_AddStream(nullptr, connection_->stream(), &config, nullptr, &error);
  // Another daemon may have made it meanwhile.
  if (status != NATS_OK && error != JSStreamNameExistErr) return failed(status, error, "the stream cannot be made");
  stream = look_at_stream(&found);
  if (!stream.ok() || found) return stream;
  return lose(absl::UnavailableError(absl::StrCat(connection_->name(), ": the stream that was made is not there")));
}

absl::StatusOr<Publisher::LastMessage> Publisher::last_message() {
  natsMsg* got = nullptr;
  jsErrCode error{};
  const natsStatus status = js_GetLastMsg(&got, connection_->stream(), kStreamName, subject_.c_str(), nullptr, &error);
  const Message message(got);
  LastMessage last;
  if (error == JSNoMessageFoundErr) return last;
  if (status != NATS_OK) return failed(status, error, "the last message cannot be asked for");
  last.number = natsMsg_GetSequence(got);
  last.id = header_of(got, kMessageIdHeader);
  if (!absl::SimpleAtoi(header_of(got, kSequenceHeader), &last.sequence)) last.sequence = 0;
  return last;
}

// A message that was published from a copy of this data directory, or by a stranger, is none of ours.
absl::StatusOr<bool> Publisher::is_ours(const LastMessage& last) {
  if (last.sequence <= 0) return false;
  const auto verdict = cursor_->at(last.sequence);
  if (!verdict.ok()) return verdict.status();
  if (*verdict) return message_id(**verdict) == last.id;
  const auto newest = cursor_->last_sequence();  // It may have been removed since.
  if (!newest.ok()) return newest.status();
  return last.sequence <= *newest;
}

absl::Status Publisher::settle(const Stream& stream, const LastMessage& last) {
  const auto before = cursor_->place();
  if (!before.ok()) return before.status();
  PublishCursor::Place place = *before;
  place.last = last.number;
  const bool same = before->stream == stream.identity;
  if (!same) {
    place.stream = stream.identity;
    place.published = 0;
  }
  // What is older than the stream's first message went by the stream's own limits.
  const bool gone = same && before->last != last.number && before->last >= stream.first;
  if (last.number != 0 && (!same || before->last != last.number)) {
    const auto ours = is_ours(last);
    if (!ours.ok()) return ours.status();
    if (*ours) {
      place.published = last.sequence;
    } else if (stranger_ != last.number) {
      stranger_ = last.number;  // It is told, and the next attempt goes on after it.
      return absl::AlreadyExistsError(
          absl::StrCat(connection_->name(), ": message ", last.number, " of the stream ", kStreamName,
                       " came under the identity ", cursor_->node(),
                       " of this data directory, and not from here: expected a data directory of its own for each "
                       "daemon, found a copy"));
    }
  } else if (gone) {
    place.published = 0;
  }
  if (place == *before) {
    place_ = place;
    return absl::OkStatus();
  }
  if (auto moved = cursor_->move(place); !moved.ok()) return moved;
  place_ = place;
  if (before->stream.empty() || place.published >= before->published) return absl::OkStatus();
  {
    const std::lock_guard lock(mutex_);
    ++state_.replays;
  }
  if (options_.replayed) {
    options_.replayed(absl::StrCat("the stream ", kStreamName, same ? " has lost messages" : " was made anew",
                                   ": expected our verdicts up to ", before->published, ", found those up to ",
                                   place.published, "; the others are published again"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Publication>> open_publication(Publication::Options options, SqlStore* store,
                                                              PublishCursor* cursor) {
  if (auto checked = check_nats_settings(options.server); !checked.ok()) return checked;
  return std::make_unique<Publisher>(std::move(options), store, cursor);
}

}  // namespace plumbline
