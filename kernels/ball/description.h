// Formats by name, as a person asks for them: those that tensors are held in, tf32, "eXmY" (X bits of exponent and Y of
// significand, IEEE 754's rules) and "fixed<IL,FL>". Their figures follow from the data that the audit rounds with.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/ball/fixed.h"
#include "kernels/ball/format.h"

namespace plumbline {

struct FormatDescription {
  std::string name;
  int bits = 0;   // A code has so many bits.
  int bytes = 0;  // An element is stored in so many; in fixed point, in the narrowest integer that holds a code.
  bool fixed = false;
  bool infinities = false, nan = false;
  double lowest = 0, largest = 0;  // Finite.
  double smallest_normal = 0;      // The three that fixed point lacks are 0 there.
  double epsilon = 0;              // From 1 to the next number.
  double unit_roundoff = 0;        // Half of it.
  double smallest_positive = 0;    // Smallest subnormal; fixed point: the step.
};

FormatDescription describe(Format format);
FormatDescription describe(const FixedPoint& fixed);

// The description, or what is wrong with the name: "format 'X': expected ..., found ...".
std::variant<FormatDescription, std::string> describe(std::string_view name);

// fp64 fp32 tf32 fp16 bf16 e4m3 e5m2.
std::vector<FormatDescription> described_formats();

}  // namespace plumbline
