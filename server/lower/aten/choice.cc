// Choices among elements, and products by what was chosen (ATen: native/TopKImpl.h, native/cpu/SortingKernel.cpp,
// native/Sorting.cpp, native/cpu/HistogramKernel.cpp, native/GroupedMMUtils.h).
#include <limits>

#include "server/lower/registry.h"
#include "server/lower/spatial.h"

namespace plumbline {
namespace {

constexpr std::int64_t kComparisonsMax = 1 << 24;

// The first `kept` along a dimension, by falling or by rising value, and where they lie: a choice.
struct Chosen {
  Expr values, index;
};

Expr column_of(Expr x) { return reshape(x, {x.count(), 1}); }

// The row-major positions, in an array of `sizes`, of the elements at `index` along a dimension.
Expr positions_at(Expr index, std::size_t dim, const Shape& sizes) {
  Emitter& emitter = *index.emitter;
  const InIntegers integers(emitter);
  const Shape strides = row_major_strides(sizes), shape = index.shape();
  Expr position = index * static_cast<double>(strides[dim]);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (d == dim || shape[d] == 1) continue;
    Shape along(shape.size(), 1);
    along[d] = shape[d];
    position = position + iota(emitter, along, 0, static_cast<double>(strides[d]), Format::kInt64);
  }
  return reshape(position, {position.count()});
}

// Where the first `kept` along a dimension lie.
Expr order_of(Call& call, Expr x, std::size_t dim, std::int64_t kept, bool falling) {
  if (x.rank() == 0 || x.count() == 0) call.unsupported("no elements");
  if (kept < 1 || kept > x.size(dim)) call.unsupported("no elements");
  Shape shape = x.shape();
  shape[dim] = kept;
  Attributes attributes;
  attributes.dims = {static_cast<std::int64_t>(dim)};
  attributes.size = kept;
  const Expr order = call.emitter().arithmetic(Primitive::kArgsort, {falling ? x : -x}, shape, attributes);
  call.emitter().graph().nodes[order.id].result = Format::kInt64;
  return order;
}

// The elements at `index` along a dimension, which the operation chose.
Chosen chosen_at(Call& call, Expr x, std::size_t dim, Expr index) {
  const Shape sizes = x.shape();
  const Expr column = column_of(x), rows = positions_at(index, dim, sizes);
  call.decides_index(index, {column, rows, row_major_strides(sizes)[dim], sizes[dim]});
  // What the index's readers see is the target's choice, in the result too.
  const InIntegers integers(call.emitter());
  return {reshape(gather_rows(column, rows), index.shape()), index + 0.0};
}

// Keeps the first `kept` elements in order, and gives the last `given` of these.
Chosen choose(Call& call, Expr x, std::size_t dim, std::int64_t kept, std::int64_t given, bool falling) {
  if (x.rank() == 0 && kept == 1) return {x, call.emitter().constant(0, Format::kInt64)};
  const Expr order = order_of(call, x, dim, kept, falling);
  return chosen_at(call, x, dim, given < kept ? narrow(order, dim, kept - given, given) : order);
}

// The largest along a dimension, or the least.
template <bool largest>
Chosen extreme_of(Call& call, Expr x, std::size_t dim) {
  const Expr index = reduce(Primitive::kArgmax, largest ? x : -x, {static_cast<std::int64_t>(dim)});
  call.emitter().graph().nodes[index.id].result = Format::kInt64;
  if (x.count() > 0) return chosen_at(call, x, dim, index);
  return {reduce(Primitive::kAmax, x, {static_cast<std::int64_t>(dim)}), index};
}

// Where it lies alone.
template <bool largest>
void lower_extreme_index(Call& call) {
  Expr x = call.tensor("self");
  const bool whole = !call.has("dim") || x.rank() == 0;
  if (whole) x = reshape(x, {x.count()});
  const std::size_t dim = whole ? 0 : call.dim("dim", x.rank(), 0);
  call.returns(reshape(extreme_of<largest>(call, x, dim).index, call.result_shape()));
}

template <bool largest>
void lower_extreme(Call& call) {
  const Expr x = call.tensor("self");
  if (x.rank() == 0) {  // A number alone is the largest of one.
    call.returns(0, x);
    call.returns(1, call.emitter().constant(0, Format::kInt64));
    return;
  }
  const Chosen most = extreme_of<largest>(call, x, call.dim("dim", x.rank(), 0));
  call.returns(0, reshape(most.values, call.result_shape(0)));
  call.returns(1, reshape(most.index, call.result_shape(1)));
}

void lower_topk(Call& call) {
  const Expr x = call.tensor("self");
  const std::int64_t k = call.integer("k", 0);
  const Chosen first = choose(call, x, call.dim("dim", x.rank(), -1), k, k, call.boolean("largest", true));
  call.returns(0, first.values);
  call.returns(1, first.index);
}

void lower_sort(Call& call) {
  const Expr x = call.tensor("self");
  const std::size_t dim = call.dim("dim", x.rank(), -1);
  const std::int64_t all = x.rank() == 0 ? 1 : x.size(dim);
  const Chosen sorted = choose(call, x, dim, all, all, call.boolean("descending", false));
  call.returns(0, sorted.values);
  call.returns(1, sorted.index);
}

// The kth smallest along a dimension, where it lies, too.
void give_ranked(Call& call, Expr x, std::size_t dim, std::int64_t k) {
  const Chosen ranked = choose(call, x, dim, k, 1, false);
  call.returns(0, reshape(ranked.values, call.result_shape(0)));
  if (call.wants(1)) call.returns(1, reshape(ranked.index, call.result_shape(1)));
}

void lower_kth_value(Call& call) {
  const Expr x = call.tensor("self");
  give_ranked(call, x, call.dim("dim", x.rank(), -1), call.integer("k", 1));
}

// The lower one of two in the middle.
void lower_median(Call& call) {
  Expr x = call.tensor("self");
  if (!call.has("dim")) x = reshape(x, {x.count()});
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  give_ranked(call, x, dim, x.rank() == 0 ? 1 : (x.size(dim) + 1) / 2);
}

// The same among what is no NaN, which is sorted behind all numbers: how many these are the content alone tells.
void lower_nan_median(Call& call) {
  const Expr x = call.tensor("self");
  if (x.rank() == 0) return give_ranked(call, x, 0, 1);
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  if (x.count() == 0) call.unsupported("no elements");
  if (!is_float(x.format())) return give_ranked(call, x, dim, (x.size(dim) + 1) / 2);
  const Expr is_number = compare(Primitive::kEqual, x, x);
  const Expr ordered =
      select(is_number, x, call.emitter().constant(std::numeric_limits<double>::infinity(), x.format()));
  const Expr order = order_of(call, ordered, dim, x.size(dim), false);
  Emitter& emitter = call.emitter();
  const Expr index = [&] {
    const InIntegers integers(emitter);
    const Expr numbers = sum(cast(is_number, Format::kInt64), {static_cast<std::int64_t>(dim)});
    const Expr half = [&] {
      const ComputeIn exactly(emitter, Format::kFloat64);
      return unary(Primitive::kFloor, maximum(numbers - 1.0, emitter.constant(0)) * 0.5);
    }();
    const Expr middle = cast(half, Format::kInt64);
    return reshape(gather_rows(column_of(order), positions_at(middle, dim, x.shape())), middle.shape());
  }();
  const Chosen median = chosen_at(call, ordered, dim, index);
  const Expr none = logical_not(reduce(Primitive::kAmax, is_number, {static_cast<std::int64_t>(dim)}));
  const Expr nan = emitter.constant(std::numeric_limits<double>::quiet_NaN(), x.format());
  call.returns(0, reshape(select(none, nan, median.values), call.result_shape(0)));
  if (call.wants(1)) call.returns(1, reshape(median.index, call.result_shape(1)));
}

// The smallest of the most frequent numbers.
void lower_mode(Call& call) {
  const Expr x = call.tensor("self");
  if (x.rank() == 0) return give_ranked(call, x, 0, 1);
  const std::size_t dim = call.dim("dim", x.rank(), -1);
  if (x.count() == 0 || x.count() * x.size(dim) > kComparisonsMax) call.unsupported("so many comparisons");
  Shape own = x.shape(), others = own;
  own.insert(own.begin() + static_cast<std::ptrdiff_t>(dim) + 1, 1);
  others.insert(others.begin() + static_cast<std::ptrdiff_t>(dim), 1);
  const Expr same = compare(Primitive::kEqual, reshape(x, own), reshape(x, others));
  const auto along = static_cast<std::int64_t>(dim);
  const Expr frequent = [&] {
    const InIntegers integers(call.emitter());
    const Expr counts = reshape(sum(cast(same, Format::kInt64), {along + 1}), x.shape());
    return compare(Primitive::kEqual, counts, reduce(Primitive::kAmax, counts, {along}));
  }();
  const Expr rest = is_float(x.format()) ? call.emitter().constant(std::numeric_limits<double>::infinity(), x.format())
                                         : reduce(Primitive::kAmax, x, {along});
  give_ranked(call, select(frequent, x, rest), dim, 1);
}

// How many elements lie in each of equal parts of [min, max], the last one with its upper end; where the two are one,
// of the elements' own range, and of one that is 2 wide where that has no width. Parts are computed and
// counted in the elements' own format, each step rounded: what lies next to the end of a part may fall on either side.
void lower_histogram(Call& call) {
  const Expr x = call.tensor("self");
  const std::int64_t bins = call.integer("bins", 100);
  const Format own = is_float(x.format()) ? x.format() : Format::kFloat64;
  const double from = round_to(own, call.real("min", 0)), to = round_to(own, call.real("max", 0));
  if (from > to || bins < 1) call.unsupported("limits");
  Emitter& emitter = call.emitter();
  emitter.set_compute(own);
  if (x.count() == 0) return call.returns(expand(emitter.constant(0), {bins}));
  const Expr flat = cast(reshape(x, {x.count()}), own);
  Expr low = emitter.constant(from), high = emitter.constant(to);
  if (from == to) {
    const Expr least = -reshape(amax(-flat, {0}), {}), most = reshape(amax(flat, {0}), {});
    const Expr one = compare(Primitive::kEqual, least, most);
    low = select(one, least - 1.0, least);
    high = select(one, most + 1.0, most);
  }
  const Expr share = (flat - low) * static_cast<double>(bins) / (high - low);
  // The ends of the range itself, where all numbers of a whole range may lie, are no ends of a part.
  const Expr within = minimum(maximum(share, emitter.constant(0.5)), emitter.constant(static_cast<double>(bins) - 0.5));
  const Expr part = cast(unary(Primitive::kFloor, within), Format::kInt64);
  const Expr inside =
      logical_and(compare(Primitive::kGreaterEqual, flat, low), compare(Primitive::kLessEqual, flat, high));
  const Expr ones = expand(emitter.constant(1), {x.count(), 1});
  const InIntegers integers(emitter);
  const Expr bin = select(inside, part, emitter.constant(-1));
  call.returns(reshape(scatter_add(ones, bin, bins, own), {bins}));
}

// Groups are ranges of rows that end at `offs`: rows [s, k] by the group's own matrix [g, k, n], or, where both are
// matrices, the product of a group's columns of the one and rows of the other, [g, m, n].
void lower_grouped_mm(Call& call) {
  const Expr a = call.tensor("self"), b = call.tensor("mat2");
  if (a.rank() != 2 || !call.has("offs") || call.has("bias")) call.unsupported("shapes");
  const Expr ends = call.tensor("offs");
  const std::int64_t groups = ends.count(), rows = a.size(b.rank() == 3 ? 0 : 1);
  if (ends.rank() != 1 || groups == 0 || (b.rank() == 3 && b.size(0) != groups)) call.unsupported("shapes");
  Emitter& emitter = call.emitter();
  const auto in_group = [&](std::int64_t group, const Shape& along) {
    const InIntegers integers(emitter);
    const Expr row = iota(emitter, along, 0, 1, Format::kInt64);
    const auto end = [&](std::int64_t g) { return reshape(narrow(ends, 0, g, 1), {}); };
    const Expr below = compare(Primitive::kLess, row, end(group));
    return group == 0 ? below : logical_and(below, compare(Primitive::kGreaterEqual, row, end(group - 1)));
  };
  if (b.rank() == 3) {
    Expr out = emitter.constant(0);
    for (std::int64_t g = 0; g < groups; ++g) {
      const Expr matrix = reshape(narrow(b, 0, g, 1), {b.size(1), b.size(2)});
      out = select(in_group(g, {rows, 1}), matmul(a, matrix), out);
    }
    call.returns(out);
    return;
  }
  const Shape shape = call.result_shape();
  std::vector<Expr> products;
  std::vector<View> views;
  for (std::int64_t g = 0; g < groups; ++g) {
    const Expr columns = select(in_group(g, {1, rows}), a, emitter.constant(0, a.format()));
    products.push_back(matmul(columns, b));
    views.push_back({products.back().shape(), row_major_strides(products.back().shape()), g * products.back().count()});
  }
  call.returns(assemble(emitter, shape, std::nullopt, products, std::move(views), products[0].format()));
}

}  // namespace

std::span<const Rule> choice_rules() {
  constexpr auto kIndex = DecisionKind::kLastIndex;
  static const Rule kRules[] = {
      {"topk", {"default"}, lower_topk, kFunctional, kIndex},
      {"sort", {"default", "stable"}, lower_sort, kFunctional, kIndex},
      {"argmax", {"default"}, lower_extreme_index<true>, kFunctional, kIndex},
      {"argmin", {"default"}, lower_extreme_index<false>, kFunctional, kIndex},
      {"max", {"dim"}, lower_extreme<true>, kFunctional, kIndex},
      {"min", {"dim"}, lower_extreme<false>, kFunctional, kIndex},
      {"kthvalue", {"default"}, lower_kth_value, kFunctional, kIndex},
      {"median", {"dim"}, lower_median, kFunctional, kIndex},
      {"median", {"default"}, lower_median},
      {"nanmedian", {"dim"}, lower_nan_median, kFunctional, kIndex},
      {"mode", {"default"}, lower_mode, kFunctional, kIndex},
      {"histc", {"default"}, lower_histogram, kOut | kObserved},
      {"_grouped_mm", {"default"}, lower_grouped_mm},
  };
  return kRules;
}

}  // namespace plumbline
