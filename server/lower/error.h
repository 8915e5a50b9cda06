// What can go wrong in lowering.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/array.h"
#include "server/lower/wanted.h"

namespace plumbline {

// A trace that contradicts itself: an operation whose arguments and results do not fit together, or a content that
// is needed and missing. The message names operation, argument, what was expected and what was found.
class LowerError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A trace without results that the audit needs: these operations are not modelled with their arguments, and nobody
// observed what they gave. A trace of the same step that holds them can be lowered.
class ResultsMissing : public LowerError {
 public:
  ResultsMissing(const std::string& message, std::vector<WantedResult> wanted)
      : LowerError(message), wanted_(std::move(wanted)) {}
  const std::vector<WantedResult>& wanted() const { return wanted_; }  // Sorted, each once.

 private:
  std::vector<WantedResult> wanted_;
};

// An argument combination that no rule models: the operation becomes opaque. Never leaves lowering.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// "[4, 16, 32]"
std::string to_string(const Shape& shape);

}  // namespace plumbline
