// Interpolation of images (ATen: native/cpu/UpSampleKernel.cpp, native/UpSample.h).
#include <algorithm>
#include <cmath>

#include "server/lower/registry.h"
#include "server/lower/spatial.h"

namespace plumbline {
namespace {

using Sizes = std::vector<std::int64_t>;

// What each position along one dimension reads, and with which weights, [taps, positions].
struct Resampling {
  Taps taps;
  std::optional<Expr> weights;  // None: 1.
};

std::size_t spatial_of(Call& call) {
  const std::string_view name = call.base();
  if (name.find("1d") != std::string_view::npos) return 1;
  return name.find("3d") == std::string_view::npos ? 2 : 3;
}

// Source elements for each result element. Kernels form it in their compute format.
double scale_of(Call& call, std::size_t dim, std::size_t spatial, std::int64_t size, std::int64_t positions) {
  constexpr const char* kNames[] = {"scales_d", "scales_h", "scales_w"};
  const char* name = spatial == 1 ? "scales" : kNames[3 - spatial + dim];
  if (call.has(name) && call.real(name) > 0) return 1.0 / call.real(name);
  return static_cast<double>(size) / static_cast<double>(positions);
}

// floor(p scale), or floor((p + 1/2) scale) in the exact form.
Resampling nearest(Call& call, std::size_t dim, std::size_t spatial, std::int64_t size, std::int64_t positions) {
  const Format format = call.emitter().compute();
  const double half = call.base().find("exact") == std::string_view::npos ? 0 : 0.5;
  const double scale = round_to(format, scale_of(call, dim, spatial, size, positions));
  Resampling made{{size, 1, positions, {}}, std::nullopt};
  for (std::int64_t p = 0; p < positions; ++p) {
    const double source = std::floor(round_to(format, (static_cast<double>(p) + half) * scale));
    made.taps.coordinates.push_back(std::min(static_cast<std::int64_t>(source), size - 1));
  }
  return made;
}

// Where results read between source elements: at s = (p + half) scale - half, half being 1/2, or 0 with the scale of
// (size - 1) / (positions - 1) where corners are aligned. The scale is the exact quotient and its rounding in the
// kernel an error, as another program may have its coefficients from elsewhere. Floors are those that the kernel takes:
// where they differ from exact ones, s is an integer, or as good as one, and both give the same weights.
struct Coordinates {
  Coordinates(Call& call, std::size_t dim, std::size_t spatial, std::int64_t size, std::int64_t positions)
      : format(call.emitter().compute()), half(call.boolean("align_corners", false) ? 0 : 0.5), positions(positions) {
    scale = scale_of(call, dim, spatial, size, positions);
    if (half == 0) scale = positions > 1 ? static_cast<double>(size - 1) / static_cast<double>(positions - 1) : 0;
  }
  Expr sources(Emitter& emitter) const {
    const Expr scaled = iota(emitter, {positions}, half, 1, format) * scale;
    return half == 0 ? scaled : scaled - half;
  }
  double floor(std::int64_t p) const {
    const double scaled = round_to(format, (static_cast<double>(p) + half) * round_to(format, scale));
    return std::floor(round_to(format, scaled - half));
  }

  Format format;
  double half, scale = 0;
  std::int64_t positions;
};

// Between floor(s) and the next, s being at least 0. Weights are continuous in s: which floor a rounding takes does not
// matter.
Resampling linear(Call& call, std::size_t dim, std::size_t spatial, std::int64_t size, std::int64_t positions) {
  Emitter& emitter = call.emitter();
  const Format format = emitter.compute();
  const Coordinates along(call, dim, spatial, size, positions);
  Expr source = along.sources(emitter);
  if (along.half != 0) source = maximum(source, emitter.constant(0));
  Resampling made{{size, 2, positions, {}}, std::nullopt};
  std::vector<double> floors;
  for (std::int64_t p = 0; p < positions; ++p) {
    floors.push_back(std::clamp(along.floor(p), 0.0, static_cast<double>(size - 1)));
    made.taps.coordinates.push_back(static_cast<std::int64_t>(floors.back()));
  }
  for (std::int64_t p = 0; p < positions; ++p)
    made.taps.coordinates.push_back(std::min(made.taps.coordinates[static_cast<std::size_t>(p)] + 1, size - 1));
  // A 16-bit weight is rounded before it is taken from 1.
  const Expr after = cast(source - table(emitter, floors, {positions}, format), call.result_format());
  const Expr before = 1.0 - after;
  made.weights = assemble(emitter, {2, positions}, std::nullopt, {before, after},
                          {{{positions}, {1}, 0}, {{positions}, {1}, positions}}, format);
  return made;
}

// Keys' cubic convolution (1981) with a = -3/4 over the four elements around s, t = s - floor(s).
Resampling cubic(Call& call, std::size_t dim, std::size_t spatial, std::int64_t size, std::int64_t positions) {
  constexpr double kA = -0.75;
  Emitter& emitter = call.emitter();
  const Format format = emitter.compute();
  const Coordinates along(call, dim, spatial, size, positions);
  const Expr source = along.sources(emitter);
  Resampling made{{size, 4, positions, {}}, std::nullopt};
  std::vector<double> floors;
  for (std::int64_t p = 0; p < positions; ++p) floors.push_back(along.floor(p));
  for (std::int64_t tap = -1; tap <= 2; ++tap)
    for (const double floor : floors)
      made.taps.coordinates.push_back(std::clamp<std::int64_t>(static_cast<std::int64_t>(floor) + tap, 0, size - 1));
  const Expr t = source - table(emitter, floors, {positions}, format), rest = 1.0 - t;
  const auto near = [&](Expr x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1.0; };
  const auto far = [&](Expr x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
  const std::vector<Expr> weights{far(t + 1.0), near(t), near(rest), far(rest + 1.0)};
  std::vector<View> views;
  for (std::int64_t tap = 0; tap < 4; ++tap) views.push_back({{positions}, {1}, tap * positions});
  made.weights = assemble(emitter, {4, positions}, std::nullopt, weights, std::move(views), format);
  return made;
}

using Make = Resampling (*)(Call&, std::size_t, std::size_t, std::int64_t, std::int64_t);

std::vector<Resampling> resamplings(Call& call, Make make, const Shape& from, const Shape& to) {
  const std::size_t spatial = spatial_of(call);
  if (from.size() != spatial + 2 || to.size() != from.size() || count(from) == 0 || count(to) == 0)
    call.unsupported("shapes");
  std::vector<Resampling> made;
  for (std::size_t d = 0; d < spatial; ++d) made.push_back(make(call, d, spatial, from[d + 2], to[d + 2]));
  return made;
}

// One dimension after the other, the last one first.
template <Make make>
void lower_resample(Call& call) {
  Expr x = call.tensor("self");
  const Shape to = call.result_shape();
  const auto dims = resamplings(call, make, x.shape(), to);
  for (std::size_t d = dims.size(); d-- > 0;) {
    const Resampling& along = dims[d];
    const Expr front = exchanged(x, d + 2, x.rank() - 1);
    Shape shape = front.shape();
    const std::int64_t images = front.count() / along.taps.size;
    const Expr index = flat_index(call.emitter(), {along.taps});
    Expr cells = gather_cells(reshape(front, {images, along.taps.size}), index, true, 0);
    if (along.weights) {
      // Weights are kept, and their products added, in the input's own format.
      const Expr weights = cast(*along.weights, x.format());
      call.emitter().set_compute(x.format());
      const Expr weighted = cells * reshape(weights, {along.taps.taps, along.taps.positions, 1});
      cells = sum(weighted, {0});
    }
    shape.back() = along.taps.positions;
    x = exchanged(reshape(transposed(reshape(cells, {along.taps.positions, images})), shape), d + 2, shape.size() - 1);
  }
  call.returns(x);
}

// Each gradient goes, times the product of its weights, to all elements that its result was made of.
template <Make make>
void lower_resample_backward(Call& call) {
  const Expr dy = call.tensor("grad_output");
  const Shape shape = call.integers("input_size");
  const auto dims = resamplings(call, make, shape, dy.shape());
  Emitter& emitter = call.emitter();
  std::vector<Taps> taps;
  std::optional<Expr> weights;
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    taps.push_back(dims[d].taps);
    elements *= dims[d].taps.size;
    if (!dims[d].weights) continue;
    Shape along(2 * dims.size(), 1);
    along[d] = dims[d].taps.taps;
    along[dims.size() + d] = dims[d].taps.positions;
    const Expr own = reshape(*dims[d].weights, along);
    weights = weights ? *weights * own : own;
  }
  const Expr index = flat_index(emitter, taps);
  const std::int64_t positions = index.size(1), images = dy.count() / positions;
  const Expr by_position = reshape(transposed(reshape(dy, {images, positions})), {1, positions, images});
  const Expr cells = weights ? by_position * reshape(*weights, {index.size(0), positions, 1}) : by_position;
  call.returns(reshape(scatter_cells(cells, index, elements, emitter.compute()), shape));
}

}  // namespace

std::span<const Rule> resample_rules() {
  static const Rule kRules[] = {
      {"upsample_nearest1d", {"default"}, lower_resample<nearest>, kOut},
      {"upsample_nearest2d", {"default"}, lower_resample<nearest>, kOut},
      {"upsample_nearest3d", {"default"}, lower_resample<nearest>, kOut},
      {"_upsample_nearest_exact1d", {"default"}, lower_resample<nearest>},
      {"_upsample_nearest_exact2d", {"default"}, lower_resample<nearest>},
      {"_upsample_nearest_exact3d", {"default"}, lower_resample<nearest>},
      {"upsample_linear1d", {"default"}, lower_resample<linear>, kOut},
      {"upsample_bilinear2d", {"default"}, lower_resample<linear>, kOut},
      {"upsample_trilinear3d", {"default"}, lower_resample<linear>, kOut},
      {"upsample_bicubic2d", {"default"}, lower_resample<cubic>, kOut},
      {"upsample_nearest1d_backward", {"default"}, lower_resample_backward<nearest>},
      {"upsample_nearest2d_backward", {"default"}, lower_resample_backward<nearest>},
      {"upsample_nearest3d_backward", {"default"}, lower_resample_backward<nearest>},
      {"_upsample_nearest_exact1d_backward", {"default"}, lower_resample_backward<nearest>},
      {"_upsample_nearest_exact2d_backward", {"default"}, lower_resample_backward<nearest>},
      {"_upsample_nearest_exact3d_backward", {"default"}, lower_resample_backward<nearest>},
      {"upsample_linear1d_backward", {"default"}, lower_resample_backward<linear>},
      {"upsample_bilinear2d_backward", {"default"}, lower_resample_backward<linear>},
      {"upsample_trilinear3d_backward", {"default"}, lower_resample_backward<linear>},
      {"upsample_bicubic2d_backward", {"default"}, lower_resample_backward<cubic>},
  };
  return kRules;
}

}  // namespace plumbline
