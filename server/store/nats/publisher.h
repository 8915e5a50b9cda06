// The stream of verdicts by NATS JetStream: a thread that publishes what is not there yet, again and again.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "client/cpp/nats/connect.h"
#include "server/store/courier.h"
#include "server/store/publication.h"

namespace plumbline {

// One message is under way at a time, and says after which one of ours it comes (Nats-Expected-Last-Subject-Sequence):
// the server refuses it where that is not so. What the stream has of ours is therefore the beginning of what we
// published, without gaps, whatever fails; and the last message of our subject tells how far it goes. Where that is not
// what was acknowledged, the stream has lost some, or is another one, and is filled from there.
class Publisher final : public Publication {
 public:
  Publisher(Options options, SqlStore* store, PublishCursor* cursor);
  ~Publisher() override;
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  PublishState state() const override;
  void finish(absl::Duration limit) override;

 private:
  // The stream as the server tells it.
  struct Stream {
    std::string identity;     // When it was made.
    std::uint64_t first = 0;  // Its first message that is left, or would be.
  };
  // The last message of our subject.
  struct LastMessage {
    std::uint64_t number = 0;   // In the stream; 0: there is none.
    std::int64_t sequence = 0;  // In our own history; 0: it is no message of ours.
    std::string id;
  };
  enum class Sent { kYes, kKnown, kTooLarge, kOutOfOrder };

  absl::Status deliver();  // Until nothing is left; also tells whether the stream has all of it.
  absl::Status publish_all(bool* any);
  absl::Status join();  // Connects and finds out how far the stream is; does nothing where that was done.
  absl::StatusOr<Stream> open_stream();
  absl::StatusOr<Stream> look_at_stream(bool* found);
  absl::StatusOr<LastMessage> last_message();
  absl::Status settle(const Stream& stream, const LastMessage& last);
  absl::StatusOr<bool> is_ours(const LastMessage& last);
  absl::StatusOr<Sent> send(const UnsentVerdicts::Verdict& sent);
  absl::StatusOr<Sent> send(const v1::Verdict& verdict, std::int64_t sequence, bool whole);
  absl::Status lose(absl::Status status);  // Drops the connection; the status.
  absl::Status failed(int result, int stream_error, const std::string& doing);
  void turn_away(const std::string& what);

  const Options options_;
  SqlStore* const store_;
  PublishCursor* const cursor_;
  const std::string subject_;
  std::optional<PublishCursor::Place> place_;  // Of the session that has joined.
  std::uint64_t stranger_ = 0;                 // The last message under our identity that we know is not ours.
  std::uint64_t handle_ = 0;

  mutable std::mutex mutex_;
  std::shared_ptr<NatsConnection> connection_;  // The publisher's thread alone sets it.
  PublishState state_;                          // Less what the courier knows.
  Courier courier_;                             // Last: it uses all of the above.
};

}  // namespace plumbline
