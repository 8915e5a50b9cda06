// Pooling (ATen: native/cpu/AvgPoolKernel.cpp, MaxPoolKernel.cpp, AdaptiveAvgPoolKernel.cpp,
// AdaptiveMaxPoolKernel.cpp).
#include <algorithm>
#include <limits>

#include "server/lower/registry.h"
#include "server/lower/spatial.h"

namespace plumbline {
namespace {

using Sizes = std::vector<std::int64_t>;

// An input's last dimensions as images of `elements`, one for each of the other coordinates.
struct Images {
  Sizes sizes;
  std::int64_t count = 1, elements = 1;
};

Images images_of(Call& call, const Shape& shape, std::size_t spatial) {
  if (shape.size() < spatial || count(shape) == 0) call.unsupported("empty tensors");
  Images images{{shape.end() - static_cast<std::ptrdiff_t>(spatial), shape.end()}, 1, 1};
  for (std::int64_t size : images.sizes) images.elements *= size;
  images.count = count(shape) / images.elements;
  return images;
}

Expr flat_images(Expr x, const Images& images) { return reshape(x, {images.count, images.elements}); }

std::size_t spatial_of(Call& call) { return call.base().find("3d") == std::string_view::npos ? 2 : 3; }

Sizes last_sizes(const Shape& shape, std::size_t spatial) {
  if (shape.size() < spatial)
    throw LowerError("a result of " + std::to_string(spatial) + " dimensions and more was expected, found shape " +
                     to_string(shape));
  return {shape.end() - static_cast<std::ptrdiff_t>(spatial), shape.end()};
}

struct Windows {
  std::vector<Taps> dims;
  std::vector<Sizes> counted;  // How many elements a position's mean counts along each dimension.
  bool complete = true;
};

// One value for all dimensions or one for each; the kernel's where the stride is left out.
Sizes each(Call& call, const char* name, std::size_t spatial, const Sizes& otherwise) {
  Sizes values = call.integers(name);
  if (values.empty()) values = otherwise;
  if (values.size() == 1) values.assign(spatial, values[0]);
  if (values.size() != spatial) call.unsupported(std::string("length of ") + name);
  return values;
}

Windows windows_of(Call& call, const Images& images, const Sizes& positions) {
  const std::size_t spatial = images.sizes.size();
  const Sizes kernel = each(call, "kernel_size", spatial, {}), stride = each(call, "stride", spatial, kernel);
  const Sizes padding = each(call, "padding", spatial, {0}), dilation = each(call, "dilation", spatial, {1});
  const bool padded = call.boolean("count_include_pad", true);
  Windows windows;
  for (std::size_t d = 0; d < spatial; ++d) {
    const std::int64_t size = images.sizes[d];
    if (kernel[d] < 1 || stride[d] < 1 || dilation[d] < 1 || padding[d] < 0 || kernel[d] > size + 2 * padding[d])
      throw LowerError("argument 'kernel_size': windows within the padded input were expected, found " +
                       to_string(kernel) + " on " + to_string(images.sizes));
    Taps taps{size, kernel[d], positions[d], {}};
    for (std::int64_t t = 0; t < kernel[d]; ++t)
      for (std::int64_t p = 0; p < positions[d]; ++p) {
        const std::int64_t c = p * stride[d] - padding[d] + t * dilation[d];
        taps.coordinates.push_back(c >= 0 && c < size ? c : -1);
      }
    Sizes counted;
    for (std::int64_t p = 0; p < positions[d]; ++p) {
      const std::int64_t start = p * stride[d] - padding[d];
      const std::int64_t end = std::min(start + kernel[d], size + padding[d]);
      counted.push_back(padded ? end - start : std::min(end, size) - std::max<std::int64_t>(start, 0));
    }
    windows.complete = windows.complete && taps.complete();
    windows.dims.push_back(std::move(taps));
    windows.counted.push_back(std::move(counted));
  }
  return windows;
}

// Position p of `positions` reads from floor(p size / positions) to ceil((p + 1) size / positions).
Windows adaptive_windows(Call& call, const Images& images, const Sizes& positions) {
  Windows windows;
  for (std::size_t d = 0; d < positions.size(); ++d) {
    const std::int64_t size = images.sizes[d], n = positions[d];
    if (n < 1) call.unsupported("empty results");
    const auto start = [&](std::int64_t p) { return p * size / n; };
    const auto end = [&](std::int64_t p) { return ((p + 1) * size + n - 1) / n; };
    Sizes counted;
    std::int64_t longest = 0;
    for (std::int64_t p = 0; p < n; ++p) {
      counted.push_back(end(p) - start(p));
      longest = std::max(longest, counted.back());
    }
    Taps taps{size, longest, n, {}};
    for (std::int64_t t = 0; t < longest; ++t)
      for (std::int64_t p = 0; p < n; ++p) taps.coordinates.push_back(start(p) + t < end(p) ? start(p) + t : -1);
    windows.complete = windows.complete && taps.complete();
    windows.dims.push_back(std::move(taps));
    windows.counted.push_back(std::move(counted));
  }
  return windows;
}

// What sums over windows are divided by, [positions, 1] or one number.
Expr divisor(Call& call, const Windows& windows) {
  if (call.has("divisor_override")) return call.emitter().constant(call.real("divisor_override"));
  std::vector<double> products{1};
  for (const Sizes& counted : windows.counted) {
    std::vector<double> next;
    for (const double product : products)
      for (const std::int64_t n : counted) next.push_back(product * static_cast<double>(n));
    products = std::move(next);
  }
  const bool same = std::all_of(products.begin(), products.end(), [&](double n) { return n == products[0]; });
  if (same) return call.emitter().constant(products[0]);
  return table(call.emitter(), products, {static_cast<std::int64_t>(products.size()), 1}, call.emitter().compute());
}

// Adaptive kernels divide by one dimension's count after the other.
Expr divided(Call& call, Expr sums, const Windows& windows, bool adaptive) {
  if (!adaptive) return sums / divisor(call, windows);
  for (std::size_t d = 0; d < windows.counted.size(); ++d) {
    Windows one = windows;
    for (std::size_t other = 0; other < one.counted.size(); ++other)
      if (other != d) std::fill(one.counted[other].begin(), one.counted[other].end(), 1);
    sums = sums / divisor(call, one);
  }
  return sums;
}

template <bool adaptive>
Windows windows(Call& call, const Images& images, const Sizes& positions) {
  if constexpr (adaptive) return adaptive_windows(call, images, positions);
  return windows_of(call, images, positions);
}

template <bool adaptive>
void lower_average(Call& call) {
  const Expr x = call.tensor("self");
  const Images images = images_of(call, x.shape(), spatial_of(call));
  const Windows w = windows<adaptive>(call, images, last_sizes(call.result_shape(), images.sizes.size()));
  const Expr index = flat_index(call.emitter(), w.dims);
  const Expr cells = gather_cells(flat_images(x, images), index, w.complete, 0);
  // The kernel of volumes sums and divides in the input's own format (native/AdaptiveAveragePooling3d.cpp).
  if (adaptive && images.sizes.size() == 3) call.emitter().set_compute(x.format());
  const Expr sums = reshape(sum(cells, {0}), {index.size(1), images.count});
  call.returns(reshape(transposed(divided(call, sums, w, adaptive)), call.result_shape()));
}

template <bool adaptive>
void lower_average_backward(Call& call) {
  const Expr dy = call.tensor("grad_output");
  const Shape shape = call.tensor("self").shape();
  const Images images = images_of(call, shape, spatial_of(call));
  const Images results = images_of(call, dy.shape(), images.sizes.size());
  if (results.count != images.count) throw LowerError("argument 'grad_output': a gradient for each image was expected");
  const Windows w = windows<adaptive>(call, images, results.sizes);
  const Expr index = flat_index(call.emitter(), w.dims);
  // Divided and added one after the other in the gradient's own format.
  call.emitter().set_compute(dy.format());
  const Expr each = divided(call, transposed(flat_images(dy, results)), w, adaptive);
  const Expr cells =
      expand(reshape(each, {1, index.size(1), images.count}), {index.size(0), index.size(1), images.count});
  call.returns(reshape(scatter_cells(cells, index, images.elements, call.emitter().compute()), shape));
}

// The largest of each window, and where it lies in its image: a choice.
template <bool adaptive>
void lower_max(Call& call) {
  const Expr x = call.tensor("self");
  Emitter& emitter = call.emitter();
  const Images images = images_of(call, x.shape(), spatial_of(call));
  const Windows w = windows<adaptive>(call, images, last_sizes(call.result_shape(), images.sizes.size()));
  const Expr index = flat_index(emitter, w.dims);
  const std::int64_t positions = index.size(1);
  const Expr cells = gather_cells(flat_images(x, images), index, w.complete, -std::numeric_limits<double>::infinity());
  const Expr tap = reduce(Primitive::kArgmax, cells, {0});
  emitter.graph().nodes[tap.id].result = Format::kInt64;
  const Expr by_image = transposed(reshape(tap, {positions, images.count}));
  const InIntegers integers(emitter);
  const Expr cell = by_image * static_cast<double>(positions) + iota(emitter, {1, positions}, 0, 1, Format::kInt64);
  const Expr chosen = gather_rows(reshape(index, {index.count(), 1}), reshape(cell, {cell.count()}));
  const Expr base = iota(emitter, {images.count, 1}, 0, static_cast<double>(images.elements), Format::kInt64);
  const Expr position = reshape(reshape(chosen, {images.count, positions}) + base, {chosen.count()});
  const Expr column = reshape(x, {x.count(), 1});
  call.decides_index(chosen, {column, position, 1, images.elements});
  call.returns(0, reshape(gather_rows(column, position), call.result_shape()));
  if (call.wants(1)) call.returns(1, reshape(chosen, call.result_shape(1)));
}

void lower_max_backward(Call& call) {
  const Expr dy = call.tensor("grad_output"), chosen = call.tensor("indices");
  const Shape shape = call.tensor("self").shape();
  Emitter& emitter = call.emitter();
  const Images images = images_of(call, shape, spatial_of(call));
  if (chosen.shape() != dy.shape() || dy.count() % images.count != 0)
    throw LowerError("argument 'indices': shape " + to_string(dy.shape()) + " was expected, found " +
                     to_string(chosen.shape()));
  const InIntegers integers(emitter);
  const Expr base = iota(emitter, {images.count, 1}, 0, static_cast<double>(images.elements), Format::kInt64);
  const Expr position = reshape(chosen, {images.count, dy.count() / images.count}) + base;
  // Added one after the other in the gradient's own format.
  const Expr column = reshape(dy, {dy.count(), 1});
  const Expr added = scatter_add(column, reshape(position, {dy.count()}), count(shape), dy.format());
  call.returns(reshape(added, shape));
}

}  // namespace

std::span<const Rule> pool_rules() {
  constexpr auto kIndex = DecisionKind::kLastIndex;
  static const Rule kRules[] = {
      {"avg_pool2d", {"default"}, lower_average<false>, kOut},
      {"avg_pool3d", {"default"}, lower_average<false>, kOut},
      {"avg_pool2d_backward", {"default"}, lower_average_backward<false>},
      {"avg_pool3d_backward", {"default"}, lower_average_backward<false>},
      {"_adaptive_avg_pool2d", {"default"}, lower_average<true>},
      {"_adaptive_avg_pool3d", {"default"}, lower_average<true>},
      {"_adaptive_avg_pool2d_backward", {"default"}, lower_average_backward<true>},
      {"_adaptive_avg_pool3d_backward", {"default"}, lower_average_backward<true>},
      {"max_pool2d_with_indices", {"default"}, lower_max<false>, kFunctional, kIndex},
      {"max_pool3d_with_indices", {"default"}, lower_max<false>, kFunctional, kIndex},
      {"adaptive_max_pool2d", {"default"}, lower_max<true>, kFunctional, kIndex},
      {"adaptive_max_pool3d", {"default"}, lower_max<true>, kFunctional, kIndex},
      {"max_pool2d_with_indices_backward", {"default"}, lower_max_backward},
      {"max_pool3d_with_indices_backward", {"default"}, lower_max_backward},
      {"adaptive_max_pool2d_backward", {"default"}, lower_max_backward},
      {"adaptive_max_pool3d_backward", {"default"}, lower_max_backward},
  };
  return kRules;
}

}  // namespace plumbline
