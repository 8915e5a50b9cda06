// A message is ours as a whole or not at all.
#include "client/cpp/nats/message.h"

#include <gtest/gtest.h>

#include <map>

namespace plumbline {
namespace {

v1::Verdict sample() {
  v1::Verdict verdict;
  verdict.set_id("default/job/run/0/7");
  verdict.set_digest(std::string(32, 'a'));
  return verdict;
}

struct Message {
  std::string subject = message_subject("0123");
  std::map<std::string, std::string> headers = {{kMessageHeader, kWholeVerdict}, {kSequenceHeader, "42"}};
  std::string body = sample().SerializeAsString();

  absl::StatusOr<PublishedVerdict> read() const {
    const auto header = [this](const char* name) {
      const auto found = headers.find(name);
      return found == headers.end() ? std::string() : found->second;
    };
    return read_message(subject, header, body);
  }
};

TEST(NatsMessage, IsReadAsItWasWritten) {
  Message message;
  const auto whole = message.read();
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->node, "0123");
  EXPECT_EQ(whole->sequence, 42);
  EXPECT_TRUE(whole->whole);
  EXPECT_EQ(whole->verdict.id(), sample().id());
  message.headers[kMessageHeader] = kVerdictSummary;
  ASSERT_TRUE(message.read().ok());
  EXPECT_FALSE(message.read()->whole);
}

TEST(NatsMessage, OfAStrangerIsRefusedWithWhatWasFound) {
  const auto refused = [](const auto& change, const std::string& said) {
    Message message;
    change(message);
    const auto read = message.read();
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << said;
    EXPECT_NE(read.status().message().find(said), std::string::npos) << read.status();
    EXPECT_EQ(read.status().message().find('\n'), std::string::npos);
  };
  refused([](Message& m) { m.subject = "orders.1"; }, "orders.1");
  refused([](Message& m) { m.subject = message_subject(""); }, "expected a subject");
  refused([](Message& m) { m.headers.clear(); }, kMessageHeader);
  refused([](Message& m) { m.headers[kMessageHeader] = "plumbline.v2.Verdict\n"; }, "plumbline.v2.Verdict?");
  for (const char* number : {"", "0", "-1", "4x", "99999999999999999999"}) {
    refused([&](Message& m) { m.headers[kSequenceHeader] = number; }, kSequenceHeader);
  }
  refused([](Message& m) { m.body = "\xff\xff"; }, "2 bytes");
  refused([](Message& m) { m.body.clear(); }, "0 bytes");
}

TEST(NatsMessage, HasAnIdOfItsStepAndItsTrace) {
  const std::string id = message_id(sample());
  EXPECT_EQ(id.size(), 32u);
  EXPECT_EQ(id, message_id(sample()));
  v1::Verdict other_step = sample(), other_trace = sample(), moved = sample();
  other_step.set_id("default/job/run/0/8");
  other_trace.set_digest(std::string(32, 'b'));
  moved.set_id(sample().id() + "a");
  moved.set_digest(std::string(31, 'a'));
  for (const v1::Verdict& other : {other_step, other_trace, moved}) EXPECT_NE(message_id(other), id);
  v1::Verdict judged_elsewhere = sample();
  judged_elsewhere.set_node("b/4567");
  EXPECT_EQ(message_id(judged_elsewhere), id) << "the same step and trace is the same verdict";
}

}  // namespace
}  // namespace plumbline
