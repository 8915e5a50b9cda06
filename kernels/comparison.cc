#include "kernels/comparison.h"

#include "kernels/operations.h"

namespace plumbline {

void Comparison::join(const Comparison& next) {
  const double radii = radius_squares + next.radius_squares, centres = centre_squares + next.centre_squares;
  const double excess = excess_squares + next.excess_squares;
  const double chance = next.least_chance < least_chance ? next.least_chance : least_chance;
  const bool all = finite && next.finite;
  if (next.worst > worst) *this = next;
  finite = all;
  radius_squares = radii;
  centre_squares = centres;
  excess_squares = excess;
  least_chance = chance;
}

Later<Comparison> compare(std::span<const ComparedTerm> centres, std::span<const ComparedTerm> values,
                          std::int64_t count, double slack) {
  return current_operations().compare(centres, values, count, slack);
}

}  // namespace plumbline
