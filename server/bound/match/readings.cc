#include "server/bound/match/readings.h"

#include "server/ingest/trace.h"

namespace plumbline {
namespace {

constexpr std::string_view kLoss = "loss", kLeft = "grad:", kGiven = "given:", kUnscaled = "unscaled:";

bool may_be_unscaled(std::string_view own) { return own == kLoss || own.starts_with(kLeft); }

}  // namespace

std::string first_reading(std::string_view tap) {
  const std::string_view own = unranked(tap);
  const std::string rank(tap.substr(0, tap.size() - own.size()));
  if (own.starts_with(kGiven)) return rank + std::string(kLeft) + std::string(own.substr(kGiven.size()));
  if (own.starts_with(kUnscaled) && may_be_unscaled(own.substr(kUnscaled.size())))
    return rank + std::string(own.substr(kUnscaled.size()));
  return std::string(tap);
}

bool is_other_reading(std::string_view tap) { return first_reading(tap) != tap; }

std::vector<std::string> all_readings(std::string_view tap) {
  const std::string first = first_reading(tap), own(unranked(first)), rank = first.substr(0, first.size() - own.size());
  std::vector<std::string> found = {first};
  if (own.starts_with(kLeft)) found.push_back(rank + std::string(kGiven) + own.substr(kLeft.size()));
  if (may_be_unscaled(own)) found.push_back(rank + std::string(kUnscaled) + own);
  return found;
}

}  // namespace plumbline
