#include "kernels/cpu/sort.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cpu/parallel.h"

namespace plumbline::cpu {
namespace {

// NaN counts as the largest.
bool falls(double a, double b) { return a > b || (a != a && b == b); }

}  // namespace

void argsort(const Array& x, Array& order) {
  const std::int64_t length = x.shape()[1], kept = order.shape()[1];
  parallel_for(x.shape()[0], std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, length)),
               [&](std::int64_t begin, std::int64_t end) {
                 std::vector<std::int64_t> sorted(static_cast<std::size_t>(length));
                 for (std::int64_t line = begin; line < end; ++line) {
                   const double* const from = x.data() + line * length;
                   std::iota(sorted.begin(), sorted.end(), 0);
                   std::partial_sort(sorted.begin(), sorted.begin() + kept, sorted.end(),
                                     [&](std::int64_t a, std::int64_t b) {
                                       return falls(from[a], from[b]) || (!falls(from[b], from[a]) && a < b);
                                     });
                   std::copy_n(sorted.begin(), kept, order.data() + line * kept);
                 }
               });
}

void group(const Array& row, Array& start, Array& order) {
  const std::int64_t rows = start.count() - 1;
  double *const first = start.data(), *const to = order.data();
  std::fill_n(first, rows + 1, 0.0);
  const auto each = [&](std::int64_t i, const auto& body) {
    if (const double at = row.data()[i]; at >= 0) body(static_cast<std::int64_t>(at));
  };
  for (std::int64_t i = 0; i < row.count(); ++i) each(i, [&](std::int64_t r) { first[r] += 1; });
  for (std::int64_t r = 1; r <= rows; ++r) first[r] += first[r - 1];
  for (std::int64_t i = row.count(); i-- > 0;)
    each(i, [&](std::int64_t r) { to[static_cast<std::int64_t>(first[r] -= 1)] = static_cast<double>(i); });
}

}  // namespace plumbline::cpu
