// What is kept of a reference's step, so that later ones can be judged against it without its trace. Plain data; the
// fields mean what GoldenStep of proto/plumbline/v1/archive.proto says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/ingest/trace.h"
#include "server/ingest/violation.h"

namespace plumbline {

struct GoldenStep {
  struct Leaf {
    LeafRole role = LeafRole::kData;
    std::string name;
    Format format = Format::kUnknown;
    std::int64_t count = 0;
    std::string digest;
  };
  struct Tap {
    std::string name;
    TapKind kind = TapKind::kValue;
    Shape shape;
    double magnitude = 0;
    double projection = 0;
    std::vector<double> exact, observed;  // Small taps: every element. Otherwise empty.
    std::string observed_digest;
  };
  struct Probe {
    std::string name;
    std::vector<std::string> taps;
    bool scalar = false;
    double rho = 0;
    double noise_bias = 0, noise_squares = 0;
    double python = 0;
  };

  std::int32_t rank = 0;
  std::int64_t step = 0;
  std::string digest;
  std::uint64_t seed = 0;
  bool opaque = false;
  bool on_grid = false;
  bool overflow = false;
  std::vector<Leaf> leaves;
  std::vector<Tap> taps;
  std::vector<Probe> probes;
};

// What no step that was recorded says: such a file is damaged, or was made to do harm. Whatever is judged against a
// golden step relies on it.
Violation check_golden_step(const GoldenStep& step);

}  // namespace plumbline
