// What can go wrong in lowering.
#pragma once

#include <stdexcept>
#include <string>

#include "kernels/array.h"

namespace plumbline {

// A trace that contradicts itself: an operation whose arguments and results do not fit together, or a content that
// is needed and missing. The message names operation, argument, what was expected and what was found.
class LowerError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An argument combination that no rule models: the operation becomes opaque. Never leaves lowering.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// "[4, 16, 32]"
std::string to_string(const Shape& shape);

}  // namespace plumbline
