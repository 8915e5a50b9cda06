// The table of number formats.
#pragma once

#include <string>
#include <vector>

namespace plumbline {

// The named formats, all that tensors are held or computed in if none is named: a table, or one JSON object a line.
// What is wrong with a name otherwise.
std::string list_formats(const std::vector<std::string>& names, bool json, std::string* wrong);

}  // namespace plumbline
