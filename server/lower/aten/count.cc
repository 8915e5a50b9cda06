// Counts, and places told by counts (ATen: native/Repeat.cpp, native/SummaryOps.cpp, native/Bucketization.cpp).
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

}  // namespace

std::span<const Rule> count_rules() {
  static const Rule kRules[] = {
      {"repeat_interleave", {"Tensor"}, lower_repeat_interleave},
      {"bincount", {"default"}, lower_bincount},
      {"bucketize", {"Tensor", "Scalar"}, lower_bucketize, kOut | kObserved},
      {"searchsorted", {"Tensor", "Scalar"}, lower_searchsorted, kOut | kObserved},
      {"isin", {"Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor"}, lower_is_in, kOut},
      {"tril_indices", {"default"}, lower_triangle_indices<true>},
      {"triu_indices", {"default"}, lower_triangle_indices<false>},
  };
  return kRules;
}

}  // namespace plumbline
