#include "server/bound/elementwise.h"

#include <algorithm>
#include <cmath>

namespace plumbline {

void Elementwise::join(const Elementwise& next) {
  const double radii = radius_squares + next.radius_squares, centres = centre_squares + next.centre_squares;
  const double excess = excess_squares + next.excess_squares;
  const bool all = finite && next.finite;
  if (next.worst > worst) *this = next;
  finite = all;
  radius_squares = radii;
  centre_squares = centres;
  excess_squares = excess;
}

void Elementwise::look_at(std::int64_t begin, std::int64_t length, const double* centres, const double* values,
                          const double* radii, const double* rounding, double slack) {
  double not_finite = 0;  // 0 or NaN.
  constexpr std::int64_t kBlock = 256;
  double ratio[kBlock];
  for (std::int64_t at = 0; at < length; at += kBlock) {
    const std::int64_t block = std::min(kBlock, length - at);
    const double *m = centres + at, *t = values + at, *r = radii + at, *c = rounding + at;
    double radius_sum = 0, excess_sum = 0, centre_sum = 0, largest = 0;
#pragma omp simd reduction(+ : radius_sum, excess_sum, centre_sum, not_finite) reduction(max : largest)
    for (std::int64_t i = 0; i < block; ++i) {
      const double allowed = r[i] * slack, deviation = std::fabs(t[i] - m[i]);
      const double excess = std::max(0.0, r[i] - c[i]);
      radius_sum += r[i] * r[i];
      excess_sum += excess * excess;
      centre_sum += m[i] * m[i];
      not_finite += m[i] - m[i];
      const bool same = (t[i] == m[i]) | ((t[i] != t[i]) & (m[i] != m[i]));
      const bool bounded = (allowed > 0) & (deviation < HUGE_VAL);
      ratio[i] = same ? 0 : bounded ? deviation / allowed : HUGE_VAL;
      largest = std::max(largest, ratio[i]);
    }
    radius_squares += radius_sum;
    excess_squares += excess_sum;
    centre_squares += centre_sum;
    if (!(largest > worst)) continue;
    const std::int64_t i = std::find(ratio, ratio + block, largest) - ratio;
    worst = largest;
    element = static_cast<std::uint64_t>(begin + at + i);
    centre = m[i];
    radius = r[i] * slack;
    value = t[i];
  }
  finite = finite && not_finite == 0;
}

Answer Elementwise::answer(double scale) const {
  Answer answer;
  answer.asked = true;
  answer.deviation = 0;
  const double radius_norm = std::sqrt(radius_squares), norm = scale > 0 ? scale : std::sqrt(centre_squares);
  answer.envelope = norm > 0 ? radius_norm / norm : (radius_norm == 0 ? 0 : HUGE_VAL);
  answer.doubt = norm > 0 ? std::sqrt(excess_squares) / norm : answer.envelope;
  if (worst > 0) answer.deviation = worst * answer.envelope;
  if (answer.envelope == 0) answer.deviation = worst > 1 ? HUGE_VAL : 0;
  return answer;
}

}  // namespace plumbline
