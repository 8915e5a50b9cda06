// Copies, joins, cuts and casts: nothing is computed (ATen: native/TensorShape.cpp, native/Copy.cpp).
#include <algorithm>

#include "server/lower/aten/cut.h"
#include "server/lower/registry.h"
#include "server/lower/view.h"

namespace plumbline {
namespace {

void lower_copy(Call& call) { call.returns(converted(call.tensor("self"), call.result_format())); }

void lower_copy_from(Call& call) {
  const Expr source = converted(call.tensor("src"), call.result_format());
  call.returns(expand(source, call.result_shape()));
}

// The same elements in the result's shape.
void lower_reshape(Call& call) { call.returns(reshape(call.tensor("self"), call.result_shape())); }

void lower_cat(Call& call) {
  std::vector<Expr> tensors = call.tensors("tensors");
  const Shape shape = call.result_shape();
  const Format format = call.result_format();
  // Empty vectors join anything.
  std::erase_if(tensors, [&](const Expr& t) { return t.rank() == 1 && t.count() == 0 && shape.size() != 1; });
  if (tensors.empty() || shape.empty()) call.unsupported("nothing to join");
  const std::size_t dim = call.dim("dim", shape.size(), 0);
  std::vector<View> views;
  std::int64_t start = 0;
  const Shape strides = row_major_strides(shape);
  for (Expr& t : tensors) {
    t = converted(t, format);
    if (t.rank() != shape.size())
      throw LowerError("tensors of the rank of " + to_string(shape) + " were expected, found " + to_string(t.shape()));
    views.push_back({t.shape(), strides, start * strides[dim]});
    start += t.size(dim);
  }
  if (start != shape[dim])
    throw LowerError(std::to_string(shape[dim]) + " rows were expected, found " + std::to_string(start));
  call.returns(assemble(call.emitter(), shape, std::nullopt, tensors, std::move(views), format));
}

void lower_split_copy(Call& call) {
  const Expr x = call.tensor("self");
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  std::int64_t start = 0;
  std::size_t output = 0;
  for (const std::int64_t size : call.integers("split_sizes")) {
    call.returns(output++, narrow(x, dim, start, size));
    start += size;
  }
}

// Each tensor's rows, padded with zeros to a multiple of the chunks, as one row a chunk; these side by side.
void lower_chunk_cat(Call& call) {
  const std::int64_t chunks = call.integer("num_chunks", 0);
  const Shape shape = call.result_shape();
  if (call.integer("dim", 0) != 0 || shape.size() != 2 || shape[0] != chunks || chunks == 0)
    call.unsupported("chunks of another dimension than the first, or of tensors");
  const Format format = call.result_format();
  std::vector<Expr> pieces;
  std::int64_t total = 0;
  for (const Expr& tensor : call.tensors("tensors")) {
    const Expr x = converted(tensor, format);
    if (x.rank() == 0 || x.count() == 0) call.unsupported("a tensor without rows");
    const std::int64_t row = x.count() / x.size(0), width = (x.size(0) + chunks - 1) / chunks * row;
    const Expr flat = reshape(x, {x.count()});
    pieces.push_back(assemble(call.emitter(), {chunks, width}, std::nullopt, {flat}, {{{x.count()}, {1}, 0}}, format));
    total += width;
  }
  std::vector<View> views;
  std::int64_t start = 0;
  for (const Expr& piece : pieces) {
    views.push_back({piece.shape(), {total, 1}, start});
    start += piece.size(1);
  }
  if (total != shape[1])
    throw LowerError(std::to_string(shape[1]) + " elements a chunk were expected, found " + std::to_string(total));
  call.returns(assemble(call.emitter(), shape, std::nullopt, pieces, std::move(views), format));
}

void lower_stack(Call& call) {
  std::vector<Expr> tensors = call.tensors("tensors");
  const Shape shape = call.result_shape();
  const Format format = call.result_format();
  const std::size_t dim = call.dim("dim", shape.size(), 0);
  if (shape.empty() || shape[dim] != static_cast<std::int64_t>(tensors.size()))
    throw LowerError(std::to_string(tensors.size()) + " tensors along dimension " + std::to_string(dim) +
                     " were expected, found " + to_string(shape));
  std::vector<View> views;
  View piece{shape, row_major_strides(shape), 0};
  const std::int64_t stride = piece.strides[dim];
  piece.sizes.erase(piece.sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  piece.strides.erase(piece.strides.begin() + static_cast<std::ptrdiff_t>(dim));
  for (Expr& t : tensors) {
    t = converted(t, format);
    views.push_back(piece);
    piece.offset += stride;
  }
  call.returns(assemble(call.emitter(), shape, std::nullopt, tensors, std::move(views), format));
}

// The gradient of a cut: zeros around it.
template <ViewOf view_of>
void lower_cut_backward(Call& call) {
  const Expr gradient = call.tensor("grad_output");
  const Shape shape = call.integers("input_sizes");
  if (shape.empty()) call.unsupported("no dimension");
  const View view = view_of(call, shape);
  call.returns(assemble(call.emitter(), shape, std::nullopt, {gradient}, {view}, gradient.format()));
}

// self with a cut replaced.
template <ViewOf view_of>
void lower_cut_replaced(Call& call) {
  const Expr self = call.tensor("self"), source = converted(call.tensor("src"), self.format());
  if (self.rank() == 0) call.unsupported("no dimension");
  const View view = view_of(call, self.shape());
  call.returns(assemble(call.emitter(), self.shape(), self, {source}, {view}, self.format()));
}

void lower_constant_pad(Call& call) {
  Expr x = call.tensor("self");
  const auto pad = call.integers("pad");
  const Shape shape = call.result_shape();
  if (pad.size() % 2 != 0 || pad.size() / 2 > x.rank()) call.unsupported("padding of more dimensions than there are");
  View view{{}, row_major_strides(shape), 0};
  // Negative padding cuts.
  for (std::size_t i = 0; i < pad.size() / 2; ++i) {
    const std::size_t dim = x.rank() - 1 - i;
    const std::int64_t before = pad[2 * i], after = pad[2 * i + 1];
    const std::int64_t cut_before = std::max<std::int64_t>(0, -before), cut_after = std::max<std::int64_t>(0, -after);
    x = narrow(x, dim, cut_before, x.size(dim) - cut_before - cut_after);
    view.offset += std::max<std::int64_t>(0, before) * view.strides.at(dim);
  }
  view.sizes = x.shape();
  if (x.count() == 0) view.offset = 0;
  std::optional<Expr> around;
  if (call.real("value", 0) != 0) around = expand(call.stored("value"), shape);
  call.returns(assemble(call.emitter(), shape, around, {x}, {view}, x.format()));
}

// The tensor `repeats` times along each dimension.
void lower_repeat(Call& call) {
  const Expr x = call.tensor("self");
  const auto repeats = call.integers("repeats");
  if (repeats.size() < x.rank()) call.unsupported("fewer repeats than dimensions");
  Shape sizes(repeats.size() - x.rank(), 1);
  for (std::int64_t size : x.shape()) sizes.push_back(size);
  Shape spread, expanded, shape;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    spread.insert(spread.end(), {1, sizes[d]});
    expanded.insert(expanded.end(), {repeats[d], sizes[d]});
    shape.push_back(repeats[d] * sizes[d]);
  }
  call.returns(reshape(expand(reshape(x, spread), expanded), shape));
}

// Zero above (tril) or below (triu) a diagonal of the last two dimensions.
template <bool lower>
void lower_triangle(Call& call) {
  const Expr x = call.tensor("self");
  if (x.rank() < 2) call.unsupported("fewer than two dimensions");
  Emitter& emitter = call.emitter();
  const double diagonal = static_cast<double>(call.integer("diagonal", 0));
  const Expr rows = iota(emitter, {x.size(x.rank() - 2), 1}, diagonal, 1, Format::kInt64);
  const Expr columns = iota(emitter, {1, x.size(x.rank() - 1)}, 0, 1, Format::kInt64);
  const Format outer = emitter.compute();
  emitter.set_compute(Format::kInt64);
  const Expr keep = compare(lower ? Primitive::kLessEqual : Primitive::kGreaterEqual, columns, rows);
  emitter.set_compute(outer);
  call.returns(select(keep, x, emitter.constant(0, x.format())));
}

// The last `shift` elements along a dimension before the others.
Expr rolled(Expr x, std::size_t dim, std::int64_t by) {
  const std::int64_t size = x.size(dim), shift = ((by % size) + size) % size;
  if (shift == 0) return x;
  const Shape shape = x.shape(), strides = row_major_strides(shape);
  const Expr head = narrow(x, dim, 0, size - shift), tail = narrow(x, dim, size - shift, shift);
  return assemble(*x.emitter, shape, std::nullopt, {tail, head},
                  {{tail.shape(), strides, 0}, {head.shape(), strides, shift * strides[dim]}}, x.format());
}

void lower_roll(Call& call) {
  const Expr x = call.tensor("self");
  const auto shifts = call.integers("shifts"), dims = call.integers("dims");
  if (x.count() == 0) {
    call.returns(x);
    return;
  }
  if (dims.empty()) {
    if (shifts.size() != 1) call.unsupported("shifts without dimensions");
    call.returns(reshape(rolled(reshape(x, {x.count()}), 0, shifts[0]), x.shape()));
    return;
  }
  if (dims.size() != shifts.size() || x.rank() == 0) call.unsupported("shifts without dimensions");
  Expr made = x;
  for (std::size_t i = 0; i < dims.size(); ++i)
    made = rolled(made, static_cast<std::size_t>(dims[i] < 0 ? dims[i] + static_cast<std::int64_t>(x.rank()) : dims[i]),
                  shifts[i]);
  call.returns(made);
}

void lower_narrow_copy(Call& call) {
  const Expr x = call.tensor("self");
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  const std::int64_t start = call.integer("start", 0), size = x.rank() == 0 ? 0 : x.size(dim);
  call.returns(narrow(x, dim, start < 0 ? start + size : start, call.integer("length", 0)));
}

// Groups of r^2 channels become squares of r by r positions, or the reverse (`apart`).
template <bool apart>
void lower_pixel_shuffle(Call& call) {
  const Expr x = call.tensor("self");
  const std::int64_t r = call.integer(apart ? "downscale_factor" : "upscale_factor", 1);
  const Shape out = call.result_shape();
  const Shape &small = apart ? out : x.shape(), &large = apart ? x.shape() : out;
  if (x.rank() < 3 || out.size() != x.rank() || r < 1 || x.count() == 0) call.unsupported("shapes");
  const std::size_t d = x.rank() - 3;
  const std::int64_t channels = large[d], h = small[d + 1], w = small[d + 2];
  const std::int64_t lead = x.count() / (channels * r * r * h * w);
  call.returns(reshape(apart ? permute(reshape(x, {lead, channels, h, r, w, r}), {0, 1, 3, 5, 2, 4})
                             : permute(reshape(x, {lead, channels, r, r, h, w}), {0, 1, 4, 2, 5, 3}),
                       out));
}

}  // namespace

std::span<const Rule> movement_rules() {
  static const Rule kRules[] = {
      {"clone", {"default"}, lower_copy},
      {"_to_copy", {"default"}, lower_copy},
      {"contiguous", {"default"}, lower_copy},
      {"copy", {"default"}, lower_copy_from, kInPlace | kForeach},
      {"narrow_copy", {"default"}, lower_narrow_copy, kOut},
      {"_unsafe_view", {"default"}, lower_reshape},
      {"view_copy", {"default"}, lower_reshape},
      {"_reshape_copy", {"default"}, lower_reshape},
      {"cat", {"default"}, lower_cat, kOut},
      {"stack", {"default"}, lower_stack, kOut},
      {"split_with_sizes_copy", {"default"}, lower_split_copy, kOut},
      {"_chunk_cat", {"default"}, lower_chunk_cat, kOut},
      {"slice_backward", {"default"}, lower_cut_backward<slice_view>},
      {"select_backward", {"default"}, lower_cut_backward<select_view>},
      {"diagonal_backward", {"default"}, lower_cut_backward<main_diagonal_view>},
      {"slice_scatter", {"default"}, lower_cut_replaced<slice_view>},
      {"select_scatter", {"default"}, lower_cut_replaced<select_view>},
      {"diagonal_scatter", {"default"}, lower_cut_replaced<main_diagonal_view>},
      {"constant_pad_nd", {"default"}, lower_constant_pad},
      {"repeat", {"default"}, lower_repeat},
      {"tril", {"default"}, lower_triangle<true>, kInPlace | kOut},
      {"triu", {"default"}, lower_triangle<false>, kInPlace | kOut},
      {"roll", {"default"}, lower_roll},
      {"pixel_shuffle", {"default"}, lower_pixel_shuffle<false>},
      {"pixel_unshuffle", {"default"}, lower_pixel_shuffle<true>},
  };
  return kRules;
}

}  // namespace plumbline
