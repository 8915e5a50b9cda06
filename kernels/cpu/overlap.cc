#include "kernels/cpu/overlap.h"

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/strided.h"

namespace plumbline::cpu {
namespace {

// The dimensions of a view whose strides lie beyond all that the smaller strides reach: their indices part what the
// view spans. The others stay in their order.
struct Parts {
  std::vector<std::size_t> apart, within;
  std::int64_t count = 1;
};

Parts parts_of(const View& view) {
  std::vector<std::size_t> rising;
  for (std::size_t d = 0; d < view.sizes.size(); ++d)
    if (view.sizes[d] > 1) rising.push_back(d);
  std::ranges::stable_sort(rising, {}, [&](std::size_t d) { return view.strides[d]; });
  std::size_t first = 0;  // From here on each is beyond those before it.
  std::int64_t reach = 0;
  for (std::size_t i = 0; i < rising.size(); ++i) {
    if (view.strides[rising[i]] <= reach) first = i + 1;
    reach += (view.sizes[rising[i]] - 1) * view.strides[rising[i]];
  }
  Parts parts;
  parts.within.assign(rising.begin(), rising.begin() + static_cast<std::ptrdiff_t>(first));
  parts.apart.assign(rising.begin() + static_cast<std::ptrdiff_t>(first), rising.end());
  std::ranges::sort(parts.within);
  std::ranges::sort(parts.apart);
  for (std::size_t d : parts.apart) parts.count *= view.sizes[d];
  return parts;
}

View only(const View& view, const std::vector<std::size_t>& dims) {
  View kept{{}, {}, 0};
  for (std::size_t d : dims) {
    kept.sizes.push_back(view.sizes[d]);
    kept.strides.push_back(view.strides[d]);
  }
  return kept;
}

}  // namespace

bool overlaps_in_parts(const View& view) {
  constexpr std::int64_t kPartsMin = 16;  // So many keep all threads busy.
  for (std::size_t d = 0; d < view.sizes.size(); ++d)
    if (view.sizes[d] > 1 && view.strides[d] == 0) return false;
  const Parts parts = parts_of(view);
  return !parts.within.empty() && parts.count >= kPartsMin;
}

// Part by part, each by one thread: all that meets in it is added while it is near the processor.
void add_overlapping(double* to, const View& view, const Array& from) {
  const View from_view = view_of(from);
  const Parts parts = parts_of(view);
  const View to_apart = only(view, parts.apart), from_apart = only(from_view, parts.apart);
  const View to_within = only(view, parts.within), from_within = only(from_view, parts.within);
  const auto outer = merged_dimensions<2>(to_apart.sizes, {&to_apart, &from_apart});
  const auto inner = merged_dimensions<2>(to_within.sizes, {&to_within, &from_within});
  const std::int64_t elements = count(to_within.sizes), length = inner.back().size;
  const auto [to_step, from_step] = inner.back().strides;
  std::vector<std::array<std::int64_t, 2>> rows;  // Where they begin in each part.
  for_each_run<2>(inner, 0, elements, [&](std::int64_t, const std::array<std::int64_t, 2>& at) { rows.push_back(at); });
  const double* const source = from.data();
  const auto add_part = [&, to_step = to_step, from_step = from_step](double* into, const double* terms) {
    for (const auto& [at, from_at] : rows) {
      double* const x = into + at;
      const double* const y = terms + from_at;
      if (to_step == 1 && from_step == 1) {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < length; ++i) x[i] += y[i];
      } else {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < length; ++i) x[i * to_step] += y[i * from_step];
      }
    }
  };
  parallel_for(parts.count, std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, elements)),
               [&](std::int64_t begin, std::int64_t end) {
                 for_each_run<2>(outer, begin, end, [&](std::int64_t n, const std::array<std::int64_t, 2>& at) {
                   const auto [step, terms_step] = outer.back().strides;
                   for (std::int64_t i = 0; i < n; ++i)
                     add_part(to + at[0] + i * step, source + at[1] + i * terms_step);
                 });
               });
}

}  // namespace plumbline::cpu
