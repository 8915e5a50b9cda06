// Two readings of one gradient. A program that changes a gradient between backward and the optimizer, as masks and
// weight decay by hand do, sends it as backward left it, "grad:w", and as the optimizer is given it, "given:w". Another
// program makes the same change within backward, or to the update, so that neither reading alone is what both have.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace plumbline {

bool is_given(std::string_view tap);  // "given:w", "rank1/given:w#1".

// The tap of the same gradient that is read the other way, whether or not there is one; nothing: it is no gradient's.
std::optional<std::string> other_reading(std::string_view tap);

}  // namespace plumbline
