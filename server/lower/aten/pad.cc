// Padding with what lies inside, and windows laid out as columns (ATen: native/cpu/PaddingKernel.cpp,
// native/Im2Col.cpp).
#include <algorithm>

#include "server/lower/registry.h"
#include "server/lower/spatial.h"

namespace plumbline {
namespace {

using Sizes = std::vector<std::int64_t>;

// Where a position beyond the ends of an image's coordinate is read.
using Fold = std::int64_t (*)(std::int64_t, std::int64_t);

std::int64_t reflected(std::int64_t at, std::int64_t size) {
  const std::int64_t inside = at < 0 ? -at : at;
  return inside >= size ? 2 * (size - 1) - inside : inside;
}

std::int64_t replicated(std::int64_t at, std::int64_t size) { return std::clamp<std::int64_t>(at, 0, size - 1); }

struct Padding {
  std::vector<Taps> dims;
  std::int64_t images = 1, elements = 1, positions = 1;
};

// `padding` lists the last dimension first, before and after it.
Padding padding_of(Call& call, const Shape& shape, Fold fold) {
  const Sizes amounts = call.integers("padding");
  const std::size_t spatial = amounts.size() / 2;
  if (amounts.size() % 2 != 0 || spatial == 0 || shape.size() < spatial || count(shape) == 0)
    call.unsupported("shapes");
  Padding made;
  for (std::size_t d = shape.size() - spatial; d < shape.size(); ++d) {
    const std::size_t pair = 2 * (shape.size() - 1 - d);
    const std::int64_t before = amounts[pair], size = shape[d], positions = size + before + amounts[pair + 1];
    if (positions < 1) call.unsupported("nothing is left");
    Taps taps{size, 1, positions, {}};
    for (std::int64_t p = 0; p < positions; ++p) {
      const std::int64_t at = fold(p - before, size);
      if (at < 0 || at >= size) call.unsupported("padding beyond the image");
      taps.coordinates.push_back(at);
    }
    made.dims.push_back(std::move(taps));
    made.elements *= size;
    made.positions *= positions;
  }
  made.images = count(shape) / made.elements;
  return made;
}

template <Fold fold>
void lower_pad(Call& call) {
  const Expr x = call.tensor("self");
  const Padding padding = padding_of(call, x.shape(), fold);
  const Expr index = flat_index(call.emitter(), padding.dims);
  const Expr cells = gather_cells(reshape(x, {padding.images, padding.elements}), index, true, 0);
  call.returns(reshape(transposed(reshape(cells, {padding.positions, padding.images})), call.result_shape()));
}

// Each gradient goes to the element that its result was. 16-bit ones are added in their own format.
template <Fold fold>
void lower_pad_backward(Call& call) {
  const Expr dy = call.tensor("grad_output");
  const Shape shape = call.result_shape();
  const Padding padding = padding_of(call, shape, fold);
  const Expr index = flat_index(call.emitter(), padding.dims);
  const Expr cells =
      reshape(transposed(reshape(dy, {padding.images, padding.positions})), {1, padding.positions, padding.images});
  call.returns(reshape(scatter_cells(cells, index, padding.elements, dy.format()), shape));
}

struct Windows {
  std::vector<Taps> dims;
  std::int64_t taps = 1, positions = 1, elements = 1;
  bool complete = true;
};

Windows windows_of(Call& call, std::int64_t height, std::int64_t width) {
  Windows made;
  const auto each = [&](const char* name) {
    Sizes values = call.integers(name);
    if (values.size() == 1) values.push_back(values[0]);
    if (values.size() != 2) call.unsupported(std::string("length of ") + name);
    return values;
  };
  const Sizes kernel = each("kernel_size"), dilation = each("dilation"), padding = each("padding"),
              stride = each("stride"), sizes{height, width};
  for (std::size_t d = 0; d < 2; ++d) {
    if (kernel[d] < 1 || dilation[d] < 1 || stride[d] < 1 || padding[d] < 0) call.unsupported("windows");
    const std::int64_t room = sizes[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1;
    if (room < 0) call.unsupported("windows larger than the image");
    Taps taps{sizes[d], kernel[d], room / stride[d] + 1, {}};
    for (std::int64_t t = 0; t < taps.taps; ++t)
      for (std::int64_t p = 0; p < taps.positions; ++p) {
        const std::int64_t at = p * stride[d] - padding[d] + t * dilation[d];
        taps.coordinates.push_back(at < 0 || at >= sizes[d] ? -1 : at);
      }
    made.complete = made.complete && taps.complete();
    made.taps *= taps.taps;
    made.positions *= taps.positions;
    made.elements *= taps.size;
    made.dims.push_back(std::move(taps));
  }
  return made;
}

// [n, channels, height, width] -> [n, channels taps, positions]
void lower_im2col(Call& call) {
  const Expr x = call.tensor("self");
  if (x.rank() < 3 || x.count() == 0) call.unsupported("shape");
  const Windows windows = windows_of(call, x.size(x.rank() - 2), x.size(x.rank() - 1));
  const std::int64_t images = x.count() / windows.elements;
  const Expr cells = gather_cells(reshape(x, {images, windows.elements}), flat_index(call.emitter(), windows.dims),
                                  windows.complete, 0);
  call.returns(reshape(permute(cells, {2, 0, 1}), call.result_shape()));
}

// Its transpose: columns are added up.
void lower_col2im(Call& call) {
  const Expr columns = call.tensor("self");
  const Sizes size = call.integers("output_size");
  if (size.size() != 2 || columns.count() == 0) call.unsupported("shape");
  const Windows windows = windows_of(call, size[0], size[1]);
  const std::int64_t images = columns.count() / windows.taps / windows.positions;
  const Expr cells = permute(reshape(columns, {images, windows.taps, windows.positions}), {1, 2, 0});
  const Expr index = flat_index(call.emitter(), windows.dims);
  call.returns(reshape(scatter_cells(cells, index, windows.elements, columns.format()), call.result_shape()));
}

}  // namespace

std::span<const Rule> pad_rules() {
  static const Rule kRules[] = {
      {"reflection_pad1d", {"default"}, lower_pad<reflected>, kOut},
      {"reflection_pad2d", {"default"}, lower_pad<reflected>, kOut},
      {"reflection_pad3d", {"default"}, lower_pad<reflected>, kOut},
      {"replication_pad1d", {"default"}, lower_pad<replicated>, kOut},
      {"replication_pad2d", {"default"}, lower_pad<replicated>, kOut},
      {"replication_pad3d", {"default"}, lower_pad<replicated>, kOut},
      {"reflection_pad1d_backward", {"default"}, lower_pad_backward<reflected>},
      {"reflection_pad2d_backward", {"default"}, lower_pad_backward<reflected>},
      {"reflection_pad3d_backward", {"default"}, lower_pad_backward<reflected>},
      {"replication_pad1d_backward", {"default"}, lower_pad_backward<replicated>},
      {"replication_pad2d_backward", {"default"}, lower_pad_backward<replicated>},
      {"replication_pad3d_backward", {"default"}, lower_pad_backward<replicated>},
      {"im2col", {"default"}, lower_im2col, kOut},
      {"col2im", {"default"}, lower_col2im, kOut},
  };
  return kRules;
}

}  // namespace plumbline
