#include "kernels/cpu/overlap.h"
#include "kernels/device.h"
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

// Whether the elements lie from each other as far as the view's do.
bool lies_as(const View& view, const Array& x) {
  for (std::size_t d = 0; d < view.sizes.size(); ++d)
    if (view.sizes[d] != 1 && view.strides[d] != x.strides()[d]) return false;
  return true;
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
    loop::reduce<scalar::Sum>(summed, false, values.shape(), loop::Copy{}, values);
  }
  if (current_device() == nullptr && cpu::overlaps_in_parts(distinct))
    return cpu::add_overlapping(flat.data() + distinct.offset, distinct, summed);
  // Slices of the view that do not run into each other, one after the other: the shortest dimensions that step into
  // another's extent are taken index by index.
  View slice = distinct;
  std::vector<std::size_t> taken;
  while (!is_injective(slice)) {
    std::size_t shortest = slice.sizes.size();
    for (std::size_t d = 0; d < slice.sizes.size(); ++d) {
      if (slice.sizes[d] > 1 && (shortest == slice.sizes.size() || slice.sizes[d] <= slice.sizes[shortest]))
        shortest = d;
    }
    slice.sizes[shortest] = 1;
    taken.push_back(shortest);
  }
  View of_values{slice.sizes, summed.strides(), 0};
  std::int64_t slices = 1;
  for (const std::size_t d : taken) slices *= distinct.sizes[d];
  for (std::int64_t s = 0; s < slices; ++s) {
    View to = slice;
    View from = of_values;
    std::int64_t rest = s;
    for (const std::size_t d : taken) {
      to.offset += rest % distinct.sizes[d] * distinct.strides[d];
      from.offset += rest % distinct.sizes[d] * summed.strides()[d];
      rest /= distinct.sizes[d];
    }
    Array window = flat.window(to);
    loop::map_add(window, loop::Copy{}, summed.restride(from));
  }
}

void pull_back_window(const Attributes& attributes, Inputs in, const Array&, const Array& cotangent,
                      std::span<Array* const> into) {
  if (!into[0]) return;
  const Shape& shape = in[0].shape();
  const View& view = attributes.view;
  const bool covers = cotangent.count() == in[0].count() && is_injective(view);
  if (!*into[0] && covers && in[0].count() > 0 && view.offset == 0 && lies_as(view, cotangent)) {
    *into[0] = cotangent.restride({shape, row_major_strides(shape), 0});  // As the operand lies: shared.
    return;
  }
  if (!*into[0] && covers) {  // A permutation: every element is written once.
    *into[0] = Array::uninitialized(shape);
    Array window = into[0]->window(view);
    loop::map(window, loop::Copy{}, cotangent);
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
    loop::map(out, loop::Copy{}, in[0].reshape(shape));
  } else if (!whole) {
    out = Array::zeros(shape);
  }
  for (std::size_t p = 0; p + first < in.size(); ++p) {
    Array window = out.window(attributes.views[p]);
    if (is_injective(attributes.views[p])) {
      loop::map(window, loop::Copy{}, in[p + first]);
    } else {
      cpu::map(
          window, [](double x) { return x; }, in[p + first]);  // In row-major order, unlike a copy.
    }
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
  loop::map(rest, loop::Copy{}, cotangent);
  for (std::size_t p = attributes.views.size(); p-- > 0;) {
    const View& view = attributes.views[p];
    Array window = rest.window(view);
    if (Array* const target = into[p + first]) {
      contribute(*target, in[p + first].shape(), loop::Copy{}, window);
    }
    loop::map(
        window, [] PLUMBLINE_HOST_DEVICE(double) { return 0.0; }, window);
  }
  if (attributes.has_base && into[0]) contribute_array(*into[0], rest.reshape(in[0].shape()));
}

// Row of an index, or -1 where it names none.
PLUMBLINE_HOST_DEVICE inline std::int64_t row_of(double index, std::int64_t rows) {
  return index >= 0 && index < static_cast<double>(rows) ? static_cast<std::int64_t>(index) : -1;
}

std::int64_t row_length(const Array& table) { return table.shape().size() < 2 ? 1 : table.shape()[1]; }

// Pieces of rows, one piece of all rows after the other: where the table's neighbours are in its columns, as those of a
// transposed matrix are, what is read together stays near.
struct Gather {
  std::int64_t rows, taken, length, piece, to_row, to_element;
  double outside;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t i, double* out, const double* table,
                                const double* index) const {
    const std::int64_t at = i % taken, row = row_of(index[at], rows), begin = i / taken * piece;
    double* const to = out + at * length + begin;
    const double* const from = table + (row < 0 ? 0 : row) * to_row + begin * to_element;
    const double none = outside;
    const std::int64_t step = to_element;
    team.each(begin + piece < length ? piece : length - begin,
              [=](std::int64_t j) { to[j] = row < 0 ? none : from[j * step]; });
  }
};

// An index outside the table reads `outside`.
Array gather(const Array& table, const Array& index, const Shape& shape, double outside) {
  constexpr std::int64_t kPiece = 512;
  Array out = Array::uninitialized(shape);
  const std::int64_t rows = table.shape()[0], length = row_length(table), taken = index.count();
  const Array placed = loop::placed(out, table.reshape({rows, length}));
  const std::int64_t pieces = (length + kPiece - 1) / kPiece, piece = pieces > 0 ? (length + pieces - 1) / pieces : 0;
  loop::for_each_row(taken * pieces, piece, out,
                     Gather{rows, taken, length, piece, placed.strides()[0], placed.strides()[1], outside}, placed,
                     index.materialize());
  return out;
}

// Which source rows each row of the result takes: those at order[start[row]], order[start[row] + 1], ..., in order.
struct Taken {
  Array start, order;
};

Taken sorted_by_row(const Array& index, std::int64_t rows) {
  Taken taken{Array::uninitialized({rows + 1}), Array::uninitialized({index.count()})};
  Array row = Array::uninitialized({index.count()});
  loop::map(
      row, [rows] PLUMBLINE_HOST_DEVICE(double i) { return static_cast<double>(row_of(i, rows)); }, index);
  loop::group(row, taken.start, taken.order);
  return taken;
}

struct Scatter {
  std::int64_t d;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t row, double* out, const double* source,
                                const double* start, const double* order) const {
    const auto first = static_cast<std::int64_t>(start[row]), last = static_cast<std::int64_t>(start[row + 1]);
    double* const to = out + row * d;
    for (std::int64_t i = first; i < last; ++i) {
      const double* const from = source + static_cast<std::int64_t>(order[i]) * d;
      team.each(d, [=](std::int64_t j) { to[j] += from[j]; });
    }
  }
};

// into[index[i]] += source[i], in the order of i.
void scatter(const Array& source, const Array& index, Array& into) {
  const std::int64_t d = row_length(source), rows = into.shape()[0];
  const Taken taken = sorted_by_row(index.reshape({index.count()}), rows);
  loop::for_each_row(rows, d * (1 + index.count() / std::max<std::int64_t>(1, rows)), into, Scatter{d},
                     source.materialize(), taken.start, taken.order);
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
