#include <algorithm>
#include <numeric>

#include "kernels/wide/exponential.h"
#include "kernels/wide/families.h"
#include "kernels/wide/loop.h"

namespace plumbline::wide {
namespace {

// The elements of x, by those that are reduced together.
struct Lines {
  Lines(const WideArray& x, const Dims& dims) : data(x.data()) {
    View kept, reduced;
    for (std::size_t d = 0; d < x.shape().size(); ++d) {
      View& to = std::find(dims.begin(), dims.end(), static_cast<std::int64_t>(d)) == dims.end() ? kept : reduced;
      to.sizes.push_back(x.shape()[d]);
      to.strides.push_back(x.view().strides[d]);
    }
    count = plumbline::count(kept.sizes);
    length = plumbline::count(reduced.sizes);
    between = merged_dimensions<1>(kept.sizes, {&kept});
    along = merged_dimensions<1>(reduced.sizes, {&reduced});
  }

  // use(i, element i) for begin <= i < end of a line, i counting its elements in row-major order.
  template <class Use>
  void walk(std::int64_t line, std::int64_t begin, std::int64_t end, const Use& use) const {
    const Wide* from = data;
    for_each_run<1>(between, line, line + 1,
                    [&](std::int64_t, const std::array<std::int64_t, 1>& offset) { from += offset[0]; });
    const std::int64_t step = along.back().strides[0];
    std::int64_t i = begin;
    for_each_run<1>(along, begin, end, [&](std::int64_t run, const std::array<std::int64_t, 1>& offset) {
      for (std::int64_t j = 0; j < run; ++j, ++i) use(i, from[offset[0] + j * step]);
    });
  }

  // body(line) for all lines.
  template <class Body>
  void for_each(const Body& body) const {
    cpu::parallel_for(count, std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, length)),
                      [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t line = begin; line < end; ++line) body(line);
                      });
  }

  const Wide* data;
  std::int64_t count = 0, length = 0;
  std::vector<Dimension<1>> between, along;
};

constexpr std::int64_t kBlock = 4096;  // Terms that one thread combines, whatever the number of threads.

// Combines, for each line, term(line, x) over its elements.
template <class Term, class Combine>
WideArray reduce(const Lines& lines, const Shape& shape, Wide start, const Term& term, const Combine& combine) {
  const std::int64_t blocks = (lines.length + kBlock - 1) / kBlock, all = lines.count * blocks;
  std::vector<Wide> parts(static_cast<std::size_t>(all), start);
  cpu::parallel_for(all, std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, std::min(kBlock, lines.length))),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t i = begin; i < end; ++i) {
                        const std::int64_t line = i / blocks, first = i % blocks * kBlock;
                        Wide total = start;
                        lines.walk(line, first, std::min(lines.length, first + kBlock),
                                   [&](std::int64_t, Wide x) { total = combine(total, term(line, x)); });
                        parts[static_cast<std::size_t>(i)] = total;
                      }
                    });
  WideArray out = WideArray::uninitialized(shape);
  for (std::int64_t line = 0; line < lines.count; ++line) {
    Wide total = start;
    for (std::int64_t b = 0; b < blocks; ++b)
      total = combine(total, parts[static_cast<std::size_t>(line * blocks + b)]);
    out.data()[line] = total;
  }
  return out;
}

Wide plus(Wide a, Wide b) { return a + b; }
Wide as_it_is(std::int64_t, Wide x) { return x; }
Wide larger(Wide a, Wide b) { return a == a && !(b <= a) ? b : a; }
Wide smaller(Wide a, Wide b) { return a == a && !(b >= a) ? b : a; }

// NaN counts as the largest.
bool falls(Wide a, Wide b) { return a > b || (a != a && b == b); }

}  // namespace

WideArray sum(const WideArray& x, const Dims& dims, const Shape& shape) {
  return reduce(Lines(x, dims), shape, 0, as_it_is, plus);
}

WideArray extreme(const WideArray& x, const Dims& dims, const Shape& shape, bool largest) {
  const Wide infinity = __builtin_inf();
  return reduce(Lines(x, dims), shape, largest ? -infinity : infinity, as_it_is, largest ? larger : smaller);
}

WideArray argmax(const WideArray& x, const Dims& dims, const Shape& shape) {
  const Lines lines(x, dims);
  WideArray out = WideArray::uninitialized(shape);
  lines.for_each([&](std::int64_t line) {
    std::int64_t place = -1;
    Wide most = 0;
    lines.walk(line, 0, lines.length, [&](std::int64_t i, Wide value) {
      if (place >= 0 && !falls(value, most)) return;
      place = i;
      most = value;
    });
    out.data()[line] = static_cast<Wide>(place);
  });
  return out;
}

WideArray argsort(const WideArray& x, std::int64_t dim, const Shape& shape) {
  const Lines lines(x, {dim});
  WideArray out = WideArray::uninitialized(shape);
  const std::int64_t kept = shape[static_cast<std::size_t>(dim)];
  const std::int64_t step = row_major_strides(shape)[static_cast<std::size_t>(dim)];
  lines.for_each([&](std::int64_t line) {
    std::vector<Wide> values(static_cast<std::size_t>(lines.length));
    lines.walk(line, 0, lines.length, [&](std::int64_t i, Wide value) { values[static_cast<std::size_t>(i)] = value; });
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + kept, order.end(), [&](std::size_t a, std::size_t b) {
      return falls(values[a], values[b]) || (!falls(values[b], values[a]) && a < b);
    });
    Wide* const to = out.data() + line / step * step * kept + line % step;
    for (std::int64_t i = 0; i < kept; ++i) to[i * step] = static_cast<Wide>(order[static_cast<std::size_t>(i)]);
  });
  return out;
}

WideArray cumsum(const WideArray& x, std::int64_t dim) {
  const Lines lines(x, {dim});
  WideArray out = WideArray::uninitialized(x.shape());
  const std::int64_t step = row_major_strides(x.shape())[static_cast<std::size_t>(dim)];
  lines.for_each([&](std::int64_t line) {
    Wide* const to = out.data() + line / step * step * lines.length + line % step;
    Wide total = 0;
    lines.walk(line, 0, lines.length, [&](std::int64_t i, Wide value) { to[i * step] = total += value; });
  });
  return out;
}

WideArray variance_rsqrt(const WideArray& x, const Dims& dims, const Shape& shape, Wide eps) {
  const Lines lines(x, dims);
  const auto n = static_cast<Wide>(lines.length);
  const WideArray mean = map(
      shape, [n](Wide total) { return total / n; }, reduce(lines, shape, 0, as_it_is, plus));
  const auto square = [&](std::int64_t line, Wide value) {
    const Wide distance = value - mean.data()[line];
    return distance * distance;
  };
  const WideArray squares = reduce(lines, shape, 0, square, plus);
  return map(
      shape, [n, eps](Wide v) { return 1 / sqrtf128(v / n + eps); }, squares);
}

WideArray norm(const WideArray& x, const Dims& dims, const Shape& shape) {
  const auto square = [](std::int64_t, Wide value) { return value * value; };
  return map(
      shape, [](Wide total) { return sqrtf128(total); }, reduce(Lines(x, dims), shape, 0, square, plus));
}

WideArray softmax(const WideArray& x, bool of_logarithm) {
  const auto rank = static_cast<std::int64_t>(x.shape().size());
  const Lines lines(x, rank == 0 ? Dims{} : Dims{rank - 1});
  WideArray out = WideArray::uninitialized(x.shape());
  cpu::parallel_for(lines.count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      Wide* const to = out.data() + line * lines.length;
      Wide most = -__builtin_inf(), total = 0;
      lines.walk(line, 0, lines.length, [&](std::int64_t, Wide value) { most = larger(most, value); });
      lines.walk(line, 0, lines.length, [&](std::int64_t i, Wide value) {
        const Wide e = exponential(value - most);
        total += e;
        to[i] = of_logarithm ? value - most : e;
      });
      const Wide logarithm = of_logarithm ? logf128(total) : 0;
      for (std::int64_t i = 0; i < lines.length; ++i) to[i] = of_logarithm ? to[i] - logarithm : to[i] / total;
    }
  });
  return out;
}

}  // namespace plumbline::wide
