// Page tokens: opaque to clients, made of the place to go on from and a check that they are ours and belong to the
// same question.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace plumbline {

// `question`: what the client asked, page size left out (the serialized filter, say); `place`: where the next page
// begins. Printable, safe in a URL.
std::string make_page_token(const std::string& question, const std::string& place);

// The place. INVALID_ARGUMENT: not a token that make_page_token() made for this question.
absl::StatusOr<std::string> read_page_token(const std::string& question, const std::string& token);

}  // namespace plumbline
