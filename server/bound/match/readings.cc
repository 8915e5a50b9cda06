#include "server/bound/match/readings.h"

#include <utility>

#include "server/ingest/trace.h"

namespace plumbline {
namespace {

constexpr std::string_view kLeft = "grad:", kGiven = "given:";

}  // namespace

bool is_given(std::string_view tap) { return unranked(tap).starts_with(kGiven); }

std::optional<std::string> other_reading(std::string_view tap) {
  const std::string_view own = unranked(tap);
  const std::string rank(tap.substr(0, tap.size() - own.size()));
  for (const auto& [one, other] : {std::pair(kLeft, kGiven), std::pair(kGiven, kLeft)})
    if (own.starts_with(one)) return rank + std::string(other) + std::string(own.substr(one.size()));
  return std::nullopt;
}

}  // namespace plumbline
