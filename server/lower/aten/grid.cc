// Images sampled along a grid of coordinates (ATen: native/cpu/GridSamplerKernel.cpp).
#include "server/lower/registry.h"
#include "server/lower/spatial.h"

namespace plumbline {
namespace {

enum Interpolation : std::int64_t { kBilinear = 0, kNearest = 1 };
enum Padding : std::int64_t { kZeros = 0, kBorder = 1, kReflection = 2 };

// Bilinear weights need not know which pixels a point lies between: of three neighbours, the middle one less than a
// pixel away, hats give the same sum whichever is the middle. It is the cell that begins this much before a pixel,
// which keeps its border away from the simple fractions of regular grids.
constexpr double kGoldenSection = 0.6180339887498949;

// One coordinate of all points, [images, points].
struct Axis {
  std::int64_t size = 0;
  double scale = 1;            // Pixels by unit of the grid.
  Expr unclamped, at;          // In pixels; reflected.
  std::optional<Expr> turned;  // Not 0 where reflection runs against the grid.
};

struct Samples {
  std::int64_t images = 0, channels = 0, points = 0;
  Axis y, x;
  std::int64_t interpolation = kBilinear, padding = kZeros;
};

Expr clamped(Expr x, Expr low, Expr high) { return minimum(maximum(x, low), high); }

Axis axis_of(Call& call, const Samples& samples, std::int64_t which, std::int64_t size) {
  Emitter& emitter = call.emitter();
  const bool corners = call.boolean("align_corners", false);
  const auto n = static_cast<double>(size), half = corners ? (n - 1) / 2 : n / 2;
  const Expr coordinate = reshape(narrow(call.tensor("grid"), 3, which, 1), {samples.images, samples.points});
  Axis axis{size, half, (coordinate + 1.0) * half, {}, std::nullopt};
  if (!corners) axis.unclamped = axis.unclamped - 0.5;
  axis.at = axis.unclamped;
  if (samples.padding == kZeros) {  // Nothing is further away than two pixels.
    axis.at = clamped(axis.at, emitter.constant(-2, Format::kInt64), emitter.constant(n + 1, Format::kInt64));
    return axis;
  }
  if (samples.padding == kReflection) {
    const double low = corners ? 0 : -0.5, period = 4 * half;
    if (period == 0) call.unsupported("reflection in one pixel");
    const Expr offset = axis.at - low, away = abs(offset);
    const Expr rest = away - unary(Primitive::kTrunc, away / period) * period, back = period - rest;
    axis.unclamped = axis.at = minimum(rest, back) + low;
    axis.turned = compare(Primitive::kNotEqual, offset < 0.0, compare(Primitive::kGreater, rest, back));
  }
  axis.at = clamped(axis.at, emitter.constant(0), emitter.constant(n - 1));
  return axis;
}

Samples samples_of(Call& call) {
  const Shape image = call.tensor("input").shape(), grid = call.tensor("grid").shape();
  Samples samples;
  samples.interpolation = call.integer("interpolation_mode", kBilinear);
  samples.padding = call.integer("padding_mode", kZeros);
  if (samples.interpolation != kBilinear && samples.interpolation != kNearest) call.unsupported("bicubic");
  if (samples.padding < kZeros || samples.padding > kReflection) call.unsupported("padding");
  if (image.size() != 4 || grid.size() != 4 || count(image) == 0 || count(grid) == 0) call.unsupported("empty images");
  if (grid[0] != image[0] || grid[3] != 2)
    throw LowerError("argument 'grid': two coordinates of points in " + std::to_string(image[0]) +
                     " images were expected, found " + to_string(grid));
  samples.images = image[0];
  samples.channels = image[1];
  samples.points = grid[1] * grid[2];
  // Kernels round 16-bit coordinates and weights after each step.
  call.emitter().set_compute(call.tensor("input").format());
  samples.x = axis_of(call, samples, 0, image[3]);
  samples.y = axis_of(call, samples, 1, image[2]);
  return samples;
}

// Pixels along one axis for each point, [taps, images, points].
struct Pixels {
  Expr pixel, inside, weight;
};

Expr integer_part(Expr x, Primitive rounding, double shift) {
  const ComputeIn exactly(*x.emitter, Format::kFloat64);
  return cast(unary(rounding, shift == 0 ? x : x + shift), Format::kInt64);
}

// `taps` pixels from `first`, counted from `base`; they may lie outside of the image.
Expr pixels_from(Expr base, std::int64_t first, std::int64_t taps) {
  const InIntegers integers(*base.emitter);
  const Expr tap = iota(*base.emitter, {taps, 1, 1}, static_cast<double>(first), 1, Format::kInt64);
  return reshape(base, {1, base.size(0), base.size(1)}) + tap;
}

Pixels weighted(const Axis& axis, Expr pixel, Expr weight) {
  Emitter& emitter = *pixel.emitter;
  const InIntegers integers(emitter);
  const Expr first = emitter.constant(0), last = emitter.constant(static_cast<double>(axis.size - 1));
  const Expr inside =
      logical_and(compare(Primitive::kGreaterEqual, pixel, first), compare(Primitive::kLessEqual, pixel, last));
  return {clamped(pixel, first, last), inside, weight};
}

Expr along_taps(const Axis& axis) { return reshape(axis.at, {1, axis.at.size(0), axis.at.size(1)}); }

// max(0, 1 - |distance|)
Pixels hats(const Axis& axis) {
  const Expr pixel = pixels_from(integer_part(axis.at, Primitive::kFloor, kGoldenSection), -1, 3);
  const Expr distance = abs(along_taps(axis) - pixel);
  return weighted(axis, pixel, maximum(1.0 - distance, axis.at.emitter->constant(0)));
}

Pixels nearest(const Axis& axis) {
  const Expr pixel = pixels_from(integer_part(axis.at, Primitive::kRound, 0), 0, 1);
  return weighted(axis, pixel, axis.at.emitter->constant(1));
}

// What the hats' weights change by along the axis.
Pixels slopes(const Axis& axis) {
  const Expr pixel = pixels_from(integer_part(axis.at, Primitive::kFloor, 0), 0, 2);
  return weighted(axis, pixel, iota(*axis.at.emitter, {2, 1, 1}, -1, 2, Format::kInt64));
}

// [taps, images * points]: rows of the image's pixels and their weights, 0 outside of it.
struct Cells {
  Expr row, inside, weight;
};

Cells cells_of(const Samples& samples, const Pixels& y, const Pixels& x) {
  Emitter& emitter = *y.pixel.emitter;
  const std::int64_t high = y.pixel.size(0), wide = x.pixel.size(0);
  const std::int64_t images = samples.images, points = samples.points;
  const auto vertical = [&](Expr v) { return v.rank() == 0 ? v : reshape(v, {high, 1, v.size(1), v.size(2)}); };
  const auto horizontal = [&](Expr v) { return v.rank() == 0 ? v : reshape(v, {1, wide, v.size(1), v.size(2)}); };
  const Shape all{high, wide, images, points}, flat{high * wide, images * points};
  const auto flattened = [&](Expr v) { return reshape(expand(v, all), flat); };
  const Expr inside = logical_and(vertical(y.inside), horizontal(x.inside));
  const Expr weight = select(inside, vertical(y.weight) * horizontal(x.weight), emitter.constant(0));
  const InIntegers integers(emitter);
  const auto pixels = static_cast<double>(samples.y.size * samples.x.size);
  const Expr image = iota(emitter, {1, 1, images, 1}, 0, pixels, Format::kInt64);
  const Expr row = vertical(y.pixel) * static_cast<double>(samples.x.size) + horizontal(x.pixel) + image;
  return {flattened(row), flattened(inside), flattened(weight)};
}

Cells cells_of(const Samples& samples) {
  const bool hard = samples.interpolation == kNearest;
  return cells_of(samples, hard ? nearest(samples.y) : hats(samples.y), hard ? nearest(samples.x) : hats(samples.x));
}

Expr weights(const Cells& cells) { return reshape(cells.weight, {cells.row.size(0), cells.row.size(1), 1}); }

// [taps, images * points, channels]
Expr read(Call& call, const Samples& samples, const Cells& cells) {
  const Expr image = call.tensor("input");
  const Expr rows = reshape(permute(image, {0, 2, 3, 1}), {image.count() / samples.channels, samples.channels});
  return reshape(gather_rows(rows, reshape(cells.row, {cells.row.count()})),
                 {cells.row.size(0), cells.row.size(1), samples.channels});
}

// [images, points, channels] to [images, channels, height, width]
Expr channels_first(Expr x, const Shape& shape) {
  return permute(reshape(x, {shape[0], shape[2], shape[3], shape[1]}), {0, 3, 1, 2});
}

void lower_grid_sampler(Call& call) {
  const Samples samples = samples_of(call);
  const Cells cells = cells_of(samples);
  call.returns(channels_first(sum(read(call, samples, cells) * weights(cells), {0}), call.result_shape()));
}

// How the gradient of an axis's coordinate reaches the grid: nothing beyond a border.
Expr unpadded(const Samples& samples, const Axis& axis, Expr gradient) {
  const Expr scaled = gradient * axis.scale;
  if (samples.padding == kZeros) return scaled;
  const Expr between = logical_and(axis.unclamped > 0.0, axis.unclamped < static_cast<double>(axis.size - 1));
  return select(between, axis.turned ? select(*axis.turned, -scaled, scaled) : scaled, scaled.emitter->constant(0));
}

void lower_grid_sampler_backward(Call& call) {
  const Samples samples = samples_of(call);
  Emitter& emitter = call.emitter();
  const std::int64_t positions = samples.images * samples.points;
  const Expr dy = reshape(permute(call.tensor("grad_output"), {0, 2, 3, 1}), {1, positions, samples.channels});
  if (call.wants(0)) {
    const Cells cells = cells_of(samples);
    const Expr parts = cast(weights(cells) * dy, dy.format());
    const Expr row = [&] {
      const InIntegers integers(emitter);
      return reshape(select(cells.inside, cells.row, emitter.constant(-1)), {cells.row.count()});
    }();
    const Shape shape = call.result_shape(0);
    const Expr added =
        scatter_add(reshape(parts, {row.count(), samples.channels}), row, count(shape) / samples.channels, dy.format());
    call.returns(0, channels_first(added, shape));
  }
  if (!call.wants(1)) return;
  const Shape shape = call.result_shape(1);
  if (samples.interpolation == kNearest) return call.returns(1, expand(emitter.constant(0), shape));
  const auto slope = [&](const Cells& cells, const Axis& axis) {
    const Expr parts = read(call, samples, cells) * weights(cells) * dy;
    return unpadded(samples, axis, reshape(sum(parts, {0, 2}), {samples.images, samples.points}));
  };
  const Expr x = slope(cells_of(samples, hats(samples.y), slopes(samples.x)), samples.x);
  const Expr y = slope(cells_of(samples, slopes(samples.y), hats(samples.x)), samples.y);
  const View even{{samples.images, samples.points}, {2 * samples.points, 2}, 0};
  View odd = even;
  odd.offset = 1;
  const Format own = dy.format();
  call.returns(1, assemble(emitter, shape, std::nullopt, {cast(x, own), cast(y, own)}, {even, odd}, own));
}

// Along one axis of the grid: from -1 to 1, the pixels' middles or, where corners are aligned, the first and last
// one's.
Expr base_axis(Emitter& emitter, std::int64_t size, bool corners, Format format) {
  const auto n = static_cast<double>(size);
  const Expr place = iota(emitter, {size}, 0, 1, Format::kInt64);
  if (size == 1) return expand(emitter.constant(0, format), {1});
  const Expr aligned = place * (2 / (n - 1)) - 1.0;
  return corners ? aligned : aligned * ((n - 1) / n);
}

// Points of a regular grid, [points, dimensions + 1] with a 1, mapped by theta [images, dimensions, dimensions + 1].
// The product is a matrix's: under autocast its operands are in 16 bits.
void lower_affine_grid(Call& call) {
  const Expr theta = call.tensor("theta");
  const Shape size = call.integers("size"), shape = call.result_shape();
  const std::size_t dims = size.size() < 2 ? 0 : size.size() - 2;
  if (theta.rank() != 3 || dims < 2 || dims > 3 || count(shape) == 0) call.unsupported("shapes");
  Emitter& emitter = call.emitter();
  const Format format = call.result_format();
  const bool corners = call.boolean("align_corners", false);
  const Shape points(size.begin() + 2, size.end());
  Shape columns = points;
  columns.push_back(static_cast<std::int64_t>(dims) + 1);
  const Shape strides = row_major_strides(columns);
  std::vector<Expr> pieces;
  std::vector<View> views;
  for (std::size_t d = 0; d <= dims; ++d) {  // x first.
    Shape along(dims, 1);
    if (d < dims) along[dims - 1 - d] = points[dims - 1 - d];
    const Expr axis = d < dims ? reshape(base_axis(emitter, points[dims - 1 - d], corners, theta.format()), along)
                               : emitter.constant(1, theta.format());
    pieces.push_back(cast(cast(expand(axis, points), theta.format()), format));
    View view{points, strides, static_cast<std::int64_t>(d)};
    view.strides.pop_back();
    views.push_back(view);
  }
  const Expr base = assemble(emitter, columns, std::nullopt, pieces, std::move(views), format);
  const Expr flat = reshape(base, {1, count(points), static_cast<std::int64_t>(dims) + 1});
  call.returns(reshape(matmul(flat, transposed(cast(theta, format))), shape));
}

}  // namespace

std::span<const Rule> grid_rules() {
  static const Rule kRules[] = {
      {"grid_sampler_2d", {"default"}, lower_grid_sampler},
      {"affine_grid_generator", {"default"}, lower_affine_grid, kOut},
      {"grid_sampler_2d_backward", {"default"}, lower_grid_sampler_backward},
  };
  return kRules;
}

}  // namespace plumbline
