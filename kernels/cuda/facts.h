// Whether a device can be used, by what the runtime tells of it. Names no CUDA type: tested without hardware.
#pragma once

#include <string>

namespace plumbline::cuda {

inline constexpr int kMajorMin = 8;  // Compute capability; of the oldest kernels that are compiled.

// Versions as CUDA counts them: 13000 is 13.0; 0: there is none.
struct Facts {
  int driver = 0;
  int toolkit = 0;
  int devices = 0;
  std::string product;  // Of the device that is asked for, as what follows.
  int major = 0, minor = 0;
  bool managed = false;  // Shares memory with the host while it computes.
};

// What was expected and what was found; empty: it can.
inline std::string unusable(int ordinal, const Facts& facts) {
  const auto dotted = [](int major, int minor) { return std::to_string(major) + "." + std::to_string(minor); };
  const auto version = [&](int number) { return dotted(number / 1000, number % 1000 / 10); };
  const auto wrong = [](const std::string& expected, const std::string& found) {
    return "expected " + expected + ", found " + found;
  };
  // Within a major version, older drivers run newer toolkits (CUDA's minor version compatibility).
  if (facts.driver / 1000 < facts.toolkit / 1000) {
    return wrong("a driver for CUDA " + dotted(facts.toolkit / 1000, 0) + " or newer",
                 facts.driver == 0 ? "none" : "one for " + version(facts.driver));
  }
  if (facts.devices == 0) return wrong("a device", "none");
  if (ordinal < 0 || ordinal >= facts.devices) {
    return wrong("a device below " + std::to_string(facts.devices) + ", their number here", std::to_string(ordinal));
  }
  if (facts.major < kMajorMin) {
    return wrong("compute capability " + dotted(kMajorMin, 0) + " or newer",
                 dotted(facts.major, facts.minor) + " (" + facts.product + ")");
  }
  if (!facts.managed) return wrong("a device that shares memory with the host while it computes", facts.product);
  return "";
}

}  // namespace plumbline::cuda
