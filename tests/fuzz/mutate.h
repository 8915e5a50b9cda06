// Mutations of inputs that are messages (pieces.h): a field of a message, or the order of the messages, where a change
// of single bytes would mostly give what no parser takes.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <vector>

namespace plumbline::fuzz {

struct Grammar {
  std::size_t header = 0;  // Bytes before the first message.
  // Kinds of messages, by their place; the last stands for all that follow.
  std::vector<const google::protobuf::Message*> kinds;
  std::vector<std::string> words;  // What texts are, where a target knows some.
};

// For LLVMFuzzerCustomMutator: changes the input in place, and returns its new size.
std::size_t mutate(const Grammar& grammar, std::uint8_t* data, std::size_t size, std::size_t size_max, unsigned seed);

}  // namespace plumbline::fuzz
