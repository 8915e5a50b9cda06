// Data of which one program reads less than the other: rows that were dropped on the way in, tokens that were cut off.
// Every value after that differs, and none of them is at fault.
#pragma once

#include <string>

#include "server/bound/findings/localize.h"

namespace plumbline {

// The first data that both programs hold, on which the failing tap depends, and of which one program reads fewer
// elements than the other.
struct Unread {
  std::string told;
  std::optional<NodeId> part;  // Where they were taken, if the client told it.
  bool in_reference = false;   // The program that reads fewer.
};

// Nothing: there is none. A leaf that one program does not read at all is none.
std::optional<Unread> unread_data(const LocalizeSide& target, const LocalizeSide& reference);

}  // namespace plumbline
