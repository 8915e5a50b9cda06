// One profile file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernels/profile.h"

namespace plumbline {

// Reads a text protobuf of schema proto/plumbline/v1/profile.proto. Throws std::runtime_error "FILE: line N: field 'F':
// expected ..., found ..." for text that does not parse, unknown names, figures that are negative or not finite, fields
// that contradict each other and what is stated twice.
Profile read_profile(const std::string& file);

// Finds a function by the name that profiles give it.
std::optional<Function> function_named(std::string_view name);

}  // namespace plumbline
