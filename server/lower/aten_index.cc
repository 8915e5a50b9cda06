// Reading and adding by index (ATen: native/Embedding.cpp, native/TensorAdvancedIndexing.cpp).
#include <limits>

#include "server/lower/registry.h"

namespace plumbline {
namespace {

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
Expr wrapped(Expr index, std::int64_t size) { return select(index < 0.0, index + static_cast<double>(size), index); }

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
  const Expr x = call.tensor("self"), index = flat(call.tensor("index"));
  if (x.rank() == 0) call.unsupported("no dimension");
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  const Expr front = exchanged(x, 0, dim);
  Shape shape = front.shape();
  const std::int64_t rows = shape[0];
  if (rows == 0) call.unsupported("no rows");
  const Expr chosen = gather_rows(reshape(front, {rows, x.count() / rows}), index);
  shape[0] = index.count();
  call.returns(exchanged(reshape(chosen, shape), 0, dim));
}

void lower_gather(Call& call) {
  const Expr x = call.tensor("self"), index = call.tensor("index");
  if (x.rank() == 0 || index.rank() != x.rank()) call.unsupported("no dimension");
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  const Expr position = position_along(call.emitter(), x.shape(), dim, index);
  call.returns(reshape(gather_rows(column(x), flat(position)), index.shape()));
}

// `source` where it is indexed, added up in `format`; in the shape of `like`.
Expr scattered(Expr like, Expr source, Expr position, Format format) {
  return reshape(scatter_add(column(source), flat(position), like.count(), format), like.shape());
}

// x [rows, d] with rows of `source` [n, d] added where `index` [n] says, in x's memory: x is a term of each row's sum.
Expr accumulated(Expr x, Expr source, Expr index, Format format) {
  Emitter& emitter = *x.emitter;
  const std::int64_t rows = x.size(0), n = source.size(0), width = x.size(1);
  const auto joined = [&](Expr first, Expr second, std::int64_t d, Format of) {
    const View head{{rows, d}, {d, 1}, 0}, tail{{n, d}, {d, 1}, rows * d};
    return assemble(emitter, {rows + n, d}, std::nullopt, {first, second}, {head, tail}, of);
  };
  const Expr own = iota(emitter, {rows, 1}, 0, 1, Format::kInt64), added = reshape(cast(index, Format::kInt64), {n, 1});
  return scatter_add(joined(cast(x, format), cast(source, format), width, format),
                     flat(joined(own, added, 1, Format::kInt64)), rows, format);
}

// The same with single elements at `position`.
Expr accumulated_elements(Expr x, Expr source, Expr position, Format format) {
  return reshape(accumulated(column(x), column(source), flat(position), format), x.shape());
}

// source cut to index's shape.
Expr cut(Expr source, const Shape& shape) {
  for (std::size_t d = 0; d < shape.size(); ++d) source = narrow(source, d, 0, shape[d]);
  return source;
}

void lower_scatter_add(Call& call) {
  const Expr x = call.tensor("self"), index = call.tensor("index"), source = call.tensor("src");
  if (x.rank() == 0 || index.rank() != x.rank() || source.rank() != x.rank()) call.unsupported("no dimension");
  const Expr position = position_along(call.emitter(), x.shape(), call.dim("dim", x.rank(), 0), index);
  call.returns(accumulated_elements(x, cut(source, index.shape()), position, call.emitter().compute()));
}

void lower_scatter_reduce(Call& call) {
  if (call.text("reduce", "") != "sum" || !call.boolean("include_self", true)) call.unsupported("but for sums");
  lower_scatter_add(call);
}

// x with the elements at `position` replaced. Which of several wins is the kernel's affair: where they are not all the
// same number the result is not known, NaN.
Expr replaced(Expr x, Expr source, Expr position) {
  Emitter& emitter = *x.emitter;
  const Format outer = emitter.compute();
  emitter.set_compute(Format::kFloat64);
  const auto all = [&](Expr each) { return scattered(x, each, position, Format::kFloat64); };
  const Expr hits = all(expand(emitter.constant(1), position.shape())), total = all(source);
  const Expr mean = total / maximum(hits, emitter.constant(1));
  const Expr seen = reshape(gather_rows(column(mean), flat(position)), position.shape());
  const Expr spread = all(abs(source - seen)), several = hits > 1.0;
  const Expr unknown = emitter.constant(std::numeric_limits<double>::quiet_NaN());
  // Means of equal numbers are exact, but for those of fp64.
  const Expr same = compare(Primitive::kLessEqual, spread, 0x1p-48 * abs(total));
  emitter.set_compute(outer);
  const Expr value = select(several, select(same, mean, unknown), total);
  return cast(select(hits > 0.0, value, x), x.format());
}

// self with the indexed elements replaced.
void lower_scatter(Call& call) {
  const Expr x = call.tensor("self"), index = call.tensor("index");
  if (x.rank() == 0 || index.rank() != x.rank()) call.unsupported("no dimension");
  if (call.has("reduce")) call.unsupported("reduce");
  Emitter& emitter = call.emitter();
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  const Expr position = position_along(emitter, x.shape(), dim, index);
  if (!call.has("src")) {
    const Expr one = expand(emitter.constant(1), index.shape());
    const Expr hit = not_equal(scattered(x, one, position, emitter.compute()), 0);
    call.returns(select(hit, call.operand("value", call.result_format()), x));
    return;
  }
  call.returns(replaced(x, cut(call.tensor("src"), index.shape()), position));
}

void lower_index_add(Call& call) {
  const Expr x = call.tensor("self"), index = flat(call.tensor("index"));
  Expr source = call.tensor("source");
  if (x.rank() == 0 || source.rank() != x.rank()) call.unsupported("no dimension");
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  if (call.has("alpha") && call.known_number("alpha") != 1.0) source = call.operand("alpha") * source;
  const Expr rows = exchanged(source, 0, dim);
  const std::int64_t n = index.count(), height = x.size(dim);
  if (n == 0 || height == 0) call.unsupported("no rows");
  Shape shape = exchanged(x, 0, dim).shape();
  const std::int64_t width = source.count() / n;
  const Expr before = reshape(exchanged(x, 0, dim), {height, width});
  const Expr sums = accumulated(before, reshape(rows, {n, width}), index, x.format());
  call.returns(exchanged(reshape(sums, shape), 0, dim));
}

// Where the elements of self[indices] lie in self, in the shape of the result: the indexed dimensions become the
// broadcast shape of the indices, in place when they are neighbours, otherwise in front.
std::optional<Expr> indexed_positions(Call& call, const Shape& sizes) {
  Emitter& emitter = call.emitter();
  const auto indices = call.optional_tensors("indices");
  std::vector<std::size_t> indexed;
  std::size_t index_rank = 0;
  for (std::size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d]) continue;
    if (indices[d]->format() == Format::kBool || indices[d]->format() == Format::kUInt8) return std::nullopt;
    indexed.push_back(d);
    index_rank = std::max(index_rank, indices[d]->rank());
  }
  if (indexed.empty() || indices.size() > sizes.size()) return std::nullopt;
  const bool neighbours = indexed.back() - indexed.front() + 1 == indexed.size();
  const std::size_t start = neighbours ? indexed.front() : 0;
  const std::size_t rank = sizes.size() - indexed.size() + index_rank;
  const Shape strides = row_major_strides(sizes);
  return in_integers(emitter, [&] {
    Expr position = emitter.constant(0);
    std::size_t out = 0;
    for (std::size_t d = 0, free = 0; d < sizes.size(); ++d) {
      const bool has = d < indices.size() && indices[d];
      if (has) {
        // The index's own dimensions end where the index block ends.
        const Expr index = wrapped(*indices[d], sizes[d]);
        Shape along(rank, 1);
        const Shape shape = index.shape();
        for (std::size_t i = 0; i < shape.size(); ++i) along[start + index_rank - shape.size() + i] = shape[i];
        position = position + reshape(index, along) * static_cast<double>(strides[d]);
        continue;
      }
      out = free < start ? free : free + index_rank;
      ++free;
      Shape along(rank, 1);
      along[out] = sizes[d];
      position = position + iota(emitter, along, 0, static_cast<double>(strides[d]), Format::kInt64);
    }
    return position;
  });
}

void lower_index(Call& call) {
  const Expr x = call.tensor("self");
  const auto position = indexed_positions(call, x.shape());
  if (!position) call.unsupported("masks as indices");
  call.returns(reshape(gather_rows(column(x), flat(*position)), position->shape()));
}

void lower_index_put(Call& call) {
  // Memory that was never written holds what nobody knows.
  const Expr unknown = call.emitter().constant(std::numeric_limits<double>::quiet_NaN(), call.result_format());
  const Expr x = call.has("self") ? call.tensor("self") : expand(unknown, call.result_shape());
  const auto position = indexed_positions(call, x.shape());
  if (!position) call.unsupported("masks as indices");
  const Expr values = expand(call.tensor("values"), position->shape());
  if (!call.boolean("accumulate", false)) {
    call.returns(replaced(x, values, *position));
    return;
  }
  call.returns(accumulated_elements(x, values, *position, x.format()));
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
      {"scatter_reduce", {"two"}, lower_scatter_reduce, kInPlace},
      {"index_add", {"default"}, lower_index_add, kInPlace | kOut},
      {"index", {"Tensor"}, lower_index, kObserved},
      {"index_put", {"default"}, lower_index_put, kInPlace | kObserved},
      {"_index_put_impl", {"default"}, lower_index_put, kOnlyInPlace | kObserved},
      {"flip", {"default"}, lower_flip},
      {"_unsafe_index", {"Tensor"}, lower_index, kObserved},
      {"_unsafe_index_put", {"default"}, lower_index_put, kObserved},
  };
  return kRules;
}

}  // namespace plumbline
