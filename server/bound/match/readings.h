// Several readings of one gradient or loss. A program that changes a gradient between backward and the optimizer, as
// masks and weight decay by hand do, sends it as backward left it, "grad:w", and as the optimizer is given it,
// "given:w". One that scales gradients by a number there sends them and its loss as scaled, "grad:w" and "loss", and as
// they were, "unscaled:grad:w" and "unscaled:loss": it may average what the other program averages before backward, or
// scale what the other's loss does not show. Another program makes the same change within backward, or to the update,
// so that no reading alone is what both have.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plumbline {

// The tap that is read first of what this tap reads: "grad:w" of "given:w", "rank1/loss" of "rank1/unscaled:loss".
std::string first_reading(std::string_view tap);
// Whether it is another: "given:w", "rank1/unscaled:grad:w#1".
bool is_other_reading(std::string_view tap);
// The taps that read what this one reads, the first one first, whether or not there are any.
std::vector<std::string> all_readings(std::string_view tap);

}  // namespace plumbline
