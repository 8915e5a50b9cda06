#include "server/bound/enclose/elementwise.h"

#include <cmath>

namespace plumbline {

Answer answer_of(const Comparison& found, const GraphTap& tap) {
  Answer answer;
  answer.asked = true;
  answer.deviation = 0;
  const double radius_norm = std::sqrt(found.radius_squares);
  // Below the smallest normal number nothing is known relative to itself: of zeros, that they are subnormal at most.
  const Format format = tap.terms.front().format;
  const double least = is_float(format) ? smallest_normal(format) : 0;
  const double norm = tap.scale > 0 ? tap.scale : std::fmax(least, std::sqrt(found.centre_squares));
  answer.envelope = norm > 0 ? radius_norm / norm : (radius_norm == 0 ? 0 : HUGE_VAL);
  answer.doubt = norm > 0 ? std::sqrt(found.excess_squares) / norm : answer.envelope;
  if (found.worst > 0) answer.deviation = found.worst * answer.envelope;
  if (answer.envelope == 0) answer.deviation = found.worst > 1 ? HUGE_VAL : 0;
  answer.least_chance = found.least_chance;
  return answer;
}

}  // namespace plumbline
