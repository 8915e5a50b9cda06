// Arguments of an operation, from the wire.
#pragma once

#include <string>

#include "plumbline/v1/trace.pb.h"
#include "server/ingest/tensor_rules.h"
#include "server/ingest/trace.h"
#include "server/ingest/violation.h"

namespace plumbline {

Violation read_argument(const v1::Argument& wire, const std::string& field, const Values& values,
                        std::int64_t elements_max, TraceArgument* argument);

// A name or other text: at most kTextBytesMax bytes, and not empty where `required`.
Violation check_text(const std::string& text, const std::string& field, bool required);

}  // namespace plumbline
