// Both programs of a pair along the graph, as text: where they part, and what lies around it.
#pragma once

#include <string>

#include "client/cpp/format.h"

namespace plumbline {

// A title, a sentence of counts and the operations around the first place where the programs part, ending in a newline;
// with `all` in the style, every operation that the verdict lists. Empty: it lists none.
std::string alignment_text(const v1::Alignment& alignment, const TextStyle& style);

}  // namespace plumbline
