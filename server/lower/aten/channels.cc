#include "server/lower/aten/channels.h"

#include <algorithm>

#include "server/lower/view.h"

namespace plumbline {

std::vector<std::int64_t> batch_dims(const Expr& x) {
  std::vector<std::int64_t> dims;
  for (std::size_t d = 0; d < x.rank(); ++d)
    if (d != 1) dims.push_back(static_cast<std::int64_t>(d));
  return dims;
}

Expr per_channel(Expr vector, const Expr& x) {
  Shape shape(x.rank(), 1);
  shape[1] = x.size(1);
  return reshape(vector, shape);
}

MemoryOrder memory_order(Call& call, std::initializer_list<std::string_view> names) {
  auto [rows, channels_last] = MemoryOrder{};
  for (const TraceArgument& argument : call.op().arguments) {
    if (std::find(names.begin(), names.end(), argument.name) == names.end()) continue;
    const auto* tensor = std::get_if<TensorRef>(&argument.value);
    if (tensor == nullptr) return {false, false};
    const View view = canonical(tensor->view);
    View last{view.sizes, row_major_strides(view.sizes), view.offset};
    rows = rows && view == canonical(last);
    if (view.sizes.size() != 4 && view.sizes.size() != 5) {
      channels_last = false;
      continue;
    }
    Shape sizes = view.sizes;
    sizes.push_back(sizes[1]);
    sizes.erase(sizes.begin() + 1);
    const Shape strides = row_major_strides(sizes);
    last.strides[0] = strides[0];
    last.strides[1] = strides.back();
    for (std::size_t d = 2; d < sizes.size(); ++d) last.strides[d] = strides[d - 1];
    channels_last = channels_last && view == canonical(last);
  }
  return {rows, channels_last};
}

Expr sum_of_gradients(Call& call, const Expr& x, Expr terms, bool products) {
  constexpr int kExchanges = 9;
  const auto dims = batch_dims(x);
  const auto [rows, channels_last] = memory_order(call, {"input", "grad_out"});
  const bool side_by_side = channels_last || (rows && x.count() == x.size(0) * x.size(1));
  const bool narrow = compute_format(x.format()) != x.format() && !call.base().starts_with("cudnn");
  if (side_by_side || !narrow) return sum(terms, dims);
  return narrowed_sum(terms, dims, x.format(), kExchanges + (products ? 1 : 0));
}

}  // namespace plumbline
