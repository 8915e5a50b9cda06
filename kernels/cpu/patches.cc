#include "kernels/cpu/patches.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/contraction.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/parallel.h"
#include "kernels/strided.h"

namespace plumbline::cpu {
namespace {

constexpr std::int64_t kTapsMax = 64;
constexpr std::int64_t kLanes = 32;  // Sums of positions are formed in so many lanes, whose sums are then added.
// A lane takes so many terms, so that with the sum of the lanes no more than kSumBlock roundings are in one of them.
constexpr std::int64_t kStepsMax = 24;
constexpr std::int64_t kLengthMax = kStepsMax * kLanes;
constexpr std::int64_t kReachMax = 1 << 12;

// Positions that lie in one stretch of the image, rows of `inner` elements, `step` apart, the rows `pitch` apart. Loops
// walk through all of the stretch, as long rows are fast and what lies between is dropped, or taken times zero.
struct Run {
  std::int64_t image, first;  // Where it begins in the image, and the number of its first position.
  std::int64_t rows, inner, pitch, step;

  std::int64_t length() const { return (rows - 1) * pitch + (inner - 1) * step + 1; }
  template <class F>
  void each(const F& f) const {  // f(place in the stretch, number of the position)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < inner; ++i) f(r * pitch + i * step, first + r * inner + i);
  }
};

std::vector<std::int64_t> places(const View& view) {
  std::vector<std::int64_t> found;
  const auto dims = merged_dimensions<1>(view.sizes, {&view});
  const std::int64_t step = dims.back().strides[0];
  for_each_run<1>(dims, 0, count(view.sizes), [&](std::int64_t length, const std::array<std::int64_t, 1>& at) {
    for (std::int64_t i = 0; i < length; ++i) found.push_back(at[0] + i * step);
  });
  return found;
}

std::vector<Run> runs_of(const View& positions) {
  std::vector<Dimension<1>> dims = merged_dimensions<1>(positions.sizes, {&positions});
  const Dimension<1> inner = dims.back();
  dims.pop_back();
  const std::int64_t step = inner.strides[0], row = (inner.size - 1) * step + 1;
  Dimension<1> rows{1, {0}};
  if (!dims.empty() && row < kLengthMax / 2 && dims.back().strides[0] > row && dims.back().strides[0] <= 3 * row) {
    rows = dims.back();
    dims.pop_back();
  }
  const std::int64_t pitch = rows.strides[0];
  const std::int64_t height = pitch == 0 ? 1 : std::min(rows.size, (kLengthMax - row) / pitch + 1);
  const std::int64_t width = std::min(inner.size, (kLengthMax - 1) / step + 1);
  std::vector<Run> runs;
  View outer{{}, {}, 0};
  for (const auto& dim : dims) {
    outer.sizes.push_back(dim.size);
    outer.strides.push_back(dim.strides[0]);
  }
  std::int64_t first = 0;
  for (const std::int64_t at : places(outer))
    for (std::int64_t r = 0; r < rows.size; r += height) {
      const std::int64_t taken = std::min(height, rows.size - r);
      for (std::int64_t i = 0; i < inner.size; i += width) {
        const std::int64_t length = std::min(width, inner.size - i);
        runs.push_back({at + r * pitch + i * step, first, taken, length, pitch, step});
        first += taken * length;
      }
    }
  return runs;
}

View part(const View& view, std::size_t begin, std::size_t end) {
  const auto of = [&](const Shape& x) {
    return Shape(x.begin() + static_cast<std::ptrdiff_t>(begin), x.begin() + static_cast<std::ptrdiff_t>(end));
  };
  return {of(view.sizes), of(view.strides), 0};
}

// From the first place of a window to its last.
std::int64_t reach_of(const View& view) {
  std::int64_t reach = 0;
  for (std::size_t d = 0; d < view.sizes.size(); ++d) reach += (view.sizes[d] - 1) * view.strides[d];
  return reach;
}

// The window's dimensions by their part in the product.
struct Parts {
  View lead, terms, columns;

  bool terms_are_taps() const { return count(terms.sizes) <= kTapsMax && reach_of(terms) <= kReachMax; }
  const View& taps() const { return terms_are_taps() ? terms : columns; }
  const View& positions() const { return terms_are_taps() ? columns : terms; }
};

std::optional<Parts> parts_of(const View& patches, std::size_t lead, std::int64_t k) {
  std::size_t end = lead;
  std::int64_t terms = 1;
  while (end < patches.sizes.size() && terms < k) terms *= patches.sizes[end++];
  if (terms != k || end == patches.sizes.size()) return std::nullopt;
  return Parts{part(patches, 0, lead), part(patches, lead, end), part(patches, end, patches.sizes.size())};
}

// How loops walk through a product.
struct Layout {
  Parts parts;
  bool terms_are_taps;
  std::vector<std::int64_t> taps;  // Their places in the image.
  std::int64_t reach;              // The last of them.
  std::vector<Run> runs;
  std::int64_t positions;

  Layout(const Array& patches, const Shape& product, std::int64_t k)
      : parts(*parts_of(view_of(patches), product.size() - 2, k)),
        terms_are_taps(parts.terms_are_taps()),
        taps(places(parts.taps())),
        reach(reach_of(parts.taps())),
        runs(runs_of(parts.positions())),
        positions(count(parts.positions().sizes)) {}

  std::int64_t tap_count() const { return static_cast<std::int64_t>(taps.size()); }
  std::int64_t grain() const { return 1 + (1 << 16) / (tap_count() * positions); }
};

// Leading dimensions of rows [lead..., 1, length], which broadcast to `sizes`.
View leading(const Array& rows, const Shape& sizes) {
  View view{Shape(sizes.size(), 1), Shape(sizes.size(), 0), 0};
  const std::size_t missing = sizes.size() + 2 - rows.shape().size();
  for (std::size_t d = missing; d < sizes.size(); ++d) {
    view.sizes[d] = rows.shape()[d - missing];
    view.strides[d] = rows.strides()[d - missing];
  }
  return view;
}

// As many elements as a register holds: compilers leave sums in memory that loops over arrays form.
#ifdef __AVX512F__
constexpr int kWide = 8;
#else
constexpr int kWide = 4;
#endif
using Vector [[gnu::vector_size(kWide * sizeof(double))]] = double;

Vector load(const double* from) {
  Vector x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

// out[i] = sum over taps of factor[t] x[tap t + i], in blocks of kSumBlock taps, for kVectors registers.
template <int kVectors>
void correlate_block(const std::vector<std::int64_t>& taps, const double* factors, const double* x, double* out) {
  Vector totals[kVectors] = {};
  const auto all = static_cast<std::int64_t>(taps.size());
  for (std::int64_t p = 0; p < all; p += kSumBlock) {
    Vector sums[kVectors] = {};
    for (std::int64_t t = p; t < std::min(all, p + kSumBlock); ++t) {
      const double* const from = x + taps[static_cast<std::size_t>(t)];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[v] += load(from + v * kWide) * factors[t];
    }
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) totals[v] += sums[v];
  }
  std::memcpy(out, totals, sizeof totals);
}

double correlate_one(const std::vector<std::int64_t>& taps, const double* factors, const double* x) {
  double total = 0, sum = 0;
  for (std::size_t t = 0; t < taps.size(); ++t) {
    if (t > 0 && t % kSumBlock == 0) total += std::exchange(sum, 0.0);
    sum += x[taps[t]] * factors[t];
  }
  return total + sum;
}

// For i < length; `readable` elements behind each tap may be read. `out` has room for kWide elements more.
void correlate(const std::vector<std::int64_t>& taps, const double* factors, const double* x, std::int64_t length,
               std::int64_t readable, double* out) {
  std::int64_t i = 0;
  for (; i + 8 * kWide <= length; i += 8 * kWide) correlate_block<8>(taps, factors, x + i, out + i);
  for (; i + 4 * kWide <= length; i += 4 * kWide) correlate_block<4>(taps, factors, x + i, out + i);
  for (; i + 2 * kWide <= length; i += 2 * kWide) correlate_block<2>(taps, factors, x + i, out + i);
  for (; i < length && i + kWide <= readable; i += kWide) correlate_block<1>(taps, factors, x + i, out + i);
  for (; i < length; ++i) out[i] = correlate_one(taps, factors, x + i);
}

// Rows of positions, laid out as their run lies in the image, zeros between them.
void spread(const Run& run, const double* rows, double* to) {
  std::fill(to, to + run.length(), 0.0);
  run.each([=](std::int64_t place, std::int64_t position) { to[place] = rows[position]; });
}

// The row of positions that factors of taps give.
class Correlation {
 public:
  // `last`: the end of what may be read of the image.
  Correlation(const Layout& layout, const double* last) : layout_(layout), last_(last), sums_(kLengthMax + kWide) {}

  void operator()(const double* image, const double* factors, double* rows) {
    for (const Run& run : layout_.runs) {
      const double* const from = image + run.image;
      double* const sums = sums_.data();
      correlate(layout_.taps, factors, from, run.length(), last_ - from - layout_.reach, sums);
      run.each([=](std::int64_t place, std::int64_t position) { rows[position] = sums[place]; });
    }
  }

 private:
  const Layout& layout_;
  const double* const last_;
  std::vector<double> sums_;
};

// The factors of taps that a row of positions gives.
class Dots {
 public:
  explicit Dots(const Layout& layout)
      : layout_(layout),
        lanes_(static_cast<std::size_t>(kLanes * layout.tap_count())),
        totals_(layout.taps.size()),
        row_(kLengthMax) {}

  void operator()(const double* image, const double* rows, double* factors, bool accumulate) {
    std::ranges::fill(totals_, 0.0);
    std::int64_t steps = 0;
    for (const Run& run : layout_.runs) {
      const std::int64_t more = (run.length() + kLanes - 1) / kLanes;
      if (steps + more > kStepsMax) add_lanes();
      steps = steps + more > kStepsMax ? more : steps + more;
      spread(run, rows, row_.data());
      for (std::size_t t = 0; t < layout_.taps.size(); ++t)
        add(image + run.image + layout_.taps[t], run.length(), lanes_.data() + kLanes * static_cast<std::int64_t>(t));
    }
    add_lanes();
    for (std::size_t t = 0; t < layout_.taps.size(); ++t) {
      // Zeros between positions met what is not finite, or positions did.
      const double total = std::isfinite(totals_[t]) ? totals_[t] : exactly(image + layout_.taps[t], rows);
      factors[t] = (accumulate ? factors[t] : 0) + total;
    }
  }

 private:
  void add(const double* image, std::int64_t length, double* to) const {
    const double* const row = row_.data();
    constexpr int kVectors = kLanes / kWide;
    Vector lanes[kVectors];
    std::memcpy(lanes, to, sizeof lanes);
    std::int64_t at = 0;
    for (; at + kLanes <= length; at += kLanes) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) lanes[v] += load(image + at + v * kWide) * load(row + at + v * kWide);
    }
    std::memcpy(to, lanes, sizeof lanes);
    for (int i = 0; at + i < length; ++i) to[i] += image[at + i] * row[at + i];
  }

  void add_lanes() {
    for (std::size_t t = 0; t < layout_.taps.size(); ++t) {
      double* const lanes = lanes_.data() + kLanes * static_cast<std::int64_t>(t);
      for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
        for (std::int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
      totals_[t] += lanes[0];
    }
    std::ranges::fill(lanes_, 0.0);
  }

  double exactly(const double* image, const double* rows) const {
    double total = 0, sum = 0;
    std::int64_t terms = 0;
    for (const Run& run : layout_.runs)
      run.each([&](std::int64_t place, std::int64_t position) {
        sum += image[run.image + place] * rows[position];
        if (++terms % kSumBlock == 0) total += std::exchange(sum, 0.0);
      });
    return total + sum;
  }

  const Layout& layout_;
  std::vector<double> lanes_, totals_, row_;
};

// Adds to the image what factors of taps and rows of positions give it: from where the image's element lies, taps are
// met backwards in the row, which has zeros around it.
class Addition {
 public:
  explicit Addition(const Layout& layout)
      : layout_(layout), row_(static_cast<std::size_t>(kLengthMax + 2 * layout.reach + 64)) {
    for (const std::int64_t tap : layout.taps) backwards_.push_back(layout.reach - tap);
  }

  void operator()(const double* factors, const double* rows, double* image) {
    if (!std::all_of(factors, factors + layout_.taps.size(), [](double x) { return std::isfinite(x); }))
      return exactly(factors, rows, image);
    constexpr std::int64_t kBlock = 64;
    for (const Run& run : layout_.runs) {
      std::ranges::fill(row_, 0.0);
      spread(run, rows, row_.data() + layout_.reach);
      const std::int64_t length = run.length() + layout_.reach;
      for (std::int64_t i = 0; i < length; i += kBlock) {
        double sums[kBlock + kWide];
        const std::int64_t some = std::min(kBlock, length - i);
        correlate(backwards_, factors, row_.data() + i, some, kBlock, sums);
        double* const to = image + run.image + i;
        for (std::int64_t j = 0; j < some; ++j) to[j] += sums[j];
      }
    }
  }

 private:
  void exactly(const double* factors, const double* rows, double* image) const {
    for (const Run& run : layout_.runs)
      for (std::size_t t = 0; t < layout_.taps.size(); ++t)
        run.each([&](std::int64_t place, std::int64_t position) {
          image[run.image + layout_.taps[t] + place] += factors[t] * rows[position];
        });
  }

  const Layout& layout_;
  std::vector<std::int64_t> backwards_;
  std::vector<double> row_;
};

}  // namespace

bool reads_patches(const View& patches, std::size_t lead, std::int64_t k) {
  for (std::size_t d = 0; d < patches.sizes.size(); ++d)
    if (patches.sizes[d] < 1 || (patches.sizes[d] > 1 && patches.strides[d] < 1)) return false;
  const std::optional<Parts> parts = parts_of(patches, lead, k);
  if (!parts) return false;
  const View &taps = parts->taps(), &positions = parts->positions();
  const auto inner = merged_dimensions<1>(positions.sizes, {&positions}).back();
  // Rows of three elements and more, of which at least every second is taken: lanes get no more roundings for what
  // lies between.
  if (count(taps.sizes) < 2 || count(taps.sizes) > kTapsMax || inner.size < 3 || inner.strides[0] > 2) return false;
  if (reach_of(taps) > kReachMax) return false;
  // Leading dimensions step over all that smaller strides span.
  std::vector<std::size_t> rising;
  for (std::size_t d = 0; d < patches.sizes.size(); ++d)
    if (patches.sizes[d] > 1) rising.push_back(d);
  std::ranges::stable_sort(rising, {}, [&](std::size_t d) { return patches.strides[d]; });
  std::int64_t span = 0;
  bool apart = false;
  for (const std::size_t d : rising) {
    apart = apart || d < lead;
    if (apart && patches.strides[d] <= span) return false;
    span += (patches.sizes[d] - 1) * patches.strides[d];
  }
  return true;
}

void multiply_patches(const Array& a, const Array& patches, Array& c) {
  const Layout layout(patches, c.shape(), a.shape().back());
  const Array rows = a.materialize();
  const View of_rows = leading(rows, layout.parts.lead.sizes), of_out = leading(c, layout.parts.lead.sizes);
  const auto lead = merged_dimensions<3>(layout.parts.lead.sizes, {&layout.parts.lead, &of_rows, &of_out});
  const double *const image = patches.data(), *const from = rows.data();
  double* const to = c.data();
  const double* const last = image + span_of(patches);
  parallel_for(count(layout.parts.lead.sizes), layout.grain(), [&](std::int64_t begin, std::int64_t end) {
    Correlation correlation(layout, last);
    Dots dots(layout);
    for_each_run<3>(lead, begin, end, [&](std::int64_t n, std::array<std::int64_t, 3> at) {
      for (std::int64_t i = 0; i < n; ++i) {
        if (layout.terms_are_taps) {
          correlation(image + at[0], from + at[1], to + at[2]);
        } else {
          dots(image + at[0], from + at[1], to + at[2], false);
        }
        for (int d = 0; d < 3; ++d) at[d] += lead.back().strides[d];
      }
    });
  });
}

bool multiply_transposed_patches(const Array& g, const Array& patches, Array& a) {
  const Layout layout(patches, g.shape(), a.shape().back());
  const Array given = g.materialize();
  const View of_rows = leading(a, layout.parts.lead.sizes), of_given = leading(given, layout.parts.lead.sizes);
  // Over `summed` the result stays where it is: one thread adds there.
  View kept = layout.parts.lead, summed{{}, {}, 0}, summed_given{{}, {}, 0};
  for (std::size_t d = 0; d < kept.sizes.size(); ++d) {
    if (kept.sizes[d] == 1 || of_rows.sizes[d] > 1) continue;
    summed.sizes.push_back(kept.sizes[d]);
    summed.strides.push_back(kept.strides[d]);
    summed_given.sizes.push_back(kept.sizes[d]);
    summed_given.strides.push_back(of_given.strides[d]);
    kept.sizes[d] = 1;
  }
  const std::int64_t terms = count(summed.sizes);
  if (!layout.terms_are_taps && terms > 1) return false;
  const auto outer = merged_dimensions<3>(kept.sizes, {&kept, &of_rows, &of_given});
  const auto inner = merged_dimensions<2>(summed.sizes, {&summed, &summed_given});
  const double *const image = patches.data(), *const from = given.data();
  const double* const last = image + span_of(patches);
  double* const to = a.data();
  const auto each = [&](std::array<std::int64_t, 3> at, Correlation& correlation, Dots& dots) {
    bool add = false;
    if (!layout.terms_are_taps) return correlation(image + at[0], from + at[2], to + at[1]);
    for_each_run<2>(inner, 0, terms, [&](std::int64_t n, const std::array<std::int64_t, 2>& more) {
      for (std::int64_t i = 0; i < n; ++i, add = true)
        dots(image + at[0] + more[0] + i * inner.back().strides[0],
             from + at[2] + more[1] + i * inner.back().strides[1], to + at[1], add);
    });
  };
  parallel_for(count(kept.sizes), layout.grain(), [&](std::int64_t begin, std::int64_t end) {
    Correlation correlation(layout, last);
    Dots dots(layout);
    for_each_run<3>(outer, begin, end, [&](std::int64_t n, std::array<std::int64_t, 3> at) {
      for (std::int64_t i = 0; i < n; ++i) {
        each(at, correlation, dots);
        for (int d = 0; d < 3; ++d) at[d] += outer.back().strides[d];
      }
    });
  });
  return true;
}

void add_at_patches(const Array& a, const Array& g, const View& patches, Array& image) {
  const Array rows = a.materialize(), given = g.materialize();
  Array window = image.window(patches);
  const Layout layout(window, g.shape(), a.shape().back());
  const View of_rows = leading(rows, layout.parts.lead.sizes), of_given = leading(given, layout.parts.lead.sizes);
  const auto lead = merged_dimensions<3>(layout.parts.lead.sizes, {&layout.parts.lead, &of_rows, &of_given});
  const double *const factors = rows.data(), *const from = given.data();
  double* const to = window.data();
  parallel_for(count(layout.parts.lead.sizes), layout.grain(), [&](std::int64_t begin, std::int64_t end) {
    Addition addition(layout);
    for_each_run<3>(lead, begin, end, [&](std::int64_t n, std::array<std::int64_t, 3> at) {
      for (std::int64_t i = 0; i < n; ++i) {
        const double *const x = factors + at[1], *const y = from + at[2];
        if (layout.terms_are_taps) {
          addition(x, y, to + at[0]);
        } else {
          addition(y, x, to + at[0]);
        }
        for (int d = 0; d < 3; ++d) at[d] += lead.back().strides[d];
      }
    });
  });
}

Array columns_of_patches(const Array& patches, const Shape& product, std::int64_t k,
                         const std::vector<std::int64_t>& drawn) {
  const Parts parts = *parts_of(view_of(patches), product.size() - 2, k);
  const std::vector<std::int64_t> lead = places(parts.lead), terms = places(parts.terms),
                                  columns = places(parts.columns);
  const std::int64_t n = product.back();
  Array result = Array::uninitialized({static_cast<std::int64_t>(drawn.size()), k});
  double* to = result.data();
  for (const std::int64_t at : drawn) {
    const double* const from =
        patches.data() + lead[static_cast<std::size_t>(at / n)] + columns[static_cast<std::size_t>(at % n)];
    for (const std::int64_t term : terms) *to++ = from[term];
  }
  return result;
}

}  // namespace plumbline::cpu
