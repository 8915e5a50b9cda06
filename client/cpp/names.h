// What people and scripts see of an enum's value: its name without the prefix that the protocol's style asks for.
// Thread-safe.
#pragma once

#include <google/protobuf/generated_enum_reflection.h>
#include <google/protobuf/message.h>

#include <string>

#include "absl/status/statusor.h"

namespace plumbline {

// "TYPE_II" of OUTCOME_TYPE_II, "FIRST_ORDER" of GRADE_FIRST_ORDER. The value 0 keeps its name, "OUTCOME_UNSPECIFIED",
// and so do values of enums that lie within a message. A value that this build does not know is its number.
std::string short_name(const google::protobuf::EnumDescriptor& type, int value);

template <typename Enum>
std::string short_name(Enum value) {
  return short_name(*google::protobuf::GetEnumDescriptor<Enum>(), value);
}

// Protobuf's JSON on one line, with such names, and with the fields' names as in the .proto files. `defaults`: what
// holds its default is there too. An error where a text of `message` is not UTF-8.
absl::StatusOr<std::string> to_json(const google::protobuf::Message& message, bool defaults);

}  // namespace plumbline
