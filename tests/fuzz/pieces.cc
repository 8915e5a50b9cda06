#include "tests/fuzz/pieces.h"

#include <google/protobuf/io/coded_stream.h>

namespace plumbline::fuzz {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

std::vector<std::string_view> pieces(std::string_view input) {
  CodedInputStream stream(reinterpret_cast<const std::uint8_t*>(input.data()), static_cast<int>(input.size()));
  std::vector<std::string_view> found;
  std::uint32_t size = 0;
  while (stream.ReadVarint32(&size)) {
    const auto at = static_cast<std::size_t>(stream.CurrentPosition());
    if (size > input.size() - at || !stream.Skip(static_cast<int>(size))) break;
    found.push_back(input.substr(at, size));
  }
  return found;
}

void append_piece(std::string_view piece, std::string* to) {
  std::uint8_t length[10];
  const std::uint8_t* const end =
      CodedOutputStream::WriteVarint32ToArray(static_cast<std::uint32_t>(piece.size()), length);
  to->append(reinterpret_cast<const char*>(length), static_cast<std::size_t>(end - length));
  to->append(piece);
}

}  // namespace plumbline::fuzz
