// format_codes decode|encode FORMAT: codes on standard input to doubles on standard output, or the other way round.
// Run by test_formats_against_torch.py.
#include <cstring>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/ball/format.h"

int main(int argc, char** argv) {
  using namespace plumbline;
  const auto format = argc == 3 ? format_by_name(argv[2]) : std::nullopt;
  if (!format) return 1;
  const std::string in((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  const auto width = static_cast<std::size_t>(traits(*format).bytes);
  const bool decoding = std::string(argv[1]) == "decode";
  const std::size_t count = in.size() / (decoding ? width : sizeof(double));
  std::vector<double> values(count);
  std::string out;
  if (decoding) {
    decode(*format, in.data(), static_cast<std::int64_t>(count), values.data());
    out.assign(reinterpret_cast<const char*>(values.data()), count * sizeof(double));
  } else {
    std::memcpy(values.data(), in.data(), count * sizeof(double));
    out.resize(count * width);
    encode(*format, values.data(), static_cast<std::int64_t>(count), out.data());
  }
  std::cout << out;
  return 0;
}
