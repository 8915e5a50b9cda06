// What a message of the stream of verdicts is: a subject and headers that say whose it is, and a plumbline.v1.Verdict
// in protobuf's binary form. Stateless.
//
//   subject             plumbline.verdicts.NODE, where NODE is the identity of a daemon's data directory
//   Nats-Msg-Id         XXH3-128 of the verdict's id, a NUL and its digest: of the step and of its trace. Two steps may
//                       have one trace, and are two verdicts
//   Plumbline-Message   "plumbline.v1.Verdict", or "plumbline.v1.Verdict; summary" where taps and contributors were
//                       left out, since the server takes no message as large
//   Plumbline-Sequence  the verdict's number in NODE's own history: a node's messages come in this order
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "plumbline/v1/verdict.pb.h"

namespace plumbline {

inline constexpr char kStreamName[] = "PLUMBLINE";
inline constexpr char kStreamSubjects[] = "plumbline.verdicts.*";
inline constexpr char kMessageIdHeader[] = "Nats-Msg-Id";
inline constexpr char kMessageHeader[] = "Plumbline-Message";
inline constexpr char kSequenceHeader[] = "Plumbline-Sequence";
inline constexpr char kWholeVerdict[] = "plumbline.v1.Verdict";
inline constexpr char kVerdictSummary[] = "plumbline.v1.Verdict; summary";

std::string message_subject(const std::string& node);
std::string message_id(const v1::Verdict& verdict);  // 32 hexadecimal digits.

struct PublishedVerdict {
  std::string node;
  std::int64_t sequence = 0;
  bool whole = true;
  v1::Verdict verdict;
};

// `header` gives the value of a header, empty where there is none. INVALID_ARGUMENT, with what was found: the message
// is not ours.
absl::StatusOr<PublishedVerdict> read_message(std::string_view subject,
                                              const std::function<std::string(const char* name)>& header,
                                              std::string_view body);

}  // namespace plumbline
