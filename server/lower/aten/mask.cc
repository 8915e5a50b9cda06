// Elements where a mask is true, in row-major order (ATen: native/TensorAdvancedIndexing.cpp,
// native/cpu/IndexKernel.cpp). How many there are the trace tells, by the shape of the result.
#include "server/lower/mask.h"

#include "server/lower/registry.h"
#include "server/lower/spatial.h"

namespace plumbline {
namespace {

Expr column(Expr x) { return reshape(x, {x.count(), 1}); }

// The rows of x where the mask is true.
Expr kept_rows(Expr x, Expr mask, std::int64_t rows) { return gather_rows(x, chosen(mask, rows)); }

Expr mask_of(Call& call, const Shape& shape) {
  const Expr mask = call.tensor("mask");
  return expand(mask.format() == Format::kBool ? mask : not_equal(mask, 0), shape);
}

void lower_masked_scatter(Call& call) {
  const Expr source = call.tensor("source"), mask = mask_of(call, call.result_shape());
  if (source.count() == 0) call.unsupported("an empty source");
  Expr place = places(mask);
  {
    const InIntegers integers(call.emitter());
    place = maximum(place, call.emitter().constant(0));
  }
  call.returns(select(mask, reshape(gather_rows(column(source), place), mask.shape()), call.tensor("self")));
}

void lower_masked_scatter_backward(Call& call) {
  const Expr gradient = call.tensor("grad_output"), mask = mask_of(call, gradient.shape());
  const Shape shape = call.result_shape();
  // The source may have more elements than the mask took.
  call.returns(reshape(scatter_add(column(gradient), places(mask), count(shape), gradient.format()), shape));
}

void lower_masked_select(Call& call) {
  const Expr x = call.tensor("self"), mask = mask_of(call, call.tensor("mask").shape());
  const Expr both = select(mask, x, x);  // In the shape that they broadcast to.
  const Expr kept = kept_rows(column(both), expand(mask, both.shape()), call.result_shape().at(0));
  call.returns(reshape(kept, call.result_shape()));
}

// The coordinates of each element, [elements, dimensions].
Expr coordinates_of(Call& call, Expr x) {
  Emitter& emitter = call.emitter();
  const Shape shape = x.shape();
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (rank == 0 || x.count() == 0) call.unsupported("no dimension");
  std::vector<Expr> coordinates;
  std::vector<View> views;
  for (std::int64_t d = 0; d < rank; ++d) {
    Shape along(shape.size(), 1);
    along[static_cast<std::size_t>(d)] = shape[static_cast<std::size_t>(d)];
    coordinates.push_back(column(expand(iota(emitter, along, 0, 1, Format::kInt64), shape)));
    views.push_back({{x.count(), 1}, {rank, 1}, d});
  }
  return assemble(emitter, {x.count(), rank}, std::nullopt, coordinates, std::move(views), Format::kInt64);
}

// The coordinates of what is not 0.
void lower_nonzero(Call& call) {
  const Expr x = call.tensor("self");
  call.returns(kept_rows(coordinates_of(call, x), not_equal(x, 0), call.result_shape().at(0)));
}

// So many of these, and another number in rows that are left.
void lower_static_nonzero(Call& call) {
  const Expr x = call.tensor("self");
  Emitter& emitter = call.emitter();
  const std::int64_t rows = call.result_shape().at(0);
  if (rows == 0) call.unsupported("no rows");
  const Expr coordinates = coordinates_of(call, x), place = places(not_equal(x, 0));
  const InIntegers integers(emitter);
  const Expr inside = select(compare(Primitive::kLess, place, emitter.constant(static_cast<double>(rows))), place,
                             emitter.constant(-1));
  const Expr one = expand(emitter.constant(1), {x.count(), 1});
  const Expr found = not_equal(scatter_add(one, inside, rows, Format::kInt64), 0);
  const Expr listed = scatter_add(coordinates, inside, rows, Format::kInt64);
  call.returns(select(found, listed, emitter.constant(call.real("fill_value", -1))));
}

}  // namespace

std::span<const Rule> mask_rules() {
  static const Rule kRules[] = {
      {"masked_scatter", {"default"}, lower_masked_scatter, kInPlace | kOut},
      {"masked_scatter_backward", {"default"}, lower_masked_scatter_backward},
      {"masked_select", {"default"}, lower_masked_select, kOut},
      {"nonzero", {"default"}, lower_nonzero, kOut},
      {"nonzero_static", {"default"}, lower_static_nonzero},
  };
  return kRules;
}

}  // namespace plumbline
