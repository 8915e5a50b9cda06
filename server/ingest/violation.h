// What is wrong with a frame: the field, what was expected, what was found. No exception and no gRPC: ingest returns
// these, serve turns them into google.rpc.Status.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace plumbline {

struct Violation {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string field;           // "op.arguments[2].tensor.value"; empty when no single field is at fault.
  std::string description;     // "expected ..., found ...".
  bool of_the_moment = false;  // The same again may be taken.
  std::string quota_of = {};   // Whose quota was reached: "project:llama"; empty: nobody's.
  std::string quota = {};      // Its limit's name, of a limit of bytes in flight.

  bool ok() const { return code == absl::StatusCode::kOk; }
  explicit operator bool() const { return !ok(); }  // True where something is wrong.
  std::string message() const { return field.empty() ? description : absl::StrCat(field, ": ", description); }
};

template <typename Found>
Violation invalid(std::string field, const std::string& expected, const Found& found) {
  return {absl::StatusCode::kInvalidArgument, std::move(field), absl::StrCat("expected ", expected, ", found ", found)};
}

inline Violation exhausted(std::string field, std::string description) {
  return {absl::StatusCode::kResourceExhausted, std::move(field), std::move(description)};
}

}  // namespace plumbline
