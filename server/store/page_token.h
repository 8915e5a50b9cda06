// Page tokens: opaque to clients, made of the place to go on from and a check that they are ours and belong to the
// same question.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/store/store.h"

namespace plumbline {

// `question`: what the client asked, page size left out (the serialized filter, say); `place`: where the next page
// begins. Printable, safe in a URL.
std::string make_page_token(const std::string& question, const std::string& place);

// The place. INVALID_ARGUMENT: not a token that make_page_token() made for this question.
absl::StatusOr<std::string> read_page_token(const std::string& question, const std::string& token);

// The place of a list of verdicts, as a text; and back. The check above is no secret: a text may be anybody's, and
// where it says nothing the list begins with its first verdict.
std::string write_place(const ListPlace& place);
ListPlace read_place(const std::string& text);

}  // namespace plumbline
