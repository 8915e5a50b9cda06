#include "server/lower/mask.h"

#include "server/lower/integer.h"
#include "server/lower/spatial.h"

namespace plumbline {
namespace {

Expr trues_so_far(Expr flat) {
  Attributes attributes;
  attributes.dims = {0};
  return flat.emitter->arithmetic(Primitive::kCumsum, {flat}, flat.shape(), attributes);
}

}  // namespace

Expr places(Expr mask) {
  const InIntegers integers(*mask.emitter);
  const Expr flat = reshape(mask, {mask.count()});
  return select(flat, trues_so_far(flat) - 1.0, mask.emitter->constant(-1));
}

Expr chosen(Expr mask, std::int64_t rows) {
  Emitter& emitter = *mask.emitter;
  const InIntegers integers(emitter);
  const Expr place = places(mask), own = iota(emitter, {mask.count(), 1}, 0, 1, Format::kInt64);
  const Expr positions = reshape(scatter_add(own, place, rows, Format::kInt64), {rows});
  emitter.ranges().set(positions.id, {-1, static_cast<double>(mask.count())});
  const Expr last = reduce(Primitive::kAmax, place, {0});
  emitter.graph().counts.push_back({last.id, static_cast<double>(rows - 1), emitter.node(last.id).origin});
  const Expr made = select(equal(last, static_cast<double>(rows - 1)), positions, emitter.constant(-1));
  emitter.ranges().set(made.id, {-1, static_cast<double>(mask.count())});
  return made;
}

Expr put_where(Expr x, std::size_t dim, Expr mask, Expr values, bool accumulate) {
  Emitter& emitter = *x.emitter;
  const Shape shape = x.shape();
  Shape along(shape.size(), 1), given = shape;
  along[dim] = mask.count();
  const std::size_t after = shape.size() - dim;  // Dimensions from `dim` on.
  if (values.rank() >= after) given[dim] = values.size(values.rank() - after);
  if (given[dim] != 1 && given[dim] != 0) {
    const Expr rows = exchanged(expand(values, given), 0, dim);
    Shape front = rows.shape();
    const Expr table = reshape(rows, {front[0], rows.count() / front[0]});
    Expr place = places(mask);
    {
      const InIntegers integers(emitter);
      place = maximum(place, emitter.constant(0));
    }
    front[0] = mask.count();
    values = exchanged(reshape(gather_rows(table, place), front), 0, dim);
  }
  values = expand(values, shape);
  if (accumulate) values = is_integer(x.format()) ? whole_sum(x, values, x.format()) : x + values;
  return select(reshape(mask, along), values, x);
}

}  // namespace plumbline
