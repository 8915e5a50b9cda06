// Bytes in pieces, each after its length as a varint: as protobuf delimits messages, and plumbline.dump writes frames.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plumbline::fuzz {

// The pieces of the input, as far as it has whole ones.
std::vector<std::string_view> pieces(std::string_view input);
void append_piece(std::string_view piece, std::string* to);

// Those that parse as messages of one kind.
template <typename Message>
std::vector<Message> messages(std::string_view input) {
  std::vector<Message> parsed;
  for (const std::string_view piece : pieces(input)) {
    Message message;
    if (message.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) parsed.push_back(std::move(message));
  }
  return parsed;
}

}  // namespace plumbline::fuzz
