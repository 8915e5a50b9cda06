#include "kernels/primitive/error_model.h"
#include "kernels/primitive/noise.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

// True when no two indices of the view read the same element (sufficient: each dimension steps over the extent of all
// finer ones).
bool is_injective(const View& view) {
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < view.sizes.size(); ++d) {
    if (view.sizes[d] > 1) order.push_back(d);
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return view.strides[a] < view.strides[b]; });
  std::int64_t extent = 0;
  for (const std::size_t d : order) {
    if (view.strides[d] <= extent) return false;
    extent += (view.sizes[d] - 1) * view.strides[d];
  }
  return true;
}

// Without its zero-stride dimensions (which become size 1).
View without_repeats(const View& view, bool& repeats) {
  View result = view;
  repeats = false;
  for (std::size_t d = 0; d < result.sizes.size(); ++d) {
    if (result.strides[d] == 0 && result.sizes[d] > 1) {
      result.sizes[d] = 1;
      repeats = true;
    }
  }
  return result;
}

Array evaluate_window(const Attributes& attributes, const Shape&, Inputs in) {
  return in[0].materialize().window(attributes.view);
}

// flat[view] += values, element after element where elements of the view coincide.
void add_through(Array& flat, const View& view, const Array& values) {
  bool repeats = false;
  const View distinct = without_repeats(view, repeats);
  Array summed = values;
  if (repeats) {
    summed = Array::uninitialized(distinct.sizes);
    cpu::reduce<cpu::Sum>(summed, false, values.shape(), cpu::Copy{}, values);
  }
  Array window = flat.window(distinct);
  if (is_injective(distinct)) {
    cpu::map_add(window, cpu::Copy{}, summed);
    return;
  }
  const View window_view = cpu::view_of(window);
  const View summed_view = cpu::view_of(summed);
  const auto dims = cpu::merged_dimensions<2>(distinct.sizes, {&window_view, &summed_view});
  cpu::for_each_run<2>(dims, 0, summed.count(), [&](std::int64_t n, const std::array<std::int64_t, 2>& at) {
    for (std::int64_t j = 0; j < n; ++j) {
      window.data()[at[0] + j * dims.back().strides[0]] += summed.data()[at[1] + j * dims.back().strides[1]];
    }
  });
}

void pull_back_window(const Attributes& attributes, Inputs in, const Array&, const Array& cotangent,
                      std::span<Array* const> into) {
  if (!into[0]) return;
  const Shape& shape = in[0].shape();
  const View& view = attributes.view;
  const bool covers = cotangent.count() == in[0].count() && is_injective(view);
  if (!*into[0] && covers && cotangent.contiguous() && in[0].count() > 0 &&
      Array(cotangent).window(view).contiguous() && view.offset == 0) {
    *into[0] = cotangent.reshape(shape);  // A mere reshape: shared.
    return;
  }
  if (!*into[0] && covers) {  // A permutation: every element is written once.
    *into[0] = Array::uninitialized(shape);
    Array window = into[0]->window(view);
    cpu::map(window, cpu::Copy{}, cotangent);
    return;
  }
  make_writable(*into[0], shape);
  add_through(*into[0], view, cotangent);
}

// Later pieces overwrite earlier ones; within a piece, too, the last write to an element stays.
Array evaluate_assemble(const Attributes& attributes, const Shape& shape, Inputs in) {
  const std::size_t first = attributes.has_base ? 1 : 0;
  bool whole = false;
  for (const View& view : attributes.views) whole = whole || (count(view.sizes) == count(shape) && is_injective(view));
  Array out = Array::uninitialized(shape);
  if (attributes.has_base) {
    cpu::map(out, cpu::Copy{}, in[0].reshape(shape));
  } else if (!whole) {
    out = Array::zeros(shape);
  }
  for (std::size_t p = 0; p + first < in.size(); ++p) {
    Array window = out.window(attributes.views[p]);
    cpu::map(window, cpu::Copy{}, in[p + first]);
  }
  return out;
}

// A piece takes the cotangent of the elements where it had the last word, the base that of those nobody wrote.
void pull_back_assemble(const Attributes& attributes, Inputs in, const Array&, const Array& cotangent,
                        std::span<Array* const> into) {
  const std::size_t first = attributes.has_base ? 1 : 0;
  bool later_needed = attributes.has_base && into[0];
  for (std::size_t p = first; p < in.size(); ++p) later_needed = later_needed || into[p];
  if (!later_needed) return;
  Array rest = Array::uninitialized(cotangent.shape());
  cpu::map(rest, cpu::Copy{}, cotangent);
  for (std::size_t p = attributes.views.size(); p-- > 0;) {
    const View& view = attributes.views[p];
    Array window = rest.window(view);
    if (Array* const target = into[p + first]) {
      contribute(*target, in[p + first].shape(), cpu::Copy{}, window);
    }
    cpu::map(
        window, [](double) { return 0.0; }, window);
  }
  if (attributes.has_base && into[0]) contribute_array(*into[0], rest.reshape(in[0].shape()));
}

// Row of an index, or -1 where it names none.
std::int64_t row_of(double index, std::int64_t rows) {
  return index >= 0 && index < static_cast<double>(rows) ? static_cast<std::int64_t>(index) : -1;
}

std::int64_t row_length(const Array& table) { return table.shape().size() < 2 ? 1 : table.shape()[1]; }

// An index outside the table reads NaN.
Array gather(const Array& table_in, const Array& index_in, const Shape& shape, double outside) {
  const Array table = table_in.materialize();
  const Array index = index_in.materialize();
  Array out = Array::uninitialized(shape);
  const std::int64_t rows = table.shape()[0];
  const std::int64_t d = row_length(table);
  cpu::parallel_for(index.count(), std::max<std::int64_t>(1, cpu::kGrain / std::max<std::int64_t>(1, d)),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t i = begin; i < end; ++i) {
                        const std::int64_t row = row_of(index.data()[i], rows);
                        double* const to = out.data() + i * d;
                        if (row < 0) {
                          std::fill(to, to + d, outside);
                        } else {
                          std::copy(table.data() + row * d, table.data() + (row + 1) * d, to);
                        }
                      }
                    });
  return out;
}

// into[index[i]] += source[i], serial over rows and parallel over columns: equal indices never race.
void scatter(const Array& source_in, const Array& index_in, Array& into) {
  const Array source = source_in.materialize();
  const Array index = index_in.materialize();
  const std::int64_t d = row_length(source);
  const std::int64_t rows = into.shape()[0];
  const std::int64_t n = index.count();
  cpu::parallel_for(d, std::max<std::int64_t>(8, cpu::kGrain / std::max<std::int64_t>(1, n)),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t i = 0; i < n; ++i) {
                        const std::int64_t row = row_of(index.data()[i], rows);
                        if (row < 0) continue;
                        const double* const from = source.data() + i * d;
                        double* const to = into.data() + row * d;
                        for (std::int64_t j = begin; j < end; ++j) to[j] += from[j];
                      }
                    });
}

Array evaluate_gather_rows(const Attributes&, const Shape& shape, Inputs in) {
  return gather(in[0], in[1], shape, std::numeric_limits<double>::quiet_NaN());
}

void pull_back_gather_rows(const Attributes&, Inputs in, const Array&, const Array& cotangent,
                           std::span<Array* const> into) {
  if (!into[0]) return;
  make_writable(*into[0], in[0].shape());
  scatter(cotangent, in[1], *into[0]);
}

Array evaluate_scatter_add(const Attributes&, const Shape& shape, Inputs in) {
  Array out = Array::zeros(shape);
  scatter(in[0], in[1], out);
  return out;
}

void pull_back_scatter_add(const Attributes&, Inputs in, const Array&, const Array& cotangent,
                           std::span<Array* const> into) {
  if (into[0]) contribute_array(*into[0], gather(cotangent, in[1], in[0].shape(), 0.0));
}

using enum Primitive;

constexpr PrimitiveTraits kRows[] = {
    {kWindow, "window", 1, true, evaluate_window, pull_back_window, error_none, radius_window},
    {kAssemble, "assemble", -1, true, evaluate_assemble, pull_back_assemble, error_none, radius_assemble},
    {kGatherRows, "gather_rows", 2, true, evaluate_gather_rows, pull_back_gather_rows, error_none, radius_gather_rows},
    {kScatterAdd, "scatter_add", 2, false, evaluate_scatter_add, pull_back_scatter_add, error_scatter_add,
     radius_scatter_add, noise_scatter_add},
};

}  // namespace

std::span<const PrimitiveTraits> movement_rows() { return kRows; }

}  // namespace plumbline::primitive
