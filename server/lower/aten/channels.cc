#include "server/lower/aten/channels.h"

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

}  // namespace plumbline
