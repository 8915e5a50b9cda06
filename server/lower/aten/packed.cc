// Rows of several lengths, packed step by step (ATen: native/PackedSequence.cpp): of each step the rows that are that
// long, one after the other.
#include "server/lower/mask.h"
#include "server/lower/registry.h"
#include "server/lower/spatial.h"

namespace plumbline {
namespace {

// As [steps, rows, width].
Expr by_step(Call& call, Expr x) {
  if (x.rank() < 2 || x.count() == 0) call.unsupported("no rows");
  const Expr turned = call.boolean("batch_first", false) ? exchanged(x, 0, 1) : x;
  const std::int64_t steps = turned.size(0), rows = turned.size(1);
  return reshape(turned, {steps, rows, x.count() / (steps * rows)});
}

// [steps, rows]: whether `place` along the one, an index, is below `limits` along the other.
Expr below(Emitter& emitter, const Shape& places, Expr limits) {
  const InIntegers integers(emitter);
  return compare(Primitive::kLess, iota(emitter, places, 0, 1, Format::kInt64), limits);
}

void lower_pack(Call& call) {
  const Expr x = by_step(call, call.tensor("input")), lengths = call.tensor("lengths");
  const std::int64_t steps = x.size(0), rows = x.size(1), width = x.size(2);
  const Shape shape = call.result_shape(0), sizes = call.result_shape(1);
  if (lengths.count() != rows || shape.empty() || sizes.size() != 1) call.unsupported("shapes");
  Emitter& emitter = call.emitter();
  const Expr kept = below(emitter, {steps, 1}, reshape(lengths, {1, rows}));
  const Expr places = chosen(kept, shape[0]);
  call.returns(0, reshape(gather_rows(reshape(x, {steps * rows, width}), places), shape));
  if (!call.wants(1)) return;
  const InIntegers integers(emitter);
  const Expr counted = sum(cast(narrow(kept, 0, 0, sizes[0]), Format::kInt64), {1});
  emitter.ranges().set(counted.id, {0, static_cast<double>(rows)});
  call.returns(1, reshape(counted, sizes));
}

void lower_pack_backward(Call& call) {
  const Expr gradient = call.tensor("grad"), sizes = call.tensor("batch_sizes");
  const Shape shape = call.result_shape();
  const bool first = call.boolean("batch_first", false);
  if (shape.size() < 2 || gradient.count() == 0) call.unsupported("no rows");
  const std::int64_t steps = shape[first ? 1 : 0], rows = shape[first ? 0 : 1], width = count(shape) / (steps * rows);
  const std::int64_t packed = gradient.count() / width, reached = sizes.count();
  Emitter& emitter = call.emitter();
  const Expr places = chosen(below(emitter, {1, rows}, reshape(sizes, {reached, 1})), packed);
  const Expr added = scatter_add(reshape(gradient, {packed, width}), places, reached * rows, gradient.format());
  const Expr whole = assemble(emitter, {steps, rows, width}, std::nullopt, {added},
                              {{{reached * rows, width}, {width, 1}, 0}}, gradient.format());
  Shape turned = shape;
  if (first) std::swap(turned[0], turned[1]);
  const Expr made = reshape(whole, turned);
  call.returns(first ? exchanged(made, 0, 1) : made);
}

}  // namespace

std::span<const Rule> packed_rules() {
  static const Rule kRules[] = {
      {"_pack_padded_sequence", {"default"}, lower_pack},
      {"_pack_padded_sequence_backward", {"default"}, lower_pack_backward},
  };
  return kRules;
}

}  // namespace plumbline
