#include "kernels/primitive/error_model.h"
#include "kernels/primitive/noise.h"
#include "kernels/primitive/rows.h"
#include "kernels/primitive/support.h"

namespace plumbline::primitive {
namespace {

template <bool kLog>
struct Evaluate {
  std::int64_t n;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t r, double* out, const double* x) const {
    const double* const from = x + r * n;
    double* const to = out + r * n;
    const double m = team.max(n, from);
    const auto below = [=](std::int64_t i) { return from[i] - m; };
    if (kLog) {
      const double total = team.log(team.sum_exp(n, below, [](std::int64_t, double e) { return e; }));
      team.each(n, [=](std::int64_t i) { to[i] = from[i] - m - total; });
      return;
    }
    team.each_exp(n, below, [=](std::int64_t i, double e) { to[i] = e; });
    const double total = team.sum(n, [=](std::int64_t i) { return to[i]; });
    team.each(n, [=](std::int64_t i) { to[i] /= total; });
  }
};

template <bool kLog>
Array evaluate(const Attributes&, const Shape& shape, Inputs in) {
  const Array x = in[0].materialize();
  Array out = Array::uninitialized(shape);
  const Rows rows = rows_of(x);
  loop::for_each_row(rows.count, rows.length, out, Evaluate<kLog>{rows.length}, x);
  return out;
}

// softmax: p (g - sum g p).  log_softmax: g - exp(t) sum g.
template <bool kLog>
struct PullBack {
  std::int64_t n;
  bool add;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t r, double* out, const double* t, const double* g) const {
    const double *const tr = t + r * n, *const gr = g + r * n;
    double* const to = out + r * n;
    const bool more = add;
    if (kLog) {
      const double total = team.sum(n, [=](std::int64_t i) { return gr[i]; });
      team.each_exp(
          n, [=](std::int64_t i) { return tr[i]; },
          [=](std::int64_t i, double p) { to[i] = (more ? to[i] : 0.0) + (gr[i] - p * total); });
      return;
    }
    const double total = team.sum(n, [=](std::int64_t i) { return gr[i] * tr[i]; });
    team.each(n, [=](std::int64_t i) { to[i] = (more ? to[i] : 0.0) + tr[i] * (gr[i] - total); });
  }
};

template <bool kLog>
void pull_back(const Attributes&, Inputs in, const Array& out, const Array& cotangent, std::span<Array* const> into) {
  if (!into[0]) return;
  const Array t = out.materialize();
  const Array g = cotangent.materialize();
  const bool add = static_cast<bool>(*into[0]);
  if (add) {
    make_writable(*into[0], in[0].shape());
  } else {
    *into[0] = Array::uninitialized(in[0].shape());
  }
  const Rows rows = rows_of(t);
  loop::for_each_row(rows.count, rows.length, *into[0], PullBack<kLog>{rows.length, add}, t, g);
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
