// The judge's verdict as the wire and the store have it.
#pragma once

#include "plumbline/v1/verdict.pb.h"
#include "server/judge/verdict.h"

namespace plumbline {

// Field by field; `time` is now when the verdict has none. At most 4096 taps, 256 operations of an alignment, 16
// contributors and 16 opaque names are taken (verdict.proto's limits). Strings that are not UTF-8 (an operation's
// source, say) have the offending bytes replaced by '?', since protobuf would refuse to parse them.
v1::Verdict to_proto(const Verdict& verdict);

// A text as every engine can store it, and the wire send it: offending bytes as above, and NULs, become '?'.
std::string storable(std::string text);

// "project/job/run/rank/step" to its parts; false if it is not of this form. No part but rank and step is checked
// further than being non-empty and free of '/'.
bool parse_id(const std::string& id, StepIdentity* identity);

}  // namespace plumbline
