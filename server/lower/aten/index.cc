// Reading and adding by index (ATen: native/Embedding.cpp, native/TensorAdvancedIndexing.cpp).
#include <algorithm>
#include <limits>

#include "server/lower/aten/rows.h"
#include "server/lower/mask.h"
#include "server/lower/registry.h"

namespace plumbline {
Expr accumulated(Expr x, Expr source, Expr index, Format format) {
  Emitter& emitter = *x.emitter;
  const std::int64_t rows = x.size(0), n = source.size(0), width = x.size(1);
  const auto joined = [&](Expr first, Expr second, std::int64_t d, Format of) {
    const View head{{rows, d}, {d, 1}, 0}, tail{{n, d}, {d, 1}, rows * d};
    return assemble(emitter, {rows + n, d}, std::nullopt, {first, second}, {head, tail}, of);
  };
  const Expr own = iota(emitter, {rows, 1}, 0, 1, Format::kInt64), added = reshape(cast(index, Format::kInt64), {n, 1});
  return scatter_add(joined(cast(x, format), cast(source, format), width, format),
                     reshape(joined(own, added, 1, Format::kInt64), {rows + n}), rows, format);
}

namespace {

// A number alone, as a row of one.
Expr row(Expr x) { return x.rank() == 0 ? reshape(x, {1}) : x; }

// Evaluates `make` with integer arithmetic.
template <class Make>
Expr in_integers(Emitter& emitter, Make make) {
  const Format outer = emitter.compute();
  emitter.set_compute(Format::kInt64);
  const Expr made = make();
  emitter.set_compute(outer);
  return made;
}

Expr column(Expr x) { return reshape(x, {x.count(), 1}); }
Expr flat(Expr x) { return reshape(x, {x.count()}); }

// index, with negative ones counted from the end.
Expr wrapped_index(Expr index, std::int64_t size) {
  return select(index < 0.0, index + static_cast<double>(size), index);
}

// Row-major position, in an array of `sizes`, of the element whose coordinate along `dim` is `index` and whose other
// coordinates are index's own.
Expr position_along(Emitter& emitter, const Shape& sizes, std::size_t dim, Expr index) {
  return in_integers(emitter, [&] {
    const Shape strides = row_major_strides(sizes), shape = index.shape();
    Expr position = index * static_cast<double>(strides[dim]);
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      if (d == dim || shape[d] == 1) continue;
      Shape along(sizes.size(), 1);
      along[d] = shape[d];
      position = position + iota(emitter, along, 0, static_cast<double>(strides[d]), Format::kInt64);
    }
    return position;
  });
}

void lower_embedding(Call& call) {
  const Expr table = call.tensor("weight"), index = call.tensor("indices");
  if (table.rank() != 2) call.unsupported("shape of weight");
  Shape shape = index.shape();
  shape.push_back(table.size(1));
  call.returns(reshape(gather_rows(table, flat(index)), shape));
}

void lower_embedding_dense_backward(Call& call) {
  const Expr gradient = call.tensor("grad_output");
  Expr index = flat(call.tensor("indices"));
  if (call.boolean("scale_grad_by_freq", false)) call.unsupported("scale_grad_by_freq");
  const std::int64_t rows = call.integer("num_weights", 0), padding = call.integer("padding_idx", -1);
  if (gradient.rank() == 0) call.unsupported("shape of grad_output");
  const std::int64_t width = gradient.size(gradient.rank() - 1);
  if (padding >= 0)
    index = in_integers(call.emitter(), [&] {
      return select(equal(index, static_cast<double>(padding)), call.emitter().constant(-1), index);
    });
  // Rows are added one after the other in the result's own format.
  call.returns(scatter_add(reshape(gradient, {index.count(), width}), index, rows, call.result_format()));
}

// Rows along `dim` chosen by a vector.
void lower_index_select(Call& call) {
  const Expr x = row(call.tensor("self")), index = flat(call.tensor("index"));
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  const Expr front = exchanged(x, 0, dim);
  Shape shape = front.shape();
  const std::int64_t rows = shape[0];
  if (rows == 0) call.unsupported("no rows");
  const Expr chosen = gather_rows(reshape(front, {rows, x.count() / rows}), index);
  shape[0] = index.count();
  call.returns(reshape(exchanged(reshape(chosen, shape), 0, dim), call.result_shape()));
}

void lower_gather(Call& call) {
  const Expr x = row(call.tensor("self")), index = row(call.tensor("index"));
  if (index.rank() != x.rank()) call.unsupported("shapes");
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  const Expr position = position_along(call.emitter(), x.shape(), dim, index);
  call.returns(reshape(gather_rows(column(x), flat(position)), call.result_shape()));
}

// `source` where it is indexed, added up in `format`; in the shape of `like`.
Expr scattered(Expr like, Expr source, Expr position, Format format) {
  return reshape(scatter_add(column(source), flat(position), like.count(), format), like.shape());
}

// The same with single elements at `position`.
Expr accumulated_elements(Expr x, Expr source, Expr position, Format format) {
  return reshape(accumulated(column(x), column(source), flat(position), format), x.shape());
}

// How many positions name each of so many elements. Counted in integers, so that whether any does is no decision on
// numbers that may be off.
Expr named_times(Emitter& emitter, Expr position, std::int64_t elements) {
  return in_integers(emitter, [&] {
    const Expr ones = expand(emitter.constant(1), {position.count(), 1});
    return scatter_add(ones, flat(position), elements, Format::kInt64);
  });
}

Expr above(Emitter& emitter, Expr times, double number) {
  return in_integers(emitter, [&] { return times > number; });
}

// source cut to index's shape.
Expr cut(Expr source, const Shape& shape) {
  for (std::size_t d = 0; d < shape.size(); ++d) source = narrow(source, d, 0, shape[d]);
  return source;
}

void lower_scatter_add(Call& call) {
  const Expr x = row(call.tensor("self")), index = row(call.tensor("index")), source = row(call.tensor("src"));
  if (index.rank() != x.rank() || source.rank() != x.rank()) call.unsupported("shapes");
  const Expr position = position_along(call.emitter(), x.shape(), call.dim("dim", x.rank(), 0), index);
  const Expr sums = accumulated_elements(x, cut(source, index.shape()), position, call.emitter().compute());
  call.returns(reshape(sums, call.result_shape()));
}

// Comparisons of every index with every place that it may name.
constexpr std::int64_t kComparisonsMax = 1 << 22;
// Factors that are multiplied one after the other.
constexpr std::int64_t kFactorsMax = 256;

// What elements of x become by those of `source` whose index, along `dim`, names them; all three have the same size
// but along it. Sums and how many they are of are `held` so.
Expr reduced_into(Call& call, Expr x, Expr source, Expr index, std::size_t dim, Format held) {
  Emitter& emitter = call.emitter();
  const std::string how = call.text("reduce", "");
  const bool with_self = call.boolean("include_self", true);
  const std::int64_t places = x.size(dim), n = index.size(dim);
  if (places * index.count() > kComparisonsMax || index.count() == 0) call.unsupported("so many comparisons");
  Shape spread = index.shape(), along(spread.size() + 1, 1), column = x.shape();
  spread.insert(spread.begin() + static_cast<std::ptrdiff_t>(dim), 1);
  along[dim] = places;
  column.insert(column.begin() + static_cast<std::ptrdiff_t>(dim) + 1, 1);
  // [..., places, n, ...]: whether the index names the place.
  const Expr named = in_integers(emitter, [&] {
    return compare(Primitive::kEqual, reshape(index, spread), iota(emitter, along, 0, 1, Format::kInt64));
  });
  const auto over = static_cast<std::int64_t>(dim) + 1;
  const Expr terms = reshape(source, spread), self = reshape(x, column);
  const Expr counts = in_integers(emitter, [&] { return sum(cast(named, Format::kInt64), {over}); });
  const Expr untouched = in_integers(emitter, [&] { return equal(counts, 0); });
  const Expr hits = cast(counts, Format::kFloat64);
  const auto where_named = [&](double otherwise) {
    return select(named, terms, emitter.constant(otherwise, x.format()));
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Expr made = self;
  if (how == "sum" || how == "mean") {
    Expr times = hits;
    {
      const ComputeIn sums(emitter, held);
      made = sum(where_named(0), {over});
      if (held == x.format()) times = sum(cast(named, held), {over});
      if (with_self) made = made + self;
      if (with_self) times = times + 1.0;
    }
    made = cast(made, x.format());
    if (how == "mean") made = made / maximum(times, emitter.constant(1));
  } else if (how == "amax" || how == "amin") {
    const bool largest = how == "amax";
    made = reduce(largest ? Primitive::kAmax : Primitive::kAmin, where_named(largest ? -kInfinity : kInfinity), {over});
    if (with_self) made = largest ? maximum(self, made) : minimum(self, made);
  } else if (how == "prod") {
    if (n > kFactorsMax) call.unsupported("so many factors");
    made = with_self ? self : expand(emitter.constant(1), column);
    const Expr factors = where_named(1);
    const ComputeIn own(emitter, x.format());
    for (std::int64_t i = 0; i < n; ++i) made = made * narrow(factors, dim + 1, i, 1);
  } else {
    call.unsupported("reduce = '" + how + "'");
  }
  return reshape(cast(select(untouched, self, made), x.format()), x.shape());
}

void lower_scatter_reduce(Call& call) {
  if (call.text("reduce", "") == "sum" && call.boolean("include_self", true)) {
    lower_scatter_add(call);
    return;
  }
  const Expr x = row(call.tensor("self")), index = row(call.tensor("index")), source = row(call.tensor("src"));
  if (!is_float(x.format()) || index.rank() != x.rank() || source.rank() != x.rank()) call.unsupported("shapes");
  if (index.count() == 0) {
    call.returns(reshape(x, call.result_shape()));
    return;
  }
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  Shape reached = index.shape();
  reached[dim] = x.size(dim);
  const Expr made =
      reduced_into(call, cut(x, reached), cut(source, index.shape()), index, dim, call.emitter().compute());
  const View part{reached, row_major_strides(x.shape()), 0};
  call.returns(reshape(assemble(call.emitter(), x.shape(), x, {made}, {part}, x.format()), call.result_shape()));
}

// The same with one index for each row of the source, whose elements are added to what is held in their format.
void lower_index_reduce(Call& call) {
  const Expr x = row(call.tensor("self")), source = row(call.tensor("source")), index = flat(call.tensor("index"));
  if (!is_float(x.format()) || source.rank() != x.rank() || x.count() == 0) call.unsupported("shapes");
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  Shape along(x.rank(), 1);
  along[dim] = index.count();
  const Expr each = expand(reshape(index, along), source.shape());
  call.returns(reshape(reduced_into(call, x, source, each, dim, x.format()), call.result_shape()));
}

// x with the elements at `position` replaced. Which of several wins is the kernel's affair: where they are not all the
// same number the result is not known, NaN.
Expr replaced(Expr x, Expr source, Expr position) {
  Emitter& emitter = *x.emitter;
  const Format outer = emitter.compute();
  emitter.set_compute(Format::kFloat64);
  const auto all = [&](Expr each) { return scattered(x, each, position, Format::kFloat64); };
  const Expr times = reshape(named_times(emitter, position, x.count()), x.shape()), total = all(source);
  const Expr mean = total / maximum(cast(times, Format::kFloat64), emitter.constant(1));
  const Expr seen = reshape(gather_rows(column(mean), flat(position)), position.shape());
  const Expr several = above(emitter, times, 1);
  // Of one number it is far from what it is compared with: that is no decision near a tie.
  const Expr spread = select(several, all(abs(source - seen)), emitter.constant(-1));
  const Expr unknown = emitter.constant(std::numeric_limits<double>::quiet_NaN());
  // Means of equal numbers are exact, but for those of fp64.
  const Expr same = compare(Primitive::kLessEqual, spread, 0x1p-48 * abs(total));
  emitter.set_compute(outer);
  const Expr value = select(several, select(same, mean, unknown), total);
  return cast(select(above(emitter, times, 0), value, x), x.format());
}

// self with the indexed elements replaced.
void lower_scatter(Call& call) {
  const Expr x = row(call.tensor("self")), index = row(call.tensor("index"));
  if (index.rank() != x.rank()) call.unsupported("shapes");
  if (call.has("reduce")) call.unsupported("reduce");
  Emitter& emitter = call.emitter();
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  const Expr position = position_along(emitter, x.shape(), dim, index);
  if (!call.has("src")) {
    const Expr hit = reshape(above(emitter, named_times(emitter, position, x.count()), 0), x.shape());
    call.returns(reshape(select(hit, call.stored("value"), x), call.result_shape()));
    return;
  }
  call.returns(reshape(replaced(x, cut(row(call.tensor("src")), index.shape()), position), call.result_shape()));
}

// Each number where the maximum of a pool lay, zeros elsewhere.
void lower_max_unpool(Call& call) {
  const Expr x = call.tensor("self"), index = call.tensor("indices");
  const Shape shape = call.result_shape();
  const std::size_t spatial = call.base().find("3d") == std::string_view::npos ? 2 : 3;
  if (x.count() == 0 || x.rank() < spatial || shape.size() != x.rank()) call.unsupported("no elements");
  std::int64_t to = 1, from = 1;
  for (std::size_t d = shape.size() - spatial; d < shape.size(); ++d) {
    to *= shape[d];
    from *= x.size(d);
  }
  Emitter& emitter = call.emitter();
  const std::int64_t images = x.count() / from;
  const Expr position = in_integers(emitter, [&] {
    return reshape(index, {images, from}) + iota(emitter, {images, 1}, 0, static_cast<double>(to), Format::kInt64);
  });
  const Expr zeros = expand(emitter.constant(0, x.format()), {count(shape)});
  call.returns(reshape(replaced(zeros, flat(x), flat(position)), shape));
}

void lower_index_add(Call& call) {
  const Expr x = row(call.tensor("self")), index = flat(call.tensor("index"));
  Expr source = row(call.tensor("source"));
  if (source.rank() != x.rank()) call.unsupported("shapes");
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  if (call.has("alpha") && call.known_number("alpha") != 1.0) source = call.operand("alpha") * source;
  const Expr rows = exchanged(source, 0, dim);
  const std::int64_t n = index.count(), height = x.size(dim);
  if (n == 0) return call.returns(call.tensor("self"));
  if (height == 0) call.unsupported("no rows");
  Shape shape = exchanged(x, 0, dim).shape();
  const std::int64_t width = source.count() / n;
  const Expr before = reshape(exchanged(x, 0, dim), {height, width});
  const Expr sums = accumulated(before, reshape(rows, {n, width}), index, x.format());
  call.returns(reshape(exchanged(reshape(sums, shape), 0, dim), call.result_shape()));
}

// x as rows along a dimension, [rows, width].
struct RowsAlong {
  Expr rows;
  std::size_t dim;
  Shape front;  // The shape of x, with the dimension first.
};
RowsAlong rows_along(Call& call, Expr x) {
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  const Expr front = exchanged(x, 0, dim);
  if (x.count() == 0) call.unsupported("no rows");
  return {reshape(front, {front.size(0), x.count() / front.size(0)}), dim, front.shape()};
}
Expr back_in_place(Call& call, const RowsAlong& along, Expr rows) {
  return reshape(exchanged(reshape(rows, along.front), 0, along.dim), call.result_shape());
}

// The rows that are indexed become one number.
void lower_index_fill(Call& call) {
  const RowsAlong along = rows_along(call, row(call.tensor("self")));
  const std::int64_t height = along.rows.size(0);
  Emitter& emitter = call.emitter();
  const Expr index = in_integers(emitter, [&] { return wrapped_index(flat(call.tensor("index")), height); });
  if (index.count() == 0) return call.returns(call.tensor("self"));
  const Expr hit = above(emitter, named_times(emitter, index, height), 0);
  const Expr value = reshape(call.stored("value"), {});
  call.returns(back_in_place(call, along, select(hit, value, along.rows)));
}

// The rows that are indexed become those of the source.
void lower_index_copy(Call& call) {
  const RowsAlong along = rows_along(call, row(call.tensor("self")));
  const Expr source = row(call.tensor("source")), index = flat(call.tensor("index"));
  const std::int64_t width = along.rows.size(1), n = index.count();
  if (n == 0) return call.returns(call.tensor("self"));
  if (source.count() != n * width) call.unsupported("no rows");
  const Expr from = reshape(exchanged(source, 0, along.dim), {n, width});
  const Expr position = in_integers(call.emitter(), [&] {
    return reshape(index, {n, 1}) * static_cast<double>(width) + iota(call.emitter(), {1, width}, 0, 1, Format::kInt64);
  });
  call.returns(back_in_place(call, along, replaced(along.rows, from, position)));
}

// Each window's gradient where the window lay.
void lower_unfold_backward(Call& call) {
  const Expr gradient = call.tensor("grad_in");
  const Shape sizes = call.integers("input_sizes"), strides = row_major_strides(sizes), windows = gradient.shape();
  if (sizes.empty()) {
    call.returns(reshape(gradient, sizes));
    return;
  }
  if (gradient.count() == 0) call.unsupported("no windows");
  const std::size_t dim = call.dim("dim", sizes.size(), 0);
  const std::int64_t step = call.integer("step", 1);
  Emitter& emitter = call.emitter();
  const Expr position = in_integers(emitter, [&] {
    Expr at = emitter.constant(0);
    for (std::size_t d = 0; d < windows.size(); ++d) {
      Shape one(windows.size(), 1);
      one[d] = windows[d];
      const std::int64_t stride = d == sizes.size() ? strides[dim] : d == dim ? step * strides[dim] : strides[d];
      at = at + iota(emitter, one, 0, static_cast<double>(stride), Format::kInt64);
    }
    return expand(at, windows);
  });
  call.returns(reshape(scatter_add(column(gradient), flat(position), count(sizes), call.result_format()), sizes));
}

// Elements replaced, or added to, by their row-major number.
void lower_put(Call& call) {
  const Expr x = call.tensor("self"), index = call.tensor("index"), source = call.tensor("source");
  if (index.count() != source.count()) call.unsupported("shapes");
  if (index.count() == 0) return call.returns(x);
  const Expr position = in_integers(call.emitter(), [&] { return wrapped_index(flat(index), x.count()); });
  const Expr values = flat(source);
  call.returns(call.boolean("accumulate", false) ? accumulated_elements(x, values, position, x.format())
                                                 : reshape(replaced(flat(x), values, position), x.shape()));
}

// Elements by their row-major number.
void lower_take(Call& call) {
  const Expr x = call.tensor("self"), index = call.tensor("index");
  const Expr position = in_integers(call.emitter(), [&] { return wrapped_index(flat(index), x.count()); });
  call.returns(reshape(gather_rows(column(x), position), index.shape()));
}

// What self[indices] reads, self's dimensions under a mask being one.
struct Indexed {
  Shape sizes;
  // Each dimension of `sizes` has an index, or none where all of it is taken.
  std::vector<std::optional<Expr>> indices;
  std::vector<std::size_t> masks;  // Those among them that are masks, as vectors.

  // The first dimension of the result that the indices make, and how many they make.
  std::size_t start = 0, index_rank = 0;
};

Indexed indexed(Call& call, const Shape& sizes, const std::vector<std::optional<Expr>>& given) {
  Indexed made;
  std::vector<std::size_t> where;
  std::size_t d = 0;
  for (const std::optional<Expr>& index : given) {
    const std::size_t own =
        index && (index->format() == Format::kBool || index->format() == Format::kUInt8) ? index->rank() : 1;
    if (own == 0 || d + own > sizes.size()) call.unsupported("indices of more dimensions than there are");
    made.indices.push_back(index);
    const auto first = sizes.begin() + static_cast<std::ptrdiff_t>(d);
    made.sizes.push_back(count(Shape(first, first + static_cast<std::ptrdiff_t>(own))));
    d += own;
    if (!index) continue;
    const std::size_t at = made.indices.size() - 1;
    where.push_back(at);
    if (index->format() == Format::kBool || index->format() == Format::kUInt8) {
      made.masks.push_back(at);
      made.indices[at] = flat(index->format() == Format::kBool ? *index : not_equal(*index, 0));
    }
    made.index_rank = std::max(made.index_rank, made.indices[at]->rank());
  }
  if (where.empty()) call.unsupported("no index");
  const bool neighbours = where.back() - where.front() + 1 == where.size();
  made.start = neighbours ? where.front() : 0;
  made.sizes.insert(made.sizes.end(), sizes.begin() + static_cast<std::ptrdiff_t>(d), sizes.end());
  return made;
}

Indexed indexed(Call& call, const Shape& sizes) { return indexed(call, sizes, call.optional_tensors("indices")); }

// Where the elements of self[indices] lie in self, in the shape of the result: the indexed dimensions become the
// broadcast shape of the indices, in place when they are neighbours, otherwise in front. `rows`: trues of each mask.
Expr indexed_positions(Call& call, Indexed from, std::int64_t rows) {
  for (const std::size_t mask : from.masks) from.indices[mask] = chosen(*from.indices[mask], rows);
  Emitter& emitter = call.emitter();
  const Shape& sizes = from.sizes;
  std::size_t indexed = 0;
  for (const std::optional<Expr>& index : from.indices) indexed += index ? 1 : 0;
  const std::size_t rank = sizes.size() - indexed + from.index_rank;
  const Shape strides = row_major_strides(sizes);
  return in_integers(emitter, [&] {
    Expr position = emitter.constant(0);
    std::optional<Expr> known;  // Whether every mask has as many trues as it should.
    for (std::size_t d = 0, free = 0; d < sizes.size(); ++d) {
      Shape along(rank, 1);
      if (d < from.indices.size() && from.indices[d]) {
        // The index's own dimensions end where the index block ends.
        const bool mask = std::ranges::find(from.masks, d) != from.masks.end();
        const Expr index = mask ? *from.indices[d] : wrapped_index(*from.indices[d], sizes[d]);
        const Shape shape = index.shape();
        for (std::size_t i = 0; i < shape.size(); ++i)
          along[from.start + from.index_rank - shape.size() + i] = shape[i];
        position = position + reshape(index, along) * static_cast<double>(strides[d]);
        if (mask) {
          const Expr in_mask = reshape(compare(Primitive::kGreaterEqual, index, emitter.constant(0)), along);
          known = known ? logical_and(*known, in_mask) : in_mask;
        }
        continue;
      }
      along[free < from.start ? free : free + from.index_rank] = sizes[d];
      ++free;
      position = position + iota(emitter, along, 0, static_cast<double>(strides[d]), Format::kInt64);
    }
    return known ? select(*known, position, emitter.constant(-1)) : position;
  });
}

void lower_index(Call& call) {
  const Expr x = call.tensor("self");
  const Indexed from = indexed(call, x.shape());
  const Shape shape = call.result_shape();
  const std::int64_t rows = from.masks.empty() ? 0 : shape.at(from.start + from.index_rank - 1);
  const Expr position = indexed_positions(call, from, rows);
  call.returns(reshape(gather_rows(column(x), flat(position)), position.shape()));
}

// Indices that need not lie within x, and a mask of those that count: what compilers write in place of a branch.
std::vector<std::optional<Expr>> clamped_indices(Call& call, const Shape& sizes) {
  std::vector<std::optional<Expr>> indices = call.optional_tensors("indices");
  Emitter& emitter = call.emitter();
  const ComputeIn integers(emitter, Format::kInt64);
  for (std::size_t d = 0; d < indices.size(); ++d)
    if (indices[d])
      indices[d] = minimum(maximum(*indices[d], emitter.constant(-static_cast<double>(sizes.at(d)))),
                           emitter.constant(static_cast<double>(sizes.at(d) - 1)));
  return indices;
}

void lower_masked_index(Call& call) {
  const Expr x = call.tensor("self");
  if (x.count() == 0) call.unsupported("no elements");
  const Expr position = indexed_positions(call, indexed(call, x.shape(), clamped_indices(call, x.shape())), 0);
  const Expr read = reshape(gather_rows(column(x), flat(position)), position.shape());
  call.returns(select(call.tensor("mask"), read, call.stored("fill")));
}

void lower_masked_index_add(Call& call) {
  const Expr x = call.tensor("self");
  if (x.count() == 0) call.unsupported("no elements");
  const Expr position = indexed_positions(call, indexed(call, x.shape(), clamped_indices(call, x.shape())), 0);
  const Expr zero = call.emitter().constant(0, x.format());
  const Expr values = expand(select(call.tensor("mask"), call.tensor("values"), zero), position.shape());
  call.returns(accumulated_elements(x, values, position, x.format()));
}

// The trues of masks beside other indices, whose last dimension they have to fit.
std::int64_t rows_beside(Call& call, const Indexed& to) {
  std::int64_t rows = 1;
  for (std::size_t d = 0; d < to.indices.size(); ++d)
    if (to.indices[d] && std::ranges::find(to.masks, d) == to.masks.end() && to.indices[d]->rank() > 0)
      rows = std::max(rows, to.indices[d]->size(to.indices[d]->rank() - 1));
  if (rows == 1) call.unsupported("masks of so many trues as nothing tells");
  return rows;
}

void lower_index_put(Call& call) {
  // Memory that was never written holds what nobody knows.
  const Expr unknown = call.emitter().constant(std::numeric_limits<double>::quiet_NaN(), call.result_format());
  const Expr x = call.has("self") ? call.tensor("self") : expand(unknown, call.result_shape());
  const Indexed to = indexed(call, x.shape());
  const bool accumulate = call.boolean("accumulate", false);
  const auto given = std::ranges::count_if(to.indices, [](const auto& index) { return index.has_value(); });
  if (to.masks.size() == 1 && given == 1) {
    const Expr merged = reshape(x, to.sizes);
    const std::size_t dim = to.masks[0];
    call.returns(reshape(put_where(merged, dim, *to.indices[dim], call.tensor("values"), accumulate), x.shape()));
    return;
  }
  const Expr position = indexed_positions(call, to, to.masks.empty() ? 0 : rows_beside(call, to));
  const Expr values = expand(call.tensor("values"), position.shape());
  call.returns(accumulate ? accumulated_elements(x, values, position, x.format()) : replaced(x, values, position));
}

// Reversed along dimensions: a window cannot say it, since strides are never negative.
void lower_flip(Call& call) {
  const Expr x = call.tensor("self");
  Emitter& emitter = call.emitter();
  const Shape shape = x.shape(), strides = row_major_strides(shape);
  std::vector<bool> reversed(shape.size(), false);
  for (std::int64_t dim : call.integers("dims"))
    reversed.at(static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(shape.size()) : dim)) = true;
  const Expr position = in_integers(emitter, [&] {
    Expr sum = emitter.constant(0);
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const double stride = static_cast<double>(strides[d]);
      Shape along(shape.size(), 1);
      along[d] = shape[d];
      const double start = reversed[d] ? static_cast<double>(shape[d] - 1) * stride : 0;
      sum = sum + iota(emitter, along, start, reversed[d] ? -stride : stride, Format::kInt64);
    }
    return sum;
  });
  call.returns(reshape(gather_rows(column(x), flat(position)), shape));
}

}  // namespace

std::span<const Rule> index_rules() {
  static const Rule kRules[] = {
      {"embedding", {"default"}, lower_embedding},
      {"embedding_dense_backward", {"default"}, lower_embedding_dense_backward},
      {"index_select", {"default"}, lower_index_select, kOut},
      {"gather", {"default"}, lower_gather, kOut},
      {"scatter_add", {"default"}, lower_scatter_add, kInPlace | kOut},
      {"scatter", {"value"}, lower_scatter, kInPlace | kOut},
      {"scatter", {"src"}, lower_scatter, kInPlace | kOut},
      {"scatter_reduce", {"two"}, lower_scatter_reduce, kInPlace | kObserved},
      {"max_unpool2d", {"default"}, lower_max_unpool, kOut},
      {"max_unpool3d", {"default"}, lower_max_unpool, kOut},
      {"index_reduce", {"default"}, lower_index_reduce, kInPlace | kOut | kObserved},
      {"index_fill", {"int_Scalar", "int_Tensor"}, lower_index_fill, kInPlace},
      {"index_copy", {"default"}, lower_index_copy, kInPlace | kOut},
      {"unfold_backward", {"default"}, lower_unfold_backward},
      {"take", {"default"}, lower_take, kOut},
      {"put", {"default"}, lower_put, kInPlace | kOut},
      {"index_add", {"default"}, lower_index_add, kInPlace | kOut},
      {"index", {"Tensor"}, lower_index, kObserved},
      {"index_put", {"default"}, lower_index_put, kInPlace | kObserved},
      {"_index_put_impl", {"default"}, lower_index_put, kOnlyInPlace | kObserved},
      {"flip", {"default"}, lower_flip},
      {"_unsafe_masked_index", {"default"}, lower_masked_index},
      {"_unsafe_masked_index_put_accumulate", {"default"}, lower_masked_index_add},
      {"_unsafe_index", {"Tensor"}, lower_index, kObserved},
      {"_unsafe_index_put", {"default"}, lower_index_put, kObserved},
  };
  return kRules;
}

}  // namespace plumbline
