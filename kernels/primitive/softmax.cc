#include "kernels/cpu/vector_math.h"
#include "kernels/primitive/error_model.h"
#include "kernels/primitive/noise.h"
#include "kernels/primitive/rows.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

template <bool kLog>
Array evaluate(const Attributes&, const Shape& shape, Inputs in) {
  const Array x = in[0].materialize();
  Array out = Array::uninitialized(shape);
  const Rows rows = rows_of(x);
  const std::int64_t n = rows.length;
  for_each_row(rows, [&](std::int64_t r) {
    const double* const from = x.data() + r * n;
    double* const to = out.data() + r * n;
    const double m = row_max(from, n);
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i] - m;
    if (!kLog) {
      cpu::vector_exp(to, to, n);
      const double total = row_sum(to, n);
      for (std::int64_t i = 0; i < n; ++i) to[i] /= total;
      return;
    }
    constexpr std::int64_t kTile = 256;
    double tile[kTile];
    double total = 0;
    for (std::int64_t begin = 0; begin < n; begin += kTile) {
      const std::int64_t length = std::min(kTile, n - begin);
      cpu::vector_exp(to + begin, tile, length);
      total += row_sum(tile, length);
    }
    cpu::vector_log(&total, &total, 1);
    for (std::int64_t i = 0; i < n; ++i) to[i] -= total;
  });
  return out;
}

// softmax: p (g - sum g p).  log_softmax: g - exp(t) sum g.
template <bool kLog>
void pull_back(const Attributes&, Inputs in, const Array& out, const Array& cotangent, std::span<Array* const> into) {
  if (!into[0]) return;
  const Array t = out.materialize();
  const Array g = cotangent.materialize();
  const bool accumulate = static_cast<bool>(*into[0]);
  if (accumulate) {
    make_writable(*into[0], in[0].shape());
  } else {
    *into[0] = Array::uninitialized(in[0].shape());
  }
  double* const target = into[0]->data();
  const Rows rows = rows_of(t);
  const std::int64_t n = rows.length;
  for_each_row(rows, [&](std::int64_t r) {
    const double* const tr = t.data() + r * n;
    const double* const gr = g.data() + r * n;
    double* const to = target + r * n;
    const double total = kLog ? row_sum(gr, n) : row_fold(n, [&](std::int64_t i) { return gr[i] * tr[i]; });
    constexpr std::int64_t kTile = 256;
    double p[kTile];
    for (std::int64_t begin = 0; begin < n; begin += kTile) {
      const std::int64_t length = std::min(kTile, n - begin);
      if (kLog) cpu::vector_exp(tr + begin, p, length);
      for (std::int64_t j = 0; j < length; ++j) {
        const std::int64_t i = begin + j;
        const double value = kLog ? gr[i] - p[j] * total : tr[i] * (gr[i] - total);
        to[i] = accumulate ? to[i] + value : value;
      }
    }
  });
}

constexpr PrimitiveTraits kRows[] = {
    {Primitive::kSoftmax, "softmax", 1, false, evaluate<false>, pull_back<false>, error_softmax, radius_softmax,
     noise_softmax},
    {Primitive::kLogSoftmax, "log_softmax", 1, false, evaluate<true>, pull_back<true>, error_log_softmax,
     radius_log_softmax, noise_log_softmax},
};

}  // namespace

std::span<const PrimitiveTraits> softmax_rows() { return kRows; }

}  // namespace plumbline::primitive
