// Convolutions as matrix products (ATen: native/Convolution.cpp): the patches that a kernel meets are one overlapping
// window on the padded input. Spatial dimensions: one to three.
#include <algorithm>
#include <functional>
#include <numeric>

#include "server/lower/registry.h"

namespace plumbline {
namespace {

using Sizes = std::vector<std::int64_t>;

struct Geometry {
  std::size_t spatial = 0;
  std::int64_t groups = 1;
  Sizes stride, padding, dilation;
};

// One value for all dimensions or one for each.
Sizes each(Call& call, const char* name, std::size_t spatial) {
  Sizes values = call.integers(name);
  if (values.size() == 1) values.assign(spatial, values[0]);
  if (values.size() != spatial) call.unsupported(std::string("length of ") + name);
  return values;
}

Geometry geometry_of(Call& call, const Expr& input, const Expr& weight) {
  Geometry g;
  if (input.rank() < 3 || input.rank() > 5 || weight.rank() != input.rank()) call.unsupported("shapes");
  const bool transposed = call.boolean("transposed", false);
  g.spatial = input.rank() - 2;
  g.groups = call.integer("groups", 1);
  g.stride = each(call, "stride", g.spatial);
  g.padding = each(call, "padding", g.spatial);
  g.dilation = each(call, "dilation", g.spatial);
  for (std::size_t d = 0; d < g.spatial; ++d)
    if (g.stride[d] < 1 || g.dilation[d] < 1 || g.padding[d] < 0) call.unsupported("stride, padding or dilation");
  if (g.groups < 1 || input.count() == 0 || weight.count() == 0) call.unsupported("empty tensors");
  if (input.size(1) != (transposed ? weight.size(0) : weight.size(1) * g.groups) || weight.size(0) % g.groups != 0)
    throw LowerError("channels that fit the weight's shape " + to_string(weight.shape()) + " were expected, found " +
                     to_string(input.shape()));
  return g;
}

// Zeros around x: `before` and `after` along each spatial dimension, `gap` - 1 between neighbours.
Expr spaced(Expr x, const Sizes& before, const Sizes& after, const Sizes& gap) {
  Shape shape = x.shape();
  bool same = true;
  for (std::size_t d = 0; d < before.size(); ++d) {
    shape[d + 2] = before[d] + (shape[d + 2] - 1) * gap[d] + 1 + after[d];
    same = same && shape[d + 2] == x.size(d + 2);
  }
  if (same) return x;
  View view{x.shape(), row_major_strides(shape), 0};
  for (std::size_t d = 0; d < before.size(); ++d) {
    view.offset += before[d] * view.strides[d + 2];
    view.strides[d + 2] *= gap[d];
  }
  return assemble(*x.emitter, shape, std::nullopt, {x}, {view}, x.format());
}

Sizes spatial_of(const Shape& shape) { return {shape.begin() + 2, shape.end()}; }

Sizes ones(std::size_t n) { return Sizes(n, 1); }

std::int64_t product_of(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

// Matrices of `groups`, which have no dimension of their own where there is but one: adjoints know plain matrices.
Shape matrices(std::int64_t groups, std::int64_t rows, std::int64_t columns) {
  return groups == 1 ? Shape{rows, columns} : Shape{groups, rows, columns};
}

// What each tap of a kernel meets at each position, read from a padded tensor.
struct Patches {
  Expr padded;
  std::int64_t groups;
  Sizes taps, tap_step, positions, position_step;

  std::int64_t samples() const { return padded.size(0); }
  std::int64_t channels() const { return padded.size(1) / groups; }  // The channels of a group.

  // [groups, channels * taps, samples * positions], or channels within taps.
  Expr of_batch(bool taps_first = false) const {
    View view{{groups}, {strides().group}, 0};
    add_kernel(&view, taps_first);
    add(&view, {samples()}, {strides().sample});
    add(&view, positions, strides().positions);
    return reshape(padded.emitter->window(padded, view),
                   matrices(groups, channels() * product_of(taps), samples() * product_of(positions)));
  }

  // [samples, groups, channels * taps, positions]: no copy where a kernel of one tap walks step by step.
  Expr of_each(bool taps_first = false) const {
    View view{{samples(), groups}, {strides().sample, strides().group}, 0};
    add_kernel(&view, taps_first);
    add(&view, positions, strides().positions);
    Shape shape = matrices(groups, channels() * product_of(taps), product_of(positions));
    shape.insert(shape.begin(), samples());
    return reshape(padded.emitter->window(padded, view), shape);
  }

  // [samples, groups, taps, channels, positions]
  Expr of_samples() const {
    const Strides at = strides();
    View view{{samples(), groups}, {at.sample, at.group}, 0};
    add(&view, taps, at.taps);
    add(&view, {channels()}, {at.channel});
    add(&view, positions, at.positions);
    return reshape(padded.emitter->window(padded, view),
                   {samples(), groups, product_of(taps), channels(), product_of(positions)});
  }

 private:
  struct Strides {
    std::int64_t sample, group, channel;
    Sizes taps, positions;
  };

  Strides strides() const {
    const Shape of = row_major_strides(padded.shape());
    Strides at{of[0], of[1] * channels(), of[1], {}, {}};
    for (std::size_t d = 0; d < taps.size(); ++d) {
      at.taps.push_back(tap_step[d] * of[d + 2]);
      at.positions.push_back(position_step[d] * of[d + 2]);
    }
    return at;
  }

  void add_kernel(View* view, bool taps_first) const {
    const Strides at = strides();
    if (!taps_first) add(view, {channels()}, {at.channel});
    add(view, taps, at.taps);
    if (taps_first) add(view, {channels()}, {at.channel});
  }

  static void add(View* view, const Sizes& sizes, const Sizes& strides) {
    view->sizes.insert(view->sizes.end(), sizes.begin(), sizes.end());
    view->strides.insert(view->strides.end(), strides.begin(), strides.end());
  }
};

// What the forward product meets.
Patches forward_patches(const Expr& input, const Expr& weight, const Geometry& g, const Sizes& positions) {
  const Expr padded = spaced(input, g.padding, g.padding, ones(g.spatial));
  return {padded, g.groups, spatial_of(weight.shape()), g.dilation, positions, g.stride};
}

// [groups, channels, samples * positions] of an image-like tensor, and back: of what a product of whole batches takes
// and gives.
Expr gathered(const Expr& x, std::int64_t groups) {
  const std::int64_t n = x.size(0), channels = x.size(1), positions = x.count() / (n * channels);
  return reshape(exchanged(reshape(x, {n, channels, positions}), 0, 1),
                 matrices(groups, channels / groups, n * positions));
}

Expr spread(const Expr& x, const Shape& shape) {
  return reshape(exchanged(reshape(x, {shape[1], shape[0], x.count() / (shape[0] * shape[1])}), 0, 1), shape);
}

Sizes positions_of(const Shape& input, const Expr& weight, const Geometry& g) {
  Sizes positions;
  for (std::size_t d = 0; d < g.spatial; ++d) {
    const std::int64_t reach = g.dilation[d] * (weight.size(d + 2) - 1) + 1;
    const std::int64_t room = input[d + 2] + 2 * g.padding[d] - reach;
    if (room < 0) throw LowerError("a kernel within the padded input " + to_string(input) + " was expected");
    positions.push_back(room / g.stride[d] + 1);
  }
  return positions;
}

// Each output channel has one; kernels begin their sums with it.
using Bias = std::optional<Expr>;

// As it lies beside a product of [groups, channels, ...].
Bias beside(const Bias& bias, const Geometry& g) {
  return bias ? Bias(reshape(*bias, matrices(g.groups, bias->count() / g.groups, 1))) : Bias();
}

// kernels [groups, rows, channels * taps] with what they meet, as an image-like tensor of `shape`. Small images are
// taken together, so that kernels are read once and no product is small.
Expr applied(const Expr& kernels, const Patches& patches, bool taps_first, const Bias& bias, const Shape& shape) {
  constexpr std::int64_t kPositionsMin = 64;
  if (product_of(patches.positions) >= kPositionsMin || patches.samples() == 1)
    return reshape(matmul(kernels, patches.of_each(taps_first), bias), shape);
  return spread(matmul(kernels, patches.of_batch(taps_first), bias), shape);
}

Expr convolved(const Expr& input, const Expr& weight, const Bias& bias, const Geometry& g) {
  const Sizes positions = positions_of(input.shape(), weight, g);
  const std::int64_t outputs = weight.size(0);
  const Expr rows = reshape(weight, matrices(g.groups, outputs / g.groups, weight.count() / outputs));
  Shape shape{input.size(0), outputs};
  shape.insert(shape.end(), positions.begin(), positions.end());
  return applied(rows, forward_patches(input, weight, g, positions), false, beside(bias, g), shape);
}

bool is_narrow(const Expr& x) { return traits(x.format()).precision < traits(compute_format(x.format())).precision; }

// Without a library that has arithmetic in a 16-bit format (oneDNN on processors below AVX-512, or switched off), a
// product over the channels is rounded to columns, whose taps are added in that format (native/im2col.h,
// native/vol2col.h), beginning or ending with the bias; gradients of weight and bias are rounded after each sample
// (native/ConvolutionMM2d.cpp, native/NaiveConvolutionTranspose2d.cpp, native/NaiveDilatedConvolution.cpp). In fp32 and
// fp64 that is an order of one sum like others.
//
// Where the trace does not tell, either is legal, and the parts are the wider: with s_t the parts, n all products and
// t = sum s_t, one sum errs by n u |A||B| + u_o |t|. The parts are charged as many terms (part_of), which is
// sum_t n u |A_t||B_t| = n u |A||B|, and their last addition, or for one tap its rounding, as u_o |t|.
bool adds_in_parts(Call& call, const Expr& x) {
  if (!is_narrow(x) || call.op().summation == Summation::kWhole) return false;
  if (call.op().summation == Summation::kUnknown) call.leave_untold();
  return true;
}

Expr part_of(std::int64_t terms, Expr sum) {
  sum.emitter->graph().nodes[sum.id].attributes.size = terms;
  return sum;
}

// Taps meet in an order that hangs on the layout.
Expr sum_of_taps(Format format, Expr x) {
  const ComputeIn own(*x.emitter, format);
  return sum(x, {2});
}

// Samples are added in their order, each by a product that begins with what it finds (beta = 1): c + s is rounded to
// the result's format, s is not.
Expr sum_of_samples(Format format, Expr x) {
  Expr total = x.emitter->rounded(narrow(x, 0, 0, 1), format);
  for (std::int64_t i = 1; i < x.size(0); ++i) total = x.emitter->rounded(total + narrow(x, 0, i, 1), format);
  return total;
}

// x [n, g, parts, c, p] with one part more, the bias.
Expr with_bias(const Expr& x, const Expr& bias, const Geometry& g) {
  const Shape from = x.shape();
  Shape shape = from;
  ++shape[2];
  const Shape strides = row_major_strides(shape);
  const Expr beside_parts = reshape(bias, {1, g.groups, 1, from[3], 1});
  const Expr part = expand(beside_parts, {from[0], from[1], 1, from[3], from[4]});
  return assemble(*x.emitter, shape, std::nullopt, {x, part},
                  {{from, strides, 0}, {part.shape(), strides, from[2] * strides[2]}}, x.format());
}

// The gradient of a convolution's input, which has `shape`: each input element meets the kernel's taps in reverse, in
// the output's gradient spread by the stride. Reversed rows of taps are gathered, since strides are never negative.
Expr input_gradient(Call& call, const Expr& dy, const Shape& shape, const Expr& weight, const Bias& bias,
                    const Geometry& g) {
  Emitter& emitter = *dy.emitter;
  const std::int64_t outputs = weight.size(0), inner = weight.size(1), each_group = outputs / g.groups;
  const Sizes taps = spatial_of(weight.shape());
  const std::int64_t tap_count = product_of(taps);
  Sizes before, after;
  for (std::size_t d = 0; d < g.spatial; ++d) {
    const std::int64_t reach = g.dilation[d] * (taps[d] - 1);
    // Padding of the forward pass cuts the gradient's border; what the last position left over is met by zeros.
    before.push_back(reach);
    const std::int64_t spread = reach + (dy.size(d + 2) - 1) * g.stride[d] + 1;
    const std::int64_t needed = g.padding[d] + shape[d + 2] + reach;
    after.push_back(std::max<std::int64_t>(0, needed - spread));
  }
  Expr padded = spaced(dy, before, after, g.stride);
  for (std::size_t d = 0; d < g.spatial; ++d)
    padded = narrow(padded, d + 2, g.padding[d], padded.size(d + 2) - g.padding[d]);
  const Patches patches{padded, g.groups, taps, g.dilation, spatial_of(shape), ones(g.spatial)};
  // weight [outputs, inner, taps] as rows of taps, [taps, outputs * inner], last tap first.
  Expr by_tap = permute(reshape(weight, {outputs, inner, tap_count}), {2, 0, 1});
  if (tap_count > 1)
    by_tap = gather_rows(reshape(by_tap, {tap_count, outputs * inner}),
                         iota(emitter, {tap_count}, static_cast<double>(tap_count - 1), -1, Format::kInt64));
  const Expr of_groups = exchanged(reshape(by_tap, {tap_count, g.groups, each_group, inner}), 0, 1);
  if (adds_in_parts(call, dy)) {
    const std::int64_t terms = each_group * tap_count + (bias ? 1 : 0);
    const Expr part = part_of(terms, matmul(transposed(of_groups), patches.of_samples()));
    const Expr held = part.emitter->rounded(part, dy.format());
    return reshape(sum_of_taps(dy.format(), bias ? with_bias(held, *bias, g) : held), shape);
  }
  const Expr rows = transposed(reshape(of_groups, matrices(g.groups, tap_count * each_group, inner)));
  return applied(rows, patches, true, beside(bias, g), shape);
}

Expr weight_gradient(Call& call, const Expr& dy, const Expr& input, const Expr& weight, const Geometry& g) {
  const Sizes positions = spatial_of(dy.shape());
  const Patches patches = forward_patches(input, weight, g, positions);
  const std::int64_t n = input.size(0), outputs = weight.size(0), each_group = outputs / g.groups;
  if (adds_in_parts(call, dy)) {
    const std::int64_t p = product_of(positions);
    const Expr left = reshape(dy, {n, g.groups, each_group, p});
    // [n, groups, outputs, taps, channels]
    const Expr columns = patches.of_samples();
    const std::int64_t inner = columns.size(3), tap_count = columns.size(2);
    const Expr right = reshape(columns, {n, g.groups, tap_count * inner, p});
    const Expr each_sample = part_of(n * p, matmul(left, transposed(right)));
    const Expr by_channel = exchanged(reshape(each_sample, {n, g.groups, each_group, tap_count, inner}), 3, 4);
    return reshape(sum_of_samples(dy.format(), by_channel), weight.shape());
  }
  // Batch and positions are summed by one product.
  return reshape(matmul(gathered(dy, g.groups), transposed(patches.of_batch())), weight.shape());
}

// What a convolution by the weight gives `wide`.
Shape narrow_shape(const Shape& wide, const Expr& weight, const Geometry& g) {
  Shape shape{wide[0], weight.size(0)};
  for (std::int64_t position : positions_of(wide, weight, g)) shape.push_back(position);
  return shape;
}

// A transposed convolution is the input's gradient of a convolution by the same weight: `wide` is what it gives.
Shape wide_shape(Call& call, const Expr& input, const Expr& weight, const Geometry& g) {
  const Sizes extra = each(call, "output_padding", g.spatial);
  Shape shape{input.size(0), weight.size(1) * g.groups};
  for (std::size_t d = 0; d < g.spatial; ++d)
    shape.push_back((input.size(d + 2) - 1) * g.stride[d] - 2 * g.padding[d] +
                    g.dilation[d] * (weight.size(d + 2) - 1) + extra[d] + 1);
  const Shape read = narrow_shape(shape, weight, g);
  if (std::ranges::any_of(shape, [](std::int64_t size) { return size < 1; }) || read[1] != input.size(1) ||
      !std::ranges::equal(read, input.shape(), std::greater_equal<>()))
    call.unsupported("output_padding");
  return shape;
}

// Zeros behind each dimension, up to `shape`: where output_padding is a stride or more, the convolution that a
// transposed one turns round has positions of which it got nothing.
Expr padded_to(Expr x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return assemble(*x.emitter, shape, std::nullopt, {x}, {{x.shape(), row_major_strides(shape), 0}}, x.format());
}

Expr cut_to(Expr x, const Shape& shape) {
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (x.size(d) != shape[d]) x = narrow(x, d, 0, shape[d]);
  return x;
}

// With cuDNN the bias is added to what the convolution held (native/Convolution.cpp), which 16-bit formats round; one
// sum that begins with it errs less.
void lower_convolution(Call& call) {
  const Expr input = call.tensor("input"), weight = call.tensor("weight");
  const Geometry g = geometry_of(call, input, weight);
  const Bias bias = call.optional_tensor("bias");
  const bool transposed = call.boolean("transposed", false);
  const bool apart = bias && is_narrow(input) && call.op().summation != Summation::kInParts;
  const Bias within = apart ? Bias() : bias;
  const auto given = [&] {
    if (!transposed) return convolved(input, weight, within, g);
    const Shape wide = wide_shape(call, input, weight, g);
    return input_gradient(call, padded_to(input, narrow_shape(wide, weight, g)), wide, weight, within, g);
  };
  Expr result = given();
  if (apart) {
    Shape beside_all(result.rank(), 1);
    beside_all[1] = bias->count();
    result = result.emitter->rounded(result, input.format()) + reshape(*bias, beside_all);
  }
  call.returns(result);
}

void lower_convolution_backward(Call& call) {
  const Expr dy = call.tensor("grad_output"), input = call.tensor("input"), weight = call.tensor("weight");
  const Geometry g = geometry_of(call, input, weight);
  const bool transposed = call.boolean("transposed", false);
  const Shape expected = transposed ? wide_shape(call, input, weight, g) : narrow_shape(input.shape(), weight, g);
  if (dy.shape() != expected)
    throw LowerError("argument 'grad_output': shape " + to_string(expected) + " was expected, found " +
                     to_string(dy.shape()));
  if (call.wants(0))
    call.returns(0, transposed ? cut_to(convolved(dy, weight, {}, g), input.shape())
                               : input_gradient(call, dy, input.shape(), weight, {}, g));
  if (call.wants(1))
    call.returns(1, transposed
                        ? weight_gradient(call, padded_to(input, narrow_shape(expected, weight, g)), dy, weight, g)
                        : weight_gradient(call, dy, input, weight, g));
  if (call.wants(2)) {
    std::vector<std::int64_t> dims{0};
    for (std::size_t d = 0; d < g.spatial; ++d) dims.push_back(static_cast<std::int64_t>(d + 2));
    const bool in_parts = adds_in_parts(call, dy);
    if (in_parts) dims.erase(dims.begin());
    const Expr sums = sum(dy, dims);
    if (in_parts) part_of(dy.count() / dy.size(1), sums);
    call.returns(2, reshape(in_parts ? sum_of_samples(dy.format(), sums) : sums, {dy.size(1)}));
  }
}

}  // namespace

std::span<const Rule> convolution_rules() {
  static const Rule kRules[] = {
      {"convolution", {"default"}, lower_convolution},
      {"convolution_backward", {"default"}, lower_convolution_backward},
  };
  return kRules;
}

}  // namespace plumbline
