// The page's own files and the chart library, as the build found them (embed.cmake writes the definitions).
#pragma once

#include <string_view>
#include <vector>

namespace plumbline::page_files {

extern const std::string_view kDocument;
extern const std::vector<std::string_view> kStyles, kScripts;  // In their order; the library's first.

}  // namespace plumbline::page_files
