// The device's loops (kernels/loop.h says what each does), and the choice between them and the host's. Each functor is
// compiled into one kernel for any shapes, strides and numbers of dimensions; what has more than Walk's dimensions
// after merging runs on the host.
#pragma once

#include <algorithm>
#include <utility>

#include "kernels/cpu/loop.h"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/queue.cuh"
#include "kernels/cuda/sort.cuh"
#include "kernels/cuda/team.cuh"
#include "kernels/later.h"
#include "kernels/strided.h"

namespace plumbline::cuda {

using cpu::transpose_last_two;
using scalar::Copy;

namespace internal {

constexpr int kThreads = 256;
constexpr std::int64_t kBlocks = 8192;  // A grid has at most so many: threads walk on by its size.

// Blocks of kThreads for so much work, `each` of it a block's at a time.
inline Grid grid_for(std::int64_t work, std::int64_t each = kThreads) {
  return {static_cast<unsigned>(std::clamp<std::int64_t>((work + each - 1) / each, 1, kBlocks)), kThreads};
}

template <int N>
struct Operands {
  const double* data[N];
};

template <int N, class F, std::size_t... I>
__device__ double call(const F& f, const Operands<N>& in, const std::int64_t (&at)[N + 1], std::index_sequence<I...>) {
  return f(in.data[I][at[I + 1]]...);
}

template <int N, class F, std::size_t... I>
__device__ double2 call_pair(const F& f, const double2 (&x)[N], std::index_sequence<I...>) {
  return make_double2(f(x[I].x...), f(x[I].y...));
}

template <int N>
constexpr bool kPairs = N <= 3;  // More operands would not fit into registers twice, and keep memory busy anyway.

// out (+)= f(in...). `pairs`: one merged dimension whose strides are 1, or 0 for what is repeated, and addresses that
// are multiples of 16: accesses of 16 bytes.
template <int N, class F>
__global__ void __launch_bounds__(kThreads)
    map_kernel(std::int64_t n, Walk<N + 1> walk, bool pairs, bool add, double* out, Operands<N> in, F f) {
  constexpr auto kIndices = std::make_index_sequence<N>{};
  const std::int64_t first = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  std::int64_t done = 0;
  if (kPairs<N> && pairs) {
    for (std::int64_t i = first; i < n / 2; i += step) {
      double2 x[N];
      for (int k = 0; k < N; ++k) {
        x[k] = walk.strides[0][k + 1] != 0 ? reinterpret_cast<const double2*>(in.data[k])[i]
                                           : make_double2(*in.data[k], *in.data[k]);
      }
      double2 value = call_pair<N>(f, x, kIndices);
      auto* const to = reinterpret_cast<double2*>(out) + i;
      if (add) value = make_double2(to->x + value.x, to->y + value.y);
      *to = value;
    }
    done = n / 2 * 2;
  }
  for (std::int64_t i = done + first; i < n; i += step) {
    std::int64_t at[N + 1] = {};
    advance(walk, i, at);
    const double value = call<N>(f, in, at, kIndices);
    out[at[0]] = add ? out[at[0]] + value : value;
  }
}

inline bool aligned(const double* data) { return reinterpret_cast<std::uintptr_t>(data) % sizeof(double2) == 0; }

// False: too many dimensions.
template <class F, class... Arrays>
bool map(Queue& queue, bool add, Array& out, const F& f, const Arrays&... arrays) {
  constexpr int kInputs = sizeof...(Arrays);
  const std::int64_t n = out.count();
  if (n == 0) return true;
  const View out_view = view_of(out);
  const Array here[] = {resident(queue, arrays)...};
  std::array<View, kInputs> in_views;
  std::array<const View*, kInputs + 1> views{&out_view};
  Operands<kInputs> in;
  for (int i = 0; i < kInputs; ++i) {
    in_views[i] = view_of(here[i]);
    views[i + 1] = &in_views[i];
    in.data[i] = here[i].device_read();
  }
  Walk<kInputs + 1> walk;
  if (!plan(merged_dimensions<kInputs + 1>(out_view.sizes, views), walk)) return false;
  double* const to = out.device_write();
  bool pairs = kPairs<kInputs> && walk.rank == 1 && walk.strides[0][0] == 1 && aligned(to);
  for (int i = 0; i < kInputs; ++i) {
    const std::int64_t stride = walk.strides[0][i + 1];
    pairs = pairs && (stride == 0 || (stride == 1 && aligned(in.data[i])));
  }
  queue.launch("map", map_kernel<kInputs, F>, grid_for(n, pairs ? 2 * kThreads : kThreads), n, walk, pairs, add, to, in,
               f);
  return true;
}

template <class F>
__global__ void __launch_bounds__(kThreads) fill_kernel(std::int64_t n, double* out, F f) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    out[i] = f(i);
  }
}

// Three blocks of a multiprocessor at least, which leaves 80 registers to a thread: left alone, ptxas takes 32 and
// spills.
template <class Body, class... Pointers>
__global__ void __launch_bounds__(kTeamThreads, 3) rows_kernel(std::int64_t rows, Body body, Pointers... pointers) {
  for (std::int64_t row = blockIdx.x * static_cast<std::int64_t>(blockDim.y) + threadIdx.y; row < rows;
       row += static_cast<std::int64_t>(gridDim.x) * blockDim.y) {
    body(Team{}, row, pointers...);
  }
}

// A warp for a short row, a block for a long one.
template <class Body, class... Pointers>
void launch_rows(Queue& queue, std::int64_t rows, std::int64_t length, const Body& body, Pointers... pointers) {
  if (rows == 0) return;
  const dim3 block = length < 4 * kTeamThreads ? dim3(32, kTeamThreads / 32) : dim3(kTeamThreads);
  void (*const kernel)(std::int64_t, Body, Pointers...) = rows_kernel<Body, Pointers...>;
  queue.launch("rows", kernel, {grid_for(rows, block.y).blocks, block}, rows, body, pointers...);
}

// Outputs and terms of a reduction. Each output's terms are cut into `splits` stretches of `stretch`, chosen by the
// shape alone, whose results are combined in order.
template <int N>
struct Reduction {
  Walk<N + 1> kept, reduced;
  Operands<N> in;
  double* out;
  double* partial;  // [splits, outputs]; null where splits is 1.
  std::int64_t outputs, terms, splits, stretch;
  bool accumulate;

  __device__ std::int64_t begin(std::int64_t split) const { return split * stretch; }
  __device__ std::int64_t length(std::int64_t split) const {
    const std::int64_t left = terms - begin(split);
    return left < stretch ? left : stretch;
  }
  template <class F>
  __device__ double term(const F& f, const std::int64_t (&origin)[N + 1], std::int64_t i) const {
    std::int64_t at[N + 1];
    for (int k = 0; k <= N; ++k) at[k] = origin[k];
    advance(reduced, i, at);
    return call<N>(f, in, at, std::make_index_sequence<N>{});
  }
  template <class Combine>
  __device__ void store(std::int64_t output, std::int64_t split, std::int64_t at, double value) const {
    if (partial != nullptr) {
      partial[split * outputs + output] = value;
    } else {
      out[at] = accumulate ? Combine::combine(out[at], value) : value;
    }
  }
};

// A team for each stretch: where terms lie side by side.
template <class Combine, int N, class F>
struct Fold {
  Reduction<N> reduction;
  F f;

  __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t output = row / reduction.splits, split = row % reduction.splits;
    std::int64_t origin[N + 1] = {};
    advance(reduction.kept, output, origin);
    const std::int64_t begin = reduction.begin(split);
    const double value = team.fold<Combine>(reduction.length(split),
                                            [&](std::int64_t i) { return reduction.term(f, origin, begin + i); });
    if (team.first()) reduction.template store<Combine>(output, split, origin[0], value);
  }
};

// A thread for each stretch: where outputs lie side by side, or terms are few.
template <class Combine, int N, class F>
__global__ void __launch_bounds__(kThreads) column_kernel(Reduction<N> reduction, F f) {
  const std::int64_t all = reduction.outputs * reduction.splits;
  for (std::int64_t at = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x; at < all;
       at += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    const std::int64_t output = at % reduction.outputs, split = at / reduction.outputs;
    std::int64_t origin[N + 1] = {};
    advance(reduction.kept, output, origin);
    const std::int64_t begin = reduction.begin(split), end = begin + reduction.length(split);
    double value = Combine::kStart;
    for (std::int64_t i = begin; i < end; ++i) value = Combine::combine(value, reduction.term(f, origin, i));
    reduction.template store<Combine>(output, split, origin[0], value);
  }
}

template <class Combine>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(std::int64_t outputs, std::int64_t splits, const double* partial, Walk<1> kept, bool accumulate,
                   double* out) {
  for (std::int64_t output = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x; output < outputs;
       output += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    std::int64_t at[1] = {};
    advance(kept, output, at);
    double value = partial[output];
    for (std::int64_t s = 1; s < splits; ++s) value = Combine::combine(value, partial[s * outputs + output]);
    out[at[0]] = accumulate ? Combine::combine(out[at[0]], value) : value;
  }
}

struct Constant {
  double value;
  __device__ double operator()(std::int64_t) const { return value; }
};

template <class Combine, class F, class... Arrays>
bool reduce(Queue& queue, Array& out, bool accumulate, const Shape& shape, const F& f, const Arrays&... arrays) {
  constexpr int kInputs = sizeof...(Arrays);
  constexpr int kOperands = kInputs + 1;
  constexpr std::int64_t kFewTerms = 24, kColumnThreads = 1 << 17, kColumnTerms = 64;
  constexpr std::int64_t kTeams = 2048, kTeamTerms = 8192;
  if (out.count() == 0) return true;
  if (count(shape) == 0) {
    if (!accumulate) {
      queue.launch("fill", fill_kernel<Constant>, grid_for(out.count()), out.count(), out.device_write(),
                   Constant{Combine::kStart});
    }
    return true;
  }
  const View out_view = view_of(out);
  const Array here[] = {resident(queue, arrays)...};
  std::array<View, kInputs> in_views;
  std::array<const View*, kOperands> views{&out_view};
  Reduction<kInputs> reduction{};
  for (int i = 0; i < kInputs; ++i) {
    in_views[i] = view_of(here[i]);
    views[i + 1] = &in_views[i];
    reduction.in.data[i] = here[i].device_read();
  }
  std::vector<Dimension<kOperands>> kept, reduced;
  const auto dims = merged_dimensions<kOperands>(shape, views);
  for (const auto& dim : dims) (dim.strides[0] != 0 ? kept : reduced).push_back(dim);
  const bool side_by_side = dims.back().strides[0] == 0;
  if (kept.empty()) kept.push_back({1, {}});
  if (reduced.empty()) reduced.push_back({1, {}});
  reduction.outputs = reduction.terms = 1;
  for (const auto& dim : kept) reduction.outputs *= dim.size;
  for (const auto& dim : reduced) reduction.terms *= dim.size;
  if (!plan(kept, reduction.kept) || !plan(reduced, reduction.reduced)) return false;
  const bool teams = side_by_side && reduction.terms > kFewTerms;
  const std::int64_t wanted = (teams ? kTeams : kColumnThreads) / reduction.outputs;
  const std::int64_t useful = reduction.terms / (teams ? kTeamTerms : kColumnTerms);
  reduction.splits = std::max<std::int64_t>(1, std::min(wanted, useful));
  reduction.stretch = (reduction.terms + reduction.splits - 1) / reduction.splits;
  reduction.splits = (reduction.terms + reduction.stretch - 1) / reduction.stretch;
  reduction.out = out.device_write();
  reduction.accumulate = accumulate;
  Array partial;
  if (reduction.splits > 1) {
    partial = Array::uninitialized({reduction.splits, reduction.outputs});
    reduction.partial = partial.device_write();
  }
  const std::int64_t all = reduction.outputs * reduction.splits;
  if (teams) {
    launch_rows(queue, all, reduction.stretch, Fold<Combine, kInputs, F>{reduction, f});
  } else {
    queue.launch("reduce", column_kernel<Combine, kInputs, F>, grid_for(all), reduction, f);
  }
  if (partial) {
    Walk<1> of_out{reduction.kept.rank, reduction.kept.narrow, {}, {}};
    for (int d = 0; d < of_out.rank; ++d) {
      of_out.sizes[d] = reduction.kept.sizes[d];
      of_out.strides[d][0] = reduction.kept.strides[d][0];
    }
    queue.launch("combine", combine_kernel<Combine>, grid_for(reduction.outputs), reduction.outputs, reduction.splits,
                 static_cast<const double*>(reduction.partial), of_out, accumulate, reduction.out);
  }
  return true;
}

constexpr std::int64_t kChunk = 16 * kTeamThreads;  // Elements whose sums a block forms.

// A row for each chunk: out [rows, sums].
template <class F, class Sums>
struct Chunk {
  std::int64_t n;
  F f;

  template <class... Pointers>
  __device__ void operator()(const Team& team, std::int64_t row, double* out, Pointers... in) const {
    Sums sums{};
    const std::int64_t end = n < (row + 1) * kChunk ? n : (row + 1) * kChunk;
    for (std::int64_t i = row * kChunk + threadIdx.x; i < end; i += blockDim.x) sums += f(in[i]...);
    for (int k = 0; k < Sums::kCount; ++k) {
      const double sum = team.combined<scalar::Sum>(sums.of[k]);
      if (team.first()) out[Sums::kCount * row + k] = sum;
    }
  }
};

// Adds up the chunks' sums, each by a team: out [sums].
struct OfChunks {
  std::int64_t chunks, sums;
  __device__ void operator()(const Team& team, std::int64_t sum, double* out, const double* in) const {
    const double all = team.sum(chunks, [=, this](std::int64_t i) { return in[sums * i + sum]; });
    if (team.first()) out[sum] = all;
  }
};

// The first place whose key, in falling order, is -row or less.
struct FirstOfRow {
  const double *keys, *order;
  std::int64_t count;

  PLUMBLINE_HOST_DEVICE double operator()(std::int64_t row) const {
    std::int64_t low = 0, high = count;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (keys[static_cast<std::int64_t>(order[middle])] > -static_cast<double>(row)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return static_cast<double>(low);
  }
};

template <class F>
struct Indicator {
  F f;
  PLUMBLINE_HOST_DEVICE double operator()(double x) const { return f(x) ? 1 : 0; }
};

template <class F>
void fill(Queue& queue, Array& out, const F& f) {
  if (out.count() == 0) return;
  queue.launch("fill", fill_kernel<F>, grid_for(out.count()), out.count(), out.device_write(), f);
}

// A product's elements of work; a term takes a fraction of what others' elements do.
inline std::int64_t work_of_product(const Array& a, const Array& b) {
  constexpr std::int64_t kTermsOfAnElement = 16;
  return std::max(a.count() * b.shape().back(), b.count() * a.shape().end()[-2]) / kTermsOfAnElement;
}

}  // namespace internal

template <class F, class... Arrays>
void map(Array& out, const F& f, const Arrays&... inputs) {
  Queue* const queue = queue_for(out.count(), out, inputs...);
  if (queue != nullptr && internal::map(*queue, false, out, f, inputs...)) return;
  cpu::map(out, f, inputs...);
}

template <class F, class... Arrays>
void map_add(Array& out, const F& f, const Arrays&... inputs) {
  Queue* const queue = queue_for(out.count(), out, inputs...);
  if (queue != nullptr && internal::map(*queue, true, out, f, inputs...)) return;
  cpu::map_add(out, f, inputs...);
}

template <class F, auto kWide, class... Arrays>
void map_wide(Array& out, const Arrays&... inputs) {
  Queue* const queue = queue_for(out.count(), out, inputs...);
  if (queue == nullptr) return cpu::map_wide<F, kWide>(out, inputs...);
  internal::map(*queue, false, out, scalar::Value<F>{}, inputs...);
}

template <class F>
void fill(Array& out, const F& f) {
  Queue* const queue = queue_for(out.count(), out);
  if (queue == nullptr) return cpu::fill(out, f);
  internal::fill(*queue, out, f);
}

inline void decode(Array& out, Format format, const void* bytes) {
  Queue* const queue = queue_for(out.count(), out);
  if (queue == nullptr || traits(format).bytes == 0 || format == Format::kTf32) return cpu::decode(out, format, bytes);
  queue->decode(format, bytes, out.count(), out.device_write());
}

inline void argsort(const Array& x, Array& order) {
  Queue* const queue = queue_for(x.count(), order, x);
  if (queue == nullptr || !argsort(*queue, resident(*queue, x), order)) cpu::argsort(x, order);
}

// Sorted by falling keys -row, and at the end those of no row.
inline void group(const Array& row, Array& start, Array& order) {
  Queue* const queue = queue_for(row.count(), order, row);
  if (queue == nullptr) return cpu::group(row, start, order);
  const double rows = static_cast<double>(start.count() - 1);
  Array keys = Array::uninitialized({1, row.count()});
  map(
      keys, [rows] PLUMBLINE_HOST_DEVICE(double r) { return r < 0 ? -rows : -r; }, row);
  Array sorted = order.reshape({1, order.count()});
  if (!argsort(*queue, keys, sorted)) return cpu::group(row, start, order);
  internal::fill(*queue, start, internal::FirstOfRow{keys.device_read(), order.device_read(), row.count()});
}

template <class Combine, class F, class... Arrays>
void reduce(Array& out, bool accumulate, const Shape& shape, const F& f, const Arrays&... inputs) {
  Queue* const queue = queue_for(plumbline::count(shape), out, inputs...);
  if (queue != nullptr && internal::reduce<Combine>(*queue, out, accumulate, shape, f, inputs...)) return;
  cpu::reduce<Combine>(out, accumulate, shape, f, inputs...);
}

inline Array placed(const Array& out, const Array& x) {
  Queue* const queue = current_queue();
  return queue == nullptr || out.device() != queue ? x : resident(*queue, x);
}

template <class Body, class... Arrays>
void for_each_row(std::int64_t rows, std::int64_t length, Array& out, const Body& body, const Arrays&... inputs) {
  Queue* const queue = queue_for(rows * length, out, inputs...);
  if (queue == nullptr) return cpu::for_each_row(rows, length, out, body, inputs...);
  const Array here[] = {resident(*queue, inputs)...};
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    internal::launch_rows(*queue, rows, length, body, out.device_write(), here[I].device_read()...);
  }
  (std::make_index_sequence<sizeof...(Arrays)>{});
}

namespace internal {

template <class Sums>
Sums sums_of(const double* numbers) {
  Sums sums{};
  std::copy_n(numbers, Sums::kCount, sums.of);
  return sums;
}

// sums [Sums::kCount] = total(f, n, inputs...)
template <class Sums, class F, class... Arrays>
void put_total(Queue& queue, Array& sums, const F& f, std::int64_t n, const Arrays&... inputs) {
  const std::int64_t chunks = (n + kChunk - 1) / kChunk;
  const Array here[] = {resident(queue, inputs)...};
  const Array parts = Array::uninitialized({chunks, Sums::kCount});
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    launch_rows(queue, chunks, kChunk, Chunk<F, Sums>{n, f}, parts.device_write(), here[I].device_read()...);
  }
  (std::make_index_sequence<sizeof...(Arrays)>{});
  launch_rows(queue, Sums::kCount, kChunk, OfChunks{chunks, Sums::kCount}, sums.device_write(), parts.device_read());
}

}  // namespace internal

template <class F, class... Arrays>
auto total(const F& f, std::int64_t n, const Arrays&... inputs) {
  using Found = decltype(cpu::total(f, n, inputs...));
  using Sums = typename Found::Type;
  Queue* const queue = n > 0 ? queue_for_all(n, inputs...) : nullptr;
  if (queue == nullptr) return cpu::total(f, n, inputs...);
  Array sums = Array::uninitialized({Sums::kCount});
  internal::put_total<Sums>(*queue, sums, f, n, inputs...);
  return later(sums, internal::sums_of<Sums>);
}

template <class F, class... Arrays>
auto totals(const F& f, std::int64_t n, const std::vector<Array>& each, const Arrays&... inputs) {
  using Found = typename decltype(cpu::totals(f, n, each, inputs...))::Type;
  using Sums = typename Found::value_type;
  Queue* const queue = each.empty() || n == 0 ? nullptr : queue_for_all(n, each.front(), inputs...);
  if (queue == nullptr) return cpu::totals(f, n, each, inputs...);
  const Array sums = Array::uninitialized({static_cast<std::int64_t>(each.size()), Sums::kCount});
  for (std::size_t k = 0; k < each.size(); ++k) {
    Array one = sums.restride({{Sums::kCount}, {1}, static_cast<std::int64_t>(k) * Sums::kCount});
    internal::put_total<Sums>(*queue, one, f, n, each[k], inputs...);
  }
  return later(sums, [functionals = each.size()](const double* numbers) {
    Found found;
    for (std::size_t k = 0; k < functionals; ++k) found.push_back(internal::sums_of<Sums>(numbers + k * Sums::kCount));
    return found;
  });
}

template <class F>
Array any(const F& f, const Array& x) {
  Array found = Array::uninitialized({});
  if (queue_for(x.count(), found, x) == nullptr) return cpu::any(f, x);
  cuda::reduce<scalar::Max>(found, false, x.shape(), internal::Indicator<F>{f}, x);
  return found;
}

inline void matmul(const Array& a, const Array& b, Array& c, bool accumulate) {
  Queue* const queue = queue_for(internal::work_of_product(a, b), c, a, b);
  if (queue == nullptr) return cpu::matmul(a, b, c, accumulate);
  matmul(*queue, a, b, c, accumulate);
}

inline double matmul_narrow(const Array& a, const Narrow& of_a, const Array& b, const Narrow& of_b, Array& c) {
  Queue* const queue = queue_for(internal::work_of_product(a, b), c, a, b);
  if (queue == nullptr) return cpu::matmul_narrow(a, of_a, b, of_b, c);
  return matmul_narrow(*queue, a, of_a, b, of_b, c);
}

}  // namespace plumbline::cuda
