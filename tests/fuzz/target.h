// What a fuzz target is: a function of some bytes that returns whatever they are, or ends the program.
//
//   PLUMBLINE_FUZZ_TARGET(policy) { ... input ... }      // std::string_view input
//
// With libFuzzer (preset `fuzz`) each target is a program of its own; otherwise replay_test.cc runs all of them, each
// over the files of corpus/NAME. To add one: NAME_target.cc, its row in CMakeLists.txt, its seeds in seeds.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace plumbline::fuzz {

using Target = void (*)(std::string_view input);

// This program's targets, by name.
std::map<std::string, Target>& targets();

// Ends the program with the sentence unless `held`.
void require(bool held, const char* sentence);

}  // namespace plumbline::fuzz

#ifdef PLUMBLINE_LIBFUZZER
#define PLUMBLINE_FUZZ_TARGET(name)                                                   \
  static void name(std::string_view input);                                           \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    name({reinterpret_cast<const char*>(data), size});                                \
    return 0;                                                                         \
  }                                                                                   \
  static void name(std::string_view input)
#else
#define PLUMBLINE_FUZZ_TARGET(name)                                                                              \
  static void name(std::string_view input);                                                                      \
  [[maybe_unused]] static const bool name##_is_known = ::plumbline::fuzz::targets().emplace(#name, name).second; \
  static void name(std::string_view input)
#endif
