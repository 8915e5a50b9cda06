#include <algorithm>
#include <numeric>

#include "kernels/primitive/error_model.h"
#include "kernels/primitive/noise.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

template <class Combine>
Array evaluate_reduce(const Attributes& attributes, const Shape& shape, Inputs in) {
  Array out = Array::uninitialized(reduced_shape(in[0].shape(), attributes.dims));
  cpu::reduce<Combine>(out, false, in[0].shape(), cpu::Copy{}, in[0]);
  return out.reshape(shape);
}

void pull_back_sum(const Attributes& attributes, Inputs in, const Array&, const Array& cotangent,
                   std::span<Array* const> into) {
  if (!into[0]) return;
  contribute(*into[0], in[0].shape(), cpu::Copy{}, cotangent.reshape(reduced_shape(in[0].shape(), attributes.dims)));
}

// One line of the input along one dimension or several, visited for each element of the reduced result.
struct Lines {
  std::vector<cpu::Dimension<2>> outer;  // Operands: result, input.
  std::vector<cpu::Dimension<2>> inner;  // Input strides only; in row-major order of the reduced dimensions.
  std::int64_t outer_count = 1, inner_count = 1;
};

Lines lines_of(const Array& x, const std::vector<std::int64_t>& dims) {
  Lines lines;
  const Shape out_strides = row_major_strides(reduced_shape(x.shape(), dims));
  std::size_t next = 0;
  for (std::size_t d = 0; d < x.shape().size(); ++d) {
    const bool is_reduced = next < dims.size() && dims[next] == static_cast<std::int64_t>(d);
    if (is_reduced) ++next;
    (is_reduced ? lines.inner : lines.outer)
        .push_back({x.shape()[d], {is_reduced ? 0 : out_strides[d], x.strides()[d]}});
    (is_reduced ? lines.inner_count : lines.outer_count) *= x.shape()[d];
  }
  if (lines.outer.empty()) lines.outer.push_back({1, {}});
  if (lines.inner.empty()) lines.inner.push_back({1, {}});
  return lines;
}

// body(result offset, input offset) for each line.
template <class Body>
void for_each_line(const Lines& lines, const Body& body) {
  const std::int64_t grain = std::max<std::int64_t>(1, cpu::kGrain / std::max<std::int64_t>(1, lines.inner_count));
  cpu::parallel_for(lines.outer_count, grain, [&](std::int64_t begin, std::int64_t end) {
    cpu::for_each_run<2>(lines.outer, begin, end, [&](std::int64_t n, const std::array<std::int64_t, 2>& at) {
      for (std::int64_t j = 0; j < n; ++j) {
        body(at[0] + j * lines.outer.back().strides[0], at[1] + j * lines.outer.back().strides[1]);
      }
    });
  });
}

// Position (in row-major order of the reduced dimensions) and offset of the first element equal to the extreme.
struct Found {
  std::int64_t position = -1, offset = 0;
};

Found find_first(const Lines& lines, const double* line, double wanted) {
  Found found;
  std::int64_t position = 0;
  cpu::for_each_run<2>(lines.inner, 0, lines.inner_count, [&](std::int64_t n, const std::array<std::int64_t, 2>& at) {
    for (std::int64_t j = 0; found.position < 0 && j < n; ++j) {
      const std::int64_t offset = at[1] + j * lines.inner.back().strides[1];
      if (line[offset] == wanted || (wanted != wanted && line[offset] != line[offset])) found = {position + j, offset};
    }
    position += n;
  });
  return found;
}

Array evaluate_argmax(const Attributes& attributes, const Shape& shape, Inputs in) {
  Array out = evaluate_reduce<cpu::Max>(attributes, shape, in);
  const Lines lines = lines_of(in[0], attributes.dims);
  double* const to = out.data();
  for_each_line(lines, [&](std::int64_t result, std::int64_t input) {
    to[result] = static_cast<double>(find_first(lines, in[0].data() + input, to[result]).position);
  });
  return out;
}

// NaN counts as the largest.
bool falls(double a, double b) { return a > b || (a != a && b == b); }

Array evaluate_argsort(const Attributes& attributes, const Shape& shape, Inputs in) {
  const Array x = in[0].materialize();
  const auto dim = static_cast<std::size_t>(attributes.dims[0]);
  const std::int64_t length = x.shape()[dim], kept = shape[dim], step = row_major_strides(x.shape())[dim];
  Array out = Array::uninitialized(shape);
  const std::int64_t lines = length == 0 ? 0 : x.count() / length;
  cpu::parallel_for(lines, std::max<std::int64_t>(1, cpu::kGrain / std::max<std::int64_t>(1, length)),
                    [&](std::int64_t begin, std::int64_t end) {
                      std::vector<std::int64_t> order(static_cast<std::size_t>(length));
                      for (std::int64_t line = begin; line < end; ++line) {
                        const double* const from = x.data() + line / step * step * length + line % step;
                        double* const to = out.data() + line / step * step * kept + line % step;
                        std::iota(order.begin(), order.end(), 0);
                        std::partial_sort(order.begin(), order.begin() + kept, order.end(),
                                          [&](std::int64_t a, std::int64_t b) {
                                            const double u = from[a * step], v = from[b * step];
                                            return falls(u, v) || (!falls(v, u) && a < b);
                                          });
                        for (std::int64_t i = 0; i < kept; ++i)
                          to[i * step] = static_cast<double>(order[static_cast<std::size_t>(i)]);
                      }
                    });
  return out;
}

// The first of equal extremes takes all.
void pull_back_extreme(const Attributes& attributes, Inputs in, const Array& out, const Array& cotangent,
                       std::span<Array* const> into) {
  if (!into[0]) return;
  const Array x = in[0].materialize();
  const Array g = cotangent.materialize();
  const Array t = out.materialize();
  make_writable(*into[0], x.shape());
  double* const to = into[0]->data();
  const Lines lines = lines_of(x, attributes.dims);
  for_each_line(lines, [&](std::int64_t result, std::int64_t input) {
    const Found found = find_first(lines, x.data() + input, t.data()[result]);
    if (found.position >= 0) to[input + found.offset] += g.data()[result];
  });
}

void pull_back_none(const Attributes&, Inputs, const Array&, const Array&, std::span<Array* const>) {}

// Running sums along one dimension; `add` on top of what is there; from the far end when `reverse`.
void cumulate(const Array& from, std::int64_t dim, bool reverse, bool add, Array& to) {
  const Array x = from.materialize();
  const auto d = static_cast<std::size_t>(dim);
  const std::int64_t length = x.shape()[d];
  const std::int64_t step = row_major_strides(x.shape())[d];
  if (x.count() == 0) return;
  const double* const source = x.data();
  double* const target = to.data();
  cpu::parallel_for(x.count() / length, std::max<std::int64_t>(1, cpu::kGrain / length),
                    [=](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t line = begin; line < end; ++line) {
                        const std::int64_t base = line / step * step * length + line % step;
                        double total = 0;
                        for (std::int64_t i = 0; i < length; ++i) {
                          const std::int64_t at = base + (reverse ? length - 1 - i : i) * step;
                          total += source[at];
                          target[at] = add ? target[at] + total : total;
                        }
                      }
                    });
}

Array evaluate_cumsum(const Attributes& attributes, const Shape& shape, Inputs in) {
  Array out = Array::uninitialized(shape);
  if (shape.empty()) return in[0];
  cumulate(in[0], attributes.dims[0], false, false, out);
  return out;
}

void pull_back_cumsum(const Attributes& attributes, Inputs in, const Array&, const Array& cotangent,
                      std::span<Array* const> into) {
  if (!into[0]) return;
  if (in[0].shape().empty()) return contribute_array(*into[0], cotangent);
  const bool add = static_cast<bool>(*into[0]);
  if (add) {
    make_writable(*into[0], in[0].shape());
  } else {
    *into[0] = Array::uninitialized(in[0].shape());
  }
  cumulate(cotangent, attributes.dims[0], true, add, *into[0]);
}

using enum Primitive;

constexpr PrimitiveTraits kRows[] = {
    {kSum, "sum", 1, false, evaluate_reduce<cpu::Sum>, pull_back_sum, error_sum, radius_sum, noise_sum},
    {kAmax, "amax", 1, true, evaluate_reduce<cpu::Max>, pull_back_extreme, error_none, radius_extreme},
    {kAmin, "amin", 1, true, evaluate_reduce<cpu::Min>, pull_back_extreme, error_none, radius_extreme},
    {kArgmax, "argmax", 1, true, evaluate_argmax, pull_back_none, error_none, radius_argmax},
    {kArgsort, "argsort", 1, true, evaluate_argsort, pull_back_none, error_none, radius_argsort},
    {kCumsum, "cumsum", 1, false, evaluate_cumsum, pull_back_cumsum, error_cumsum, radius_cumsum},
};

}  // namespace

std::span<const PrimitiveTraits> reduction_rows() { return kRows; }

}  // namespace plumbline::primitive
