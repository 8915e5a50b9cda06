// Discrete Fourier transforms (ATen: native/mkl/SpectralOps.cpp, native/SpectralOps.cpp). A transform along a dimension
// is a product with a table of roots of unity. A fast transform adds the same terms in a tree, and rounds less than
// what is allowed here, a sum of n terms.
#include <cmath>
#include <numbers>

#include "server/lower/aten/complex.h"
#include "server/lower/registry.h"
#include "server/lower/spatial.h"

namespace plumbline {
namespace {

// A table of roots has as many elements as the square of this.
constexpr std::int64_t kLengthMax = 2048;

enum Normalization : std::int64_t { kNone = 0, kByRoot = 1, kByLength = 2 };

// cos or sin of 2 pi i / n, exact at the multiples of a quarter.
double root_part(std::int64_t i, std::int64_t n, bool sine) {
  i = ((sine ? 4 * i - n : 4 * i) % (4 * n) + 4 * n) % (4 * n);  // In quarters of steps; a sine is a cosine before.
  if (i > 2 * n) i = 4 * n - i;
  const double sign = i > n ? -1 : 1;
  if (i > n) i = 2 * n - i;
  if (i == n) return 0;
  return sign * std::cos(std::numbers::pi * static_cast<double>(i) / static_cast<double>(2 * n));
}

// [rows, columns]: the part of the root of unity number row * column of n.
Expr roots(Emitter& emitter, std::int64_t n, std::int64_t rows, std::int64_t columns, bool sine) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(root_part(i, n, sine));
  const Expr circle = table(emitter, values, {n, 1}, Format::kFloat64);
  const InIntegers integers(emitter);
  const Expr row = iota(emitter, {rows, 1}, 0, 1, Format::kInt64);
  const Expr column = iota(emitter, {1, columns}, 0, 1, Format::kInt64);
  const Expr number = binary(Primitive::kFmod, row * column, emitter.constant(static_cast<double>(n)));
  return reshape(gather_rows(circle, reshape(number, {rows * columns})), {rows, columns});
}

// Transforms x [..., rows], with the imaginary part's terms where it has one, to [..., columns].
Complex transformed(Call& call, const Complex& x, std::int64_t n, std::int64_t columns, bool forward) {
  const std::int64_t rows = x.re.shape().back(), lead = x.re.count() / rows;
  Emitter& emitter = call.emitter();
  const Expr cosines = roots(emitter, n, rows, columns, false), sines = roots(emitter, n, rows, columns, true);
  const Expr turned = forward ? -sines : sines;  // The imaginary part of a root.
  Shape shape = x.re.shape();
  shape.back() = columns;
  const auto flat = [&](Expr part) { return reshape(part, {lead, rows}); };
  if (!x.im) return {reshape(matmul(flat(x.re), cosines), shape), reshape(matmul(flat(x.re), turned), shape)};
  const Expr terms = joined(flat(x.re), flat(*x.im), 1);
  return {reshape(matmul(terms, joined(cosines, -turned, 0)), shape),
          reshape(matmul(terms, joined(turned, cosines, 0)), shape)};
}

std::vector<std::size_t> transformed_dims(Call& call, std::size_t rank) {
  std::vector<std::size_t> dims;
  for (const std::int64_t dim : call.integers("dim"))
    dims.push_back(static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(rank) : dim));
  if (dims.empty()) call.unsupported("no dimension");
  for (const std::size_t dim : dims)
    if (dim >= rank) call.unsupported("a dimension beyond the tensor's");
  return dims;
}

void require_table(Call& call, std::int64_t n) {
  if (n < 1 || n > kLengthMax) call.unsupported("a transform of " + std::to_string(n) + " elements");
}

Complex exchanged(const Complex& x, std::size_t a, std::size_t b) {
  return {exchanged(x.re, a, b), x.im ? std::optional(exchanged(*x.im, a, b)) : std::nullopt};
}

// Along one dimension, of `n` elements, which becomes `columns`.
Complex along(Call& call, const Complex& x, std::size_t dim, std::int64_t n, std::int64_t columns, bool forward) {
  require_table(call, n);
  const std::size_t last = x.re.rank() - 1;
  return exchanged(transformed(call, exchanged(x, dim, last), n, columns, forward), dim, last);
}

double normalized(Call& call, std::int64_t elements) {
  const auto n = static_cast<double>(elements);
  switch (call.integer("normalization", kNone)) {
    case kByRoot:
      return 1 / std::sqrt(n);
    case kByLength:
      return 1 / n;
    default:
      return 1;
  }
}

Complex scaled(const Complex& x, double factor) {
  if (factor == 1) return x;
  return {x.re * factor, x.im ? std::optional(*x.im * factor) : std::nullopt};
}

void lower_complex_to_complex(Call& call) {
  Complex x = complex_operand(call, "self");
  if (x.re.count() == 0) call.unsupported("no elements");
  const bool forward = call.boolean("forward", true);
  std::int64_t elements = 1;
  for (const std::size_t dim : transformed_dims(call, x.re.rank())) {
    const std::int64_t n = x.re.size(dim);
    x = along(call, x, dim, n, n, forward);
    elements *= n;
  }
  give(call, scaled(x, normalized(call, elements)));
}

// Transforms real numbers, the last dimension first: the first half of it may be all that is wanted.
void lower_real_to_complex(Call& call) {
  Complex x{call.tensor("self"), std::nullopt};
  if (x.re.count() == 0) call.unsupported("no elements");
  std::vector<std::size_t> dims = transformed_dims(call, x.re.rank());
  const bool half = call.boolean("onesided", true);
  std::int64_t elements = 1;
  for (; !dims.empty(); dims.pop_back()) {
    const std::int64_t n = x.re.size(dims.back());
    x = along(call, x, dims.back(), n, half && !x.im ? n / 2 + 1 : n, true);
    elements *= n;
  }
  give(call, scaled(x, normalized(call, elements)));
}

// To real numbers: the last dimension holds the first half of a conjugate-symmetric one. Each of its terms but the
// first and, of an even number, the last one stands for two.
void lower_complex_to_real(Call& call) {
  Complex x = complex_operand(call, "self");
  if (x.re.count() == 0) call.unsupported("no elements");
  std::vector<std::size_t> dims = transformed_dims(call, x.re.rank());
  const std::size_t half = dims.back();
  const std::int64_t n = call.integer("last_dim_size", 0), terms = n / 2 + 1;
  if (x.re.size(half) < terms) call.unsupported("fewer elements than are read");
  require_table(call, n);
  dims.pop_back();
  std::int64_t elements = n;
  for (const std::size_t dim : dims) {
    x = along(call, x, dim, x.re.size(dim), x.re.size(dim), false);
    elements *= x.re.size(dim);
  }
  Emitter& emitter = call.emitter();
  const std::size_t last = x.re.rank() - 1;
  x = {narrow(x.re, half, 0, terms), narrow(imaginary(call, x), half, 0, terms)};
  x = exchanged(x, half, last);
  const Expr column = iota(emitter, {terms, 1}, 0, 1, Format::kInt64);
  const Expr edge = logical_or(equal(column, 0), equal(column, static_cast<double>(n) / 2));
  const Expr weight = select(edge, emitter.constant(1, Format::kFloat64), emitter.constant(2, Format::kFloat64));
  const auto weighted = [&](bool sine) {
    const ComputeIn exactly(emitter, Format::kFloat64);
    return roots(emitter, n, terms, n, sine) * weight;
  };
  const std::int64_t lead = x.re.count() / terms;
  const Expr parts = joined(reshape(x.re, {lead, terms}), reshape(-*x.im, {lead, terms}), 1);
  Shape shape = x.re.shape();
  shape.back() = n;
  const Expr real = reshape(matmul(parts, joined(weighted(false), weighted(true), 0)), shape);
  call.returns(exchanged(scaled({real, std::nullopt}, normalized(call, elements)).re, half, last));
}

}  // namespace

std::span<const Rule> fft_rules() {
  static const Rule kRules[] = {
      {"_fft_c2c", {"default"}, lower_complex_to_complex, kOut},
      {"_fft_r2c", {"default"}, lower_real_to_complex, kOut},
      {"_fft_c2r", {"default"}, lower_complex_to_real, kOut},
  };
  return kRules;
}

}  // namespace plumbline
