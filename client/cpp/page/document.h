// The page as one HTML document, with its style, its scripts and its data in it.
#pragma once

#include <string>

#include "client/page/page.pb.h"

namespace plumbline {

// protobuf's JSON on one line, fields that have their default left out. "<", ">" and "&" are written as escapes, so
// that no name can end the element that the text stands in.
std::string page_json(const google::protobuf::Message& message);

std::string page_html(const page::Page& page);

}  // namespace plumbline
