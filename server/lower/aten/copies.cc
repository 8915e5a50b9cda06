// Copies of what views show, and matrices made of vectors (ATen: native/TensorShape.cpp,
// native/TensorTransformations.cpp, native/cpu/RenormKernel.cpp): nothing is computed but the trace.
#include <algorithm>

#include "server/lower/aten/cut.h"
#include "server/lower/registry.h"
#include "server/lower/view.h"

namespace plumbline {
namespace {

void lower_same(Call& call) { call.returns(call.tensor("self")); }
void lower_reshaped(Call& call) { call.returns(reshape(call.tensor("self"), call.result_shape())); }
void lower_expanded(Call& call) { call.returns(expand(call.tensor("self"), call.result_shape())); }

std::size_t wrapped_dim(Call& call, std::int64_t dim, std::size_t rank) {
  const auto n = std::max<std::int64_t>(1, static_cast<std::int64_t>(rank));
  if (dim < -n || dim >= n) call.unsupported("a dimension beyond the tensor's");
  return static_cast<std::size_t>(dim < 0 ? dim + n : dim);
}

void lower_permuted(Call& call) {
  const Expr x = call.tensor("self");
  std::vector<std::size_t> order;
  for (const std::int64_t dim : call.integers("dims")) order.push_back(wrapped_dim(call, dim, x.rank()));
  call.returns(permute(x, order));
}

void lower_transposed(Call& call) {
  const Expr x = call.tensor("self");
  if (x.rank() < 2) {
    call.returns(x);
    return;
  }
  const bool matrix = call.base() == "t_copy";
  call.returns(exchanged(x, matrix ? 0 : call.dim("dim0", x.rank(), 0), matrix ? 1 : call.dim("dim1", x.rank(), 1)));
}

template <ViewOf view_of>
void lower_cut(Call& call) {
  const Expr x = call.tensor("self");
  if (x.rank() == 0) call.unsupported("no dimension");
  const View view = view_of(call, x.shape());
  call.returns(call.emitter().window(x, view));
}

// Rows of a dimension, each a result.
void lower_unbound(Call& call) {
  const Expr x = call.tensor("self");
  if (x.rank() == 0) call.unsupported("no dimension");
  const std::size_t dim = call.dim("dim", x.rank(), 0);
  Shape shape = x.shape();
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(dim));
  for (std::int64_t i = 0; i < x.size(dim); ++i)
    call.returns(static_cast<std::size_t>(i), reshape(narrow(x, dim, i, 1), shape));
}

// Windows of `size` elements at each `step` along a dimension; what they hold becomes the last dimension.
void lower_unfolded(Call& call) {
  const Expr x = call.tensor("self");
  const std::int64_t size = call.integer("size", 1), step = call.integer("step", 1);
  if (x.rank() == 0) {
    call.returns(reshape(x, call.result_shape()));
    return;
  }
  const std::size_t dim = call.dim("dimension", x.rank(), 0);
  View view = row_major_view(x.shape());
  if (size > view.sizes[dim] || step < 1) call.unsupported("shapes");
  const std::int64_t stride = view.strides[dim];
  view.sizes[dim] = (view.sizes[dim] - size) / step + 1;
  view.strides[dim] = stride * step;
  view.sizes.push_back(size);
  view.strides.push_back(stride);
  call.returns(call.emitter().window(x, view));
}

// Vectors along the last dimension become diagonals of zeros.
void lower_diagonals(Call& call) {
  const Expr x = call.tensor("self");
  const Shape shape = call.result_shape();
  const View view = diagonal_view(call, shape, -2, -1);
  call.returns(assemble(call.emitter(), shape, std::nullopt, {x}, {view}, x.format()));
}

void lower_trace(Call& call) {
  const Expr x = call.tensor("self");
  const std::int64_t length = std::min(x.size(0), x.size(1));
  const Expr diagonal = call.emitter().window(x, {{length}, {x.size(1) + 1}, 0});
  if (is_integer(x.format())) call.unsupported("traces of integers");
  call.returns(reshape(sum(diagonal, {0}), {}));
}

// Matrices one after the other along the diagonal; vectors and numbers are rows.
void lower_blocks(Call& call) {
  const Shape shape = call.result_shape();
  const Format format = call.result_format();
  std::vector<Expr> pieces;
  std::vector<View> views;
  std::int64_t row = 0, column = 0;
  for (const Expr& tensor : call.tensors("tensors")) {
    const std::int64_t height = tensor.rank() == 2 ? tensor.size(0) : 1;
    const std::int64_t width = tensor.rank() == 0 ? 1 : tensor.size(tensor.rank() - 1);
    if (height > 0 && width > 0) {
      pieces.push_back(converted(reshape(tensor, {height, width}), format));
      views.push_back({{height, width}, {shape.at(1), 1}, row * shape.at(1) + column});
    }
    row += height;
    column += width;
  }
  call.returns(assemble(call.emitter(), shape, std::nullopt, pieces, std::move(views), format));
}

// Reversed along a dimension: a window cannot say it, since strides are never negative.
Expr reversed(Expr x, std::size_t dim) {
  const Expr front = exchanged(x, 0, dim);
  const std::int64_t rows = front.size(0);
  const Expr order = iota(*x.emitter, {rows}, static_cast<double>(rows - 1), -1, Format::kInt64);
  return exchanged(reshape(gather_rows(reshape(front, {rows, x.count() / rows}), order), front.shape()), 0, dim);
}

// Turns by quarters of a turn in the plane of two dimensions.
void lower_rotated(Call& call) {
  const Expr x = call.tensor("self");
  std::vector<std::int64_t> plane = call.integers("dims");
  if (plane.empty()) plane = {0, 1};
  if (plane.size() != 2 || x.rank() < 2 || x.count() == 0) call.unsupported("shapes");
  const std::size_t a = wrapped_dim(call, plane[0], x.rank()), b = wrapped_dim(call, plane[1], x.rank());
  const std::int64_t turns = ((call.integer("k", 1) % 4) + 4) % 4;
  Expr made = x;
  if (turns == 1) made = exchanged(reversed(x, b), a, b);
  if (turns == 2) made = reversed(reversed(x, a), b);
  if (turns == 3) made = exchanged(reversed(x, a), a, b);
  call.returns(made);
}

// Channels in `groups` rows are read column by column.
void lower_channel_shuffle(Call& call) {
  const Expr x = call.tensor("self");
  const std::int64_t groups = call.integer("groups", 1);
  if (x.rank() < 3 || groups < 1 || x.size(1) % groups != 0 || x.count() == 0) call.unsupported("shapes");
  const std::int64_t rest = x.count() / (x.size(0) * x.size(1));
  call.returns(reshape(exchanged(reshape(x, {x.size(0), groups, x.size(1) / groups, rest}), 1, 2), x.shape()));
}

}  // namespace

std::span<const Rule> copy_rules() {
  static const Rule kRules[] = {
      {"alias_copy", {"default"}, lower_same, kOut},
      {"detach_copy", {"default"}, lower_same, kOut},
      {"lift_fresh_copy", {"default"}, lower_same, kOut},
      {"expand_copy", {"default"}, lower_expanded, kOut},
      {"squeeze_copy", {"default", "dim", "dims"}, lower_reshaped, kOut},
      {"unsqueeze_copy", {"default"}, lower_reshaped, kOut},
      {"permute_copy", {"default"}, lower_permuted, kOut},
      {"transpose_copy", {"int"}, lower_transposed, kOut},
      {"t_copy", {"default"}, lower_transposed, kOut},
      {"select_copy", {"int"}, lower_cut<select_view>, kOut},
      {"slice_copy", {"Tensor"}, lower_cut<slice_view>, kOut},
      {"diagonal_copy", {"default"}, lower_cut<main_diagonal_view>, kOut},
      {"unbind_copy", {"int"}, lower_unbound, kOut},
      {"unfold_copy", {"default"}, lower_unfolded, kOut},
      {"diag_embed", {"default"}, lower_diagonals, kOut},
      {"trace", {"default"}, lower_trace, kOut},
      {"block_diag", {"default"}, lower_blocks, kOut},
      {"rot90", {"default"}, lower_rotated, kOut},
      {"channel_shuffle", {"default"}, lower_channel_shuffle, kOut},
      {"native_channel_shuffle", {"default"}, lower_channel_shuffle},
  };
  return kRules;
}

}  // namespace plumbline
