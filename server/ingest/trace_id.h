// What names a step in logs, verdicts and queries: a trace-id of W3C Trace Context.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace plumbline {

inline constexpr std::size_t kTraceIdDigits = 32;  // 3.2.2.3: 16 bytes, not all of them 0.
inline constexpr char kTraceIdExpected[] = "32 lowercase hexadecimal digits that are not all 0";

inline bool is_trace_id(std::string_view id) {
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return id.size() == kTraceIdDigits && std::ranges::all_of(id, digit) &&
         id.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace plumbline
