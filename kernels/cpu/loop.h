// The host's loops (kernels/loop.h says what each does). Inner strides are 0 or 1 in practice, which the compiler
// vectorises.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/array.h"
#include "kernels/ball/format.h"
#include "kernels/ball/scalar.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/sort.h"
#include "kernels/cpu/team.h"
#include "kernels/later.h"
#include "kernels/strided.h"

namespace plumbline::cpu {

namespace internal {

// f at element j of N contiguous operands.
template <class F, std::size_t N>
double call_contiguous(const F& f, const std::array<const double*, N>& in, std::int64_t j) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) { return f(in[I][j]...); }
  (std::make_index_sequence<N>{});
}

inline constexpr std::int64_t kTile = 256;  // Elements of an operand gathered at a time.

// body(begin, length, operands) over [0, n), the operands contiguous: where steps are not 1, through tiles.
template <std::size_t N, class Body>
void for_each_tile(std::int64_t n, const std::array<const double*, N>& in, const std::array<std::int64_t, N>& steps,
                   const Body& body) {
  if (std::all_of(steps.begin(), steps.end(), [](std::int64_t step) { return step == 1; })) return body(0, n, in);
  double tiles[N][kTile];
  for (std::size_t i = 0; i < N; ++i) {
    if (steps[i] == 0) std::fill(tiles[i], tiles[i] + std::min(n, kTile), *in[i]);
  }
  for (std::int64_t begin = 0; begin < n; begin += kTile) {
    const std::int64_t length = std::min(kTile, n - begin);
    std::array<const double*, N> from;
    for (std::size_t i = 0; i < N; ++i) {
      from[i] = steps[i] == 1 ? in[i] + begin : tiles[i];
      if (steps[i] == 0 || steps[i] == 1) continue;
      for (std::int64_t j = 0; j < length; ++j) tiles[i][j] = in[i][(begin + j) * steps[i]];
    }
    body(begin, length, from);
  }
}

// store(out[j * so], f(inputs...)) for j in [0, n). Operands with other strides than 1 are gathered into tiles, so that
// each functor is compiled for contiguous operands only, and vectorised. Operands may be the output itself: every
// element is read and written at the same index (ivdep).
template <class F, class Store, std::size_t N>
void run(std::int64_t n, double* out, std::int64_t so, const std::array<const double*, N>& in,
         const std::array<std::int64_t, N>& steps, const F& f, const Store& store) {
  for_each_tile(n, in, steps, [&](std::int64_t begin, std::int64_t length, const std::array<const double*, N>& from) {
    double* const to = out + begin * so;
    if (so == 1) {
#pragma GCC ivdep
      for (std::int64_t j = 0; j < length; ++j) store(to[j], call_contiguous(f, from, j));
    } else {
      for (std::int64_t j = 0; j < length; ++j) store(to[j * so], call_contiguous(f, from, j));
    }
  });
}

template <class F, class Store, class... Arrays>
void apply(double* out, const View& out_view, const F& f, const Store& store, const Arrays&... arrays) {
  constexpr int kInputs = sizeof...(Arrays);
  const std::array<View, kInputs> in_views{view_of(arrays)...};
  const std::array<const double*, kInputs> base{arrays.data()...};
  std::array<const View*, kInputs + 1> views{&out_view};
  for (int i = 0; i < kInputs; ++i) views[i + 1] = &in_views[i];
  const auto dims = merged_dimensions<kInputs + 1>(out_view.sizes, views);
  const auto& inner = dims.back().strides;
  std::array<std::int64_t, kInputs> steps;
  for (int i = 0; i < kInputs; ++i) steps[i] = inner[i + 1];
  parallel_for(count(out_view.sizes), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for_each_run<kInputs + 1>(dims, begin, end, [&](std::int64_t n, const std::array<std::int64_t, kInputs + 1>& at) {
      std::array<const double*, kInputs> in;
      for (int i = 0; i < kInputs; ++i) in[i] = base[i] + at[i + 1];
      run(n, out + at[0], inner[0], in, steps, f, store);
    });
  });
}

}  // namespace internal

using scalar::Copy;

template <class F, class... Arrays>
void map(Array& out, const F& f, const Arrays&... inputs) {
  if constexpr (std::is_same_v<F, Copy>)
    copy(out.data(), view_of(out), inputs...);
  else
    internal::apply(
        out.data(), view_of(out), f, [](double& to, double value) { to = value; }, inputs...);
}

template <class F, class... Arrays>
void map_add(Array& out, const F& f, const Arrays&... inputs) {
  if constexpr (std::is_same_v<F, Copy>)
    add(out.data(), view_of(out), inputs...);
  else
    internal::apply(
        out.data(), view_of(out), f, [](double& to, double value) { to += value; }, inputs...);
}

using scalar::Max;
using scalar::Min;
using scalar::Sum;

namespace internal {

template <class Combine, class F, std::size_t N>
double fold(std::int64_t n, const std::array<const double*, N>& in, const std::array<std::int64_t, N>& s, const F& f) {
  constexpr int kLanes = 16;
  if (n < kLanes) {  // As few as a small picture's positions are.
    double total = Combine::kStart;
    for (std::int64_t j = 0; j < n; ++j) {
      std::array<const double*, N> at;
      for (std::size_t i = 0; i < N; ++i) at[i] = in[i] + j * s[i];
      total = Combine::combine(total, call_contiguous(f, at, 0));
    }
    return total;
  }
  double lanes[kLanes];
  std::fill(lanes, lanes + kLanes, Combine::kStart);
  for_each_tile(n, in, s, [&](std::int64_t, std::int64_t length, const std::array<const double*, N>& from) {
    double held[kLanes];  // Not reachable through any reference, so that it stays in registers.
    std::fill(held, held + kLanes, Combine::kStart);
    std::int64_t j = 0;
    for (; j + kLanes <= length; j += kLanes) {
      for (int l = 0; l < kLanes; ++l) held[l] = Combine::combine(held[l], call_contiguous(f, from, j + l));
    }
    for (int l = 0; j < length; ++j, ++l) held[l] = Combine::combine(held[l], call_contiguous(f, from, j));
    for (int l = 0; l < kLanes; ++l) lanes[l] = Combine::combine(lanes[l], held[l]);
  });
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lanes[l] = Combine::combine(lanes[l], lanes[l + width]);
  }
  return lanes[0];
}

}  // namespace internal

template <class Combine, class F, class... Arrays>
void reduce(Array& out, bool accumulate, const Shape& shape, const F& f, const Arrays&... arrays) {
  constexpr int kInputs = sizeof...(Arrays);
  constexpr int kOperands = kInputs + 1;
  const View out_view = view_of(out);
  const std::array<View, kInputs> in_views{view_of(arrays)...};
  const std::array<const double*, kInputs> base{arrays.data()...};
  std::array<const View*, kOperands> views{&out_view};
  for (int i = 0; i < kInputs; ++i) views[i + 1] = &in_views[i];
  const auto dims = merged_dimensions<kOperands>(shape, views);

  double* const to = out.data();
  if (count(shape) == 0) {
    if (!accumulate) std::fill(to, to + out.count(), Combine::kStart);
    return;
  }
  std::vector<Dimension<kOperands>> kept, reduced;
  for (const auto& dim : dims) (dim.strides[0] != 0 ? kept : reduced).push_back(dim);
  if (kept.empty()) kept.push_back({1, {}});
  if (reduced.empty()) reduced.push_back({1, {}});
  std::int64_t outs = 1, terms = 1;
  for (const auto& dim : kept) outs *= dim.size;
  for (const auto& dim : reduced) terms *= dim.size;
  const bool inner_reduced = dims.back().strides[0] == 0;

  const auto fold_range = [&](const std::array<std::int64_t, kOperands>& at, std::int64_t begin, std::int64_t end) {
    double total = Combine::kStart;
    std::array<std::int64_t, kInputs> steps;
    for (int i = 0; i < kInputs; ++i) steps[i] = reduced.back().strides[i + 1];
    for_each_run<kOperands>(reduced, begin, end, [&](std::int64_t n, const std::array<std::int64_t, kOperands>& more) {
      std::array<const double*, kInputs> in;
      for (int i = 0; i < kInputs; ++i) in[i] = base[i] + at[i + 1] + more[i + 1];
      total = Combine::combine(total, internal::fold<Combine>(n, in, steps, f));
    });
    return total;
  };

  constexpr std::int64_t kBlock = 65536;  // Terms a partial result covers.
  if (inner_reduced && terms >= 2 * kBlock) {
    const std::int64_t blocks = (terms + kBlock - 1) / kBlock;
    std::vector<double> partial(static_cast<std::size_t>(blocks));
    for_each_run<kOperands>(kept, 0, outs, [&](std::int64_t n, const std::array<std::int64_t, kOperands>& start) {
      for (std::int64_t j = 0; j < n; ++j) {
        auto at = start;
        for (int i = 0; i < kOperands; ++i) at[i] += j * kept.back().strides[i];
        parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t b = begin; b < end; ++b)
            partial[b] = fold_range(at, b * kBlock, std::min(terms, (b + 1) * kBlock));
        });
        double total = partial[0];
        for (std::int64_t b = 1; b < blocks; ++b) total = Combine::combine(total, partial[b]);
        to[at[0]] = accumulate ? Combine::combine(to[at[0]], total) : total;
      }
    });
    return;
  }
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, terms));
  if (inner_reduced) {
    parallel_for(outs, grain, [&](std::int64_t begin, std::int64_t end) {
      for_each_run<kOperands>(kept, begin, end, [&](std::int64_t n, const std::array<std::int64_t, kOperands>& start) {
        for (std::int64_t j = 0; j < n; ++j) {
          auto at = start;
          for (int i = 0; i < kOperands; ++i) at[i] += j * kept.back().strides[i];
          const double total = fold_range(at, 0, terms);
          to[at[0]] = accumulate ? Combine::combine(to[at[0]], total) : total;
        }
      });
    });
    return;
  }
  // The inner dimension is kept: add whole rows into the output row.
  const auto combine = [](double& into, double value) { into = Combine::combine(into, value); };
  std::array<std::int64_t, kInputs> steps;
  for (int i = 0; i < kInputs; ++i) steps[i] = kept.back().strides[i + 1];
  parallel_for(outs, std::max<std::int64_t>(grain, 64), [&](std::int64_t begin, std::int64_t end) {
    for_each_run<kOperands>(kept, begin, end, [&](std::int64_t n, const std::array<std::int64_t, kOperands>& start) {
      double* const row = to + start[0];
      const std::int64_t row_stride = kept.back().strides[0];
      if (!accumulate) {
        for (std::int64_t j = 0; j < n; ++j) row[j * row_stride] = Combine::kStart;
      }
      for_each_run<kOperands>(reduced, 0, terms, [&](std::int64_t m, const std::array<std::int64_t, kOperands>& more) {
        for (std::int64_t r = 0; r < m; ++r) {
          std::array<const double*, kInputs> in;
          for (int i = 0; i < kInputs; ++i)
            in[i] = base[i] + start[i + 1] + more[i + 1] + r * reduced.back().strides[i + 1];
          internal::run(n, row, row_stride, in, steps, f, combine);
        }
      });
    });
  });
}

template <class F, auto kWide, class... Arrays>
void map_wide(Array& out, const Arrays&... inputs) {
  double* const to = out.data();
  parallel_for(out.count(), kGrain / 4, [to, ... in = inputs.data()](std::int64_t begin, std::int64_t end) {
    kWide((in + begin)..., to + begin, end - begin);
  });
}

template <class F>
void fill(Array& out, const F& f) {
  double* const to = out.data();
  parallel_for(out.count(), kGrain, [&, to](std::int64_t begin, std::int64_t end) {
    const F of = f;  // Local: its operands stay in registers.
    for (std::int64_t i = begin; i < end; ++i) to[i] = of(i);
  });
}

inline void decode(Array& out, Format format, const void* bytes) {
  plumbline::decode(format, bytes, out.count(), out.data());
}

inline Array placed(const Array&, const Array& x) { return x; }

template <class Body, class... Arrays>
void for_each_row(std::int64_t rows, std::int64_t length, Array& out, const Body& body, const Arrays&... inputs) {
  const std::int64_t grain = std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(1, length));
  double* const to = out.data();
  parallel_for(rows, grain, [&, to, ... in = inputs.data()](std::int64_t begin, std::int64_t end) {
    const Body each = body;
    for (std::int64_t r = begin; r < end; ++r) each(Team{}, r, to, in...);
  });
}

// Chunks of fixed size are added in order, whatever the number of threads.
template <class F, class... Arrays>
auto total(const F& f, std::int64_t n, const Arrays&... inputs) {
  using Sums = decltype(f(*inputs.data()...));
  constexpr std::int64_t kChunk = 1 << 15;
  constexpr std::int64_t kLanes = 8, kBlock = 256;
  const std::int64_t chunks = (n + kChunk - 1) / kChunk;
  std::vector<Sums> parts(static_cast<std::size_t>(chunks));
  parallel_for(chunks, 1, [&, ... in = inputs.data()](std::int64_t begin, std::int64_t end) {
    const F of = f;
    for (std::int64_t c = begin; c < end; ++c) {
      double lanes[Sums::kCount][kLanes] = {};
      const std::int64_t last = std::min(n, (c + 1) * kChunk);
      for (std::int64_t first = c * kChunk; first < last; first += kBlock) {
        const std::int64_t length = std::min(kBlock, last - first);
        double terms[Sums::kCount][kBlock];  // Before their sums: compilers make vectors of both only so.
        for (std::int64_t i = 0; i < length; ++i) {
          const Sums one = of(in[first + i]...);
          for (int k = 0; k < Sums::kCount; ++k) terms[k][i] = one.of[k];
        }
        for (int k = 0; k < Sums::kCount; ++k) {
          std::int64_t i = 0;
          for (; i + kLanes <= length; i += kLanes)
            for (std::int64_t l = 0; l < kLanes; ++l) lanes[k][l] += terms[k][i + l];
          for (std::int64_t l = 0; i < length; ++i, ++l) lanes[k][l] += terms[k][i];
        }
      }
      Sums& part = parts[static_cast<std::size_t>(c)];
      for (int k = 0; k < Sums::kCount; ++k)
        for (std::int64_t l = 0; l < kLanes; ++l) part.of[k] += lanes[k][l];
    }
  });
  Sums sums{};
  for (const Sums& part : parts) sums += part;
  return Later<Sums>(sums);
}

template <class F, class... Arrays>
auto totals(const F& f, std::int64_t n, const std::vector<Array>& each, const Arrays&... inputs) {
  std::vector<decltype(f(*each.data()->data(), *inputs.data()...))> found;
  for (const Array& x : each) found.push_back(total(f, n, x, inputs...));
  return Later(std::move(found));
}

template <class F>
Array any(const F& f, const Array& x) {
  return Array::scalar(std::any_of(x.data(), x.data() + x.count(), f) ? 1 : 0);
}

}  // namespace plumbline::cpu
