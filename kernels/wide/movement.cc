#include <algorithm>
#include <numeric>

#include "kernels/wide/families.h"
#include "kernels/wide/loop.h"

namespace plumbline::wide {
namespace {

// Row of an index, or -1 where it names none.
std::int64_t row_of(Wide index, std::int64_t rows) {
  return index >= 0 && index < static_cast<Wide>(rows) ? static_cast<std::int64_t>(index) : -1;
}

std::int64_t row_length(const WideArray& table) { return table.shape().size() < 2 ? 1 : table.shape()[1]; }

}  // namespace

// Later pieces overwrite earlier ones; within a piece, too, the last write to an element stays.
WideArray assemble(const Attributes& attributes, const Shape& shape, Inputs in) {
  const std::size_t first = attributes.has_base ? 1 : 0;
  WideArray out = WideArray::uninitialized(shape);
  if (attributes.has_base) {
    map_to(
        out.data(), shape, [](Wide x) { return x; }, operand(in[0].reshape(shape)));
  } else {
    std::fill_n(out.data(), out.count(), Wide(0));
  }
  for (std::size_t p = 0; p + first < in.size(); ++p) {
    const View& to = attributes.views[p];
    const Operand<Wide> piece = operand(in[p + first]);
    const auto dims = merged_dimensions<2>(to.sizes, {&to, &piece.view});
    const auto& step = dims.back().strides;
    Wide* const base = out.data() + to.offset;
    for_each_run<2>(dims, 0, count(to.sizes), [&](std::int64_t length, const std::array<std::int64_t, 2>& at) {
      for (std::int64_t i = 0; i < length; ++i) base[at[0] + i * step[0]] = piece.data[at[1] + i * step[1]];
    });
  }
  return out;
}

// An index outside the table reads NaN.
WideArray gather_rows(const WideArray& table, const WideArray& index, const Shape& shape) {
  const WideArray from = table.materialize(), rows = index.materialize();
  const std::int64_t d = row_length(table), n = rows.count();
  WideArray out = WideArray::uninitialized(shape);
  cpu::parallel_for(n, std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, d)),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t i = begin; i < end; ++i) {
                        const std::int64_t row = row_of(rows.data()[i], table.shape()[0]);
                        if (row < 0)
                          std::fill_n(out.data() + i * d, d, static_cast<Wide>(__builtin_nan("")));
                        else
                          std::copy_n(from.data() + row * d, d, out.data() + i * d);
                      }
                    });
  return out;
}

WideArray scatter_add(const WideArray& source, const WideArray& index, const Shape& shape) {
  const WideArray from = source.materialize(), at = index.materialize();
  const std::int64_t d = row_length(source), rows = shape[0], n = at.count();
  // The source rows of each row of the result, in order.
  std::vector<std::int64_t> start(static_cast<std::size_t>(rows) + 2, 0), order(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    if (const std::int64_t row = row_of(at.data()[i], rows); row >= 0) ++start[static_cast<std::size_t>(row) + 2];
  std::partial_sum(start.begin(), start.end(), start.begin());
  for (std::int64_t i = 0; i < n; ++i)
    if (const std::int64_t row = row_of(at.data()[i], rows); row >= 0)
      order[static_cast<std::size_t>(start[static_cast<std::size_t>(row) + 1]++)] = i;
  WideArray out = WideArray::uninitialized(shape);
  std::fill_n(out.data(), out.count(), Wide(0));
  const std::int64_t of_a_row = std::max<std::int64_t>(1, d * (1 + n / std::max<std::int64_t>(1, rows)));
  cpu::parallel_for(rows, std::max<std::int64_t>(1, kGrain / of_a_row), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      Wide* const to = out.data() + row * d;
      const auto r = static_cast<std::size_t>(row);
      for (std::int64_t i = start[r]; i < start[r + 1]; ++i) {
        const Wide* const added = from.data() + order[static_cast<std::size_t>(i)] * d;
        for (std::int64_t j = 0; j < d; ++j) to[j] += added[j];
      }
    }
  });
  return out;
}

}  // namespace plumbline::wide
