// Counts, and places told by counts (ATen: native/Repeat.cpp, native/SummaryOps.cpp, native/Bucketization.cpp,
// native/Unique.cpp).
#include "server/lower/aten/rows.h"
#include "server/lower/mask.h"
#include "server/lower/registry.h"
#include "server/lower/spatial.h"

namespace plumbline {
namespace {

constexpr std::int64_t kComparisonsMax = 1 << 22;

Expr running(Expr x) {
  Attributes attributes;
  attributes.dims = {0};
  return x.emitter->arithmetic(Primitive::kCumsum, {x}, x.shape(), attributes);
}

Expr limited(Expr x, std::int64_t most) {
  x.emitter->ranges().set(x.id, {0, static_cast<double>(most)});
  return x;
}

// Each number's place as often as the number says: that many earlier ones have ended before it.
void lower_repeat_interleave(Call& call) {
  const Expr repeats = call.tensor("repeats");
  const Shape shape = call.result_shape();
  if (repeats.rank() != 1 || shape.size() != 1) call.unsupported("shapes");
  Emitter& emitter = call.emitter();
  const InIntegers integers(emitter);
  const Expr ones = expand(emitter.constant(1), {repeats.count(), 1});
  const Expr ended = reshape(scatter_add(ones, running(repeats), shape[0], Format::kInt64), shape);
  call.returns(limited(running(limited(ended, repeats.count())), repeats.count()));
}

// How often each number occurs, or the sum of its weights.
void lower_bincount(Call& call) {
  const Expr x = call.tensor("self");
  const Shape shape = call.result_shape();
  if (x.rank() != 1 || shape.size() != 1 || x.count() == 0) call.unsupported("shapes");
  const Format format = call.result_format();
  const Expr ones = expand(call.emitter().constant(1, format), x.shape());
  const Expr weights = call.has("weights") ? cast(call.tensor("weights"), format) : ones;
  call.returns(reshape(scatter_add(reshape(weights, {x.count(), 1}), x, shape[0], format), shape));
}

// How many of the sorted integers are below each, or not above it (`right`).
Expr places_among(Call& call, Expr sorted, Expr x) {
  if (!is_integer(sorted.format()) || !is_integer(x.format())) call.unsupported("places among numbers with fractions");
  if (sorted.rank() != 1 || call.has("sorter")) call.unsupported("several sorted rows");
  if (x.count() * sorted.count() > kComparisonsMax) call.unsupported("so many comparisons");
  const bool right = call.boolean("right", false) || call.text("side", "left") == "right";
  const InIntegers integers(call.emitter());
  const Expr below = compare(right ? Primitive::kLessEqual : Primitive::kLess, reshape(sorted, {1, sorted.count()}),
                             reshape(x, {x.count(), 1}));
  return reshape(limited(sum(cast(below, Format::kInt64), {1}), sorted.count()), x.shape());
}

void lower_bucketize(Call& call) {
  call.returns(places_among(call, call.tensor("boundaries"), reshape(call.operand("self"), call.result_shape())));
}

void lower_searchsorted(Call& call) {
  call.returns(places_among(call, call.tensor("sorted_sequence"), reshape(call.operand("self"), call.result_shape())));
}

// Whether each element is one of the others.
void lower_is_in(Call& call) {
  const Expr x = call.operand(call.has("elements") ? "elements" : "element");
  const Expr others = call.operand(call.has("test_elements") ? "test_elements" : "test_element");
  if (x.count() * others.count() > kComparisonsMax || others.count() == 0) call.unsupported("so many comparisons");
  Expr found =
      reduce(Primitive::kAmax,
             compare(Primitive::kEqual, reshape(x, {x.count(), 1}), reshape(others, {1, others.count()})), {1});
  Node& node = call.emitter().graph().nodes[found.id];
  node.result = node.compute = Format::kBool;
  if (call.boolean("invert", false)) found = logical_not(found);
  call.returns(reshape(found, call.result_shape()));
}

// The coordinates of a triangle's elements, row by row.
template <bool lower>
void lower_triangle_indices(Call& call) {
  const std::int64_t rows = call.integer("row", 0), columns = call.integer("col", 0);
  const std::int64_t offset = call.integer("offset", 0);
  const Shape shape = call.result_shape();
  if (shape.size() != 2 || shape[0] != 2 || rows * columns > kComparisonsMax) call.unsupported("shapes");
  Emitter& emitter = call.emitter();
  const InIntegers integers(emitter);
  const Expr row = iota(emitter, {rows, 1}, 0, 1, Format::kInt64),
             column = iota(emitter, {1, columns}, 0, 1, Format::kInt64);
  const Expr diagonal = row + static_cast<double>(offset);
  const Expr inside = compare(lower ? Primitive::kLessEqual : Primitive::kGreaterEqual, column, diagonal);
  const Expr places = chosen(inside, shape[1]);
  std::vector<Expr> coordinates;
  for (const Expr& own : {row, column})
    coordinates.push_back(gather_rows(reshape(expand(own, {rows, columns}), {rows * columns, 1}), places));
  const View first{{shape[1], 1}, {1, 1}, 0}, second{{shape[1], 1}, {1, 1}, shape[1]};
  call.returns(assemble(emitter, shape, std::nullopt, coordinates, {first, second}, Format::kInt64));
}

// The first of each run of equal rows [n, width], which run each row of `order` is in (output 1), and how long each run
// is (output 2). How many runs there are the trace tells.
void give_runs(Call& call, Expr rows, std::optional<Expr> order) {
  const std::int64_t n = rows.size(0), width = rows.size(1);
  const Shape shape = call.result_shape();
  const std::int64_t runs = width == 0 ? 0 : count(shape) / width;
  if (n == 0 || runs == 0) call.unsupported("no elements");
  const Runs found = runs_of(rows, runs);
  call.returns(0, reshape(found.first, shape));
  const InIntegers integers(call.emitter());
  if (call.wants(1) && count(call.result_shape(1)) != 0) {
    Expr which = found.which;
    if (order) which = reshape(scatter_add(reshape(which, {n, 1}), *order, n, Format::kInt64), {n});
    call.returns(1, reshape(limited(which, n), call.result_shape(1)));
  }
  if (call.wants(2) && count(call.result_shape(2)) != 0) {
    const Expr ones = expand(call.emitter().constant(1), {n, 1});
    call.returns(2, reshape(limited(scatter_add(ones, found.which, runs, Format::kInt64), n), call.result_shape(2)));
  }
}

// Along a dimension, or of all elements.
void lower_unique_consecutive(Call& call) {
  const Expr x = call.tensor("self");
  if (!call.has("dim") || x.rank() < 2) return give_runs(call, reshape(x, {x.count(), 1}), std::nullopt);
  if (call.dim("dim", x.rank(), 0) != 0) call.unsupported("runs along a later dimension");
  give_runs(call, reshape(x, {x.size(0), x.size(0) == 0 ? 0 : x.count() / x.size(0)}), std::nullopt);
}

void lower_unique(Call& call) {
  const Expr x = call.tensor("self");
  const std::int64_t n = x.count();
  if (n == 0) call.unsupported("no elements");
  const Expr flat = reshape(x.format() == Format::kBool ? cast(x, Format::kInt64) : x, {n});
  const Expr order = ascending(flat);
  give_runs(call, gather_rows(reshape(flat, {n, 1}), order), order);
}

}  // namespace

Expr ascending(Expr x) {
  Attributes along;
  along.dims = {0};
  along.size = x.count();
  const Expr order = x.emitter->arithmetic(Primitive::kArgsort, {-x}, {x.count()}, along);
  x.emitter->graph().nodes[order.id].result = Format::kInt64;
  return order;
}

Runs runs_of(Expr rows, std::int64_t runs) {
  Emitter& emitter = *rows.emitter;
  const std::int64_t n = rows.size(0);
  const Expr differs = n == 1 ? expand(emitter.constant(0, Format::kBool), {0, 1})
                              : compare(Primitive::kNotEqual, narrow(rows, 0, 1, n - 1), narrow(rows, 0, 0, n - 1));
  const InIntegers integers(emitter);
  Expr begins = expand(emitter.constant(1, Format::kBool), {1});
  if (n > 1) {
    const Expr any = reshape(reduce(Primitive::kAmax, cast(differs, Format::kInt64), {1}), {n - 1});
    begins = assemble(emitter, {n}, std::nullopt, {cast(begins, Format::kInt64), any},
                      {{{1}, {1}, 0}, {{n - 1}, {1}, 1}}, Format::kInt64);
    begins = not_equal(begins, 0);
  }
  return {gather_rows(rows, chosen(begins, runs)), limited(running(limited(cast(begins, Format::kInt64), 1)) - 1.0, n)};
}

std::span<const Rule> count_rules() {
  static const Rule kRules[] = {
      {"repeat_interleave", {"Tensor"}, lower_repeat_interleave},
      {"bincount", {"default"}, lower_bincount},
      {"bucketize", {"Tensor", "Scalar"}, lower_bucketize, kOut | kObserved},
      {"searchsorted", {"Tensor", "Scalar"}, lower_searchsorted, kOut | kObserved},
      {"isin", {"Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor"}, lower_is_in, kOut},
      {"_unique2", {"default"}, lower_unique},
      {"_unique", {"default"}, lower_unique},
      {"unique_consecutive", {"default"}, lower_unique_consecutive},
      {"tril_indices", {"default"}, lower_triangle_indices<true>},
      {"triu_indices", {"default"}, lower_triangle_indices<false>},
  };
  return kRules;
}

}  // namespace plumbline
