// Operations on complex tensors (ATen: cpu/vec/vec256/vec256_complex_float.h, native/cpu/BinaryOpsKernel.cpp). The
// client describes a complex tensor by its view as real numbers, in a list of one, whose last dimension holds the real
// and the imaginary part; a plain tensor is real. The names end with " on complex64" or " on complex128".
//
// The common mistake: a rule for real numbers that is applied to both parts adds a real operand to the imaginary part,
// too. Only operations whose every operand is complex, or an index or mask, go by parts.
#include "server/lower/aten/complex.h"

#include "server/lower/registry.h"
#include "server/lower/view.h"

namespace plumbline {
namespace {

constexpr std::int64_t kChainMax = 256;  // Factors of a running product.

// Real numbers are computed with in the format of the complex ones.
Expr floating(Call& call, Expr x) { return is_integer(x.format()) ? cast(x, call.emitter().compute()) : x; }

// One part of a view as real numbers.
Expr part(Expr view, std::int64_t index) {
  Shape shape = view.shape();
  if (shape.empty() || shape.back() != 2)
    throw LowerError("a complex tensor as pairs of numbers was expected, found shape " + to_string(shape));
  const Expr narrowed = narrow(view, shape.size() - 1, index, 1);
  shape.pop_back();
  return reshape(narrowed, shape);
}

}  // namespace

Complex complex_operand(Call& call, std::string_view name) {
  if (call.is_list(name)) {
    const std::vector<Expr> views = call.tensors(name);
    if (views.size() != 1) call.unsupported("argument '" + std::string(name) + "' is no complex tensor");
    return {part(views[0], 0), part(views[0], 1)};
  }
  if (const auto number = call.complex_number(name))
    return {call.emitter().constant(number->real()), call.emitter().constant(number->imag())};
  return {floating(call, call.operand(name)), std::nullopt};
}

Expr imaginary(Call& call, const Complex& x) { return x.im ? *x.im : call.emitter().constant(0); }

Complex operator+(const Complex& a, const Complex& b) {
  return {a.re + b.re, !a.im ? b.im : !b.im ? a.im : std::optional(*a.im + *b.im)};
}

Complex operator-(const Complex& x) { return {-x.re, x.im ? std::optional(-*x.im) : std::nullopt}; }

Complex operator-(const Complex& a, const Complex& b) {
  return {a.re - b.re, !b.im ? a.im : !a.im ? std::optional(-*b.im) : std::optional(*a.im - *b.im)};
}

Complex operator*(const Complex& a, const Complex& b) {
  if (!a.im && !b.im) return {a.re * b.re, std::nullopt};
  if (!b.im) return {a.re * b.re, *a.im * b.re};
  if (!a.im) return {a.re * b.re, a.re * *b.im};
  return {a.re * b.re - *a.im * *b.im, a.re * *b.im + *a.im * b.re};
}

// Kernels divide both numbers by the divisor's size before they multiply, each in a way of its own; all round no more
// often than this one. Its scale is the smooth one.
Complex operator/(const Complex& a, const Complex& b) {
  if (!b.im) {
    const Expr inverse = 1.0 / b.re;
    return {a.re * inverse, a.im ? std::optional(*a.im * inverse) : std::nullopt};
  }
  const Expr scale = sqrt(square(b.re) + square(*b.im));
  const Expr c = b.re / scale, d = *b.im / scale, size = square(c) + square(d), x = a.re / scale;
  if (!a.im) return {x * c / size, -(x * d) / size};
  const Expr y = *a.im / scale;
  return {(x * c + y * d) / size, (y * c - x * d) / size};
}

namespace {

// Shape of the result's parts.
Shape parts_shape(const Call& call) {
  Shape shape = call.result_shape();
  if (shape.empty() || shape.back() != 2) call.unsupported("a result that is not complex");
  shape.pop_back();
  return shape;
}

}  // namespace

void give(Call& call, const Complex& x) {
  Emitter& emitter = call.emitter();
  const Format format = call.result_format();
  const Shape parts = parts_shape(call);
  View real{parts, row_major_strides(parts), 0};
  for (std::int64_t& stride : real.strides) stride *= 2;
  View imaginary_part = real;
  imaginary_part.offset = count(parts) == 0 ? 0 : 1;
  const Expr re = expand(emitter.rounded(x.re, format), parts);
  const Expr im = expand(emitter.rounded(imaginary(call, x), format), parts);
  call.returns(assemble(emitter, call.result_shape(), std::nullopt, {re, im}, {real, imaginary_part}, format));
}

Expr joined(Expr a, Expr b, std::size_t dim) {
  Shape shape = a.shape();
  shape[dim] *= 2;
  const Shape strides = row_major_strides(shape);
  return assemble(*a.emitter, shape, std::nullopt, {a, b},
                  {{a.shape(), strides, 0}, {b.shape(), strides, a.size(dim) * strides[dim]}}, a.format());
}

namespace {

void lower_mul(Call& call) { give(call, complex_operand(call, "self") * complex_operand(call, "other")); }
void lower_div(Call& call) { give(call, complex_operand(call, "self") / complex_operand(call, "other")); }
void lower_neg(Call& call) { give(call, -complex_operand(call, "self")); }
void lower_reciprocal(Call& call) {
  give(call, Complex{call.emitter().constant(1), std::nullopt} / complex_operand(call, "self"));
}

// self + alpha other, or the difference.
Complex scaled(Call& call, std::string_view name) {
  const Complex x = complex_operand(call, name);
  return call.has("alpha") && call.known_number("alpha") != 1.0 ? complex_operand(call, "alpha") * x : x;
}
void lower_add(Call& call) { give(call, complex_operand(call, "self") + scaled(call, "other")); }
void lower_sub(Call& call) { give(call, complex_operand(call, "self") - scaled(call, "other")); }
void lower_rsub(Call& call) { give(call, complex_operand(call, "other") - scaled(call, "self")); }

void lower_conj(Call& call) {
  const Complex x = complex_operand(call, "self");
  give(call, {x.re, -imaginary(call, x)});
}

// Small whole powers; a derivative asks for the one below.
void lower_power(Call& call) {
  const auto complex_exponent = call.complex_number("exponent");
  const double exponent = complex_exponent && complex_exponent->imag() == 0 ? complex_exponent->real()
                                                                            : call.known_number("exponent").value_or(0);
  const Complex x = complex_operand(call, "self");
  if (exponent != 1 && exponent != 2) call.unsupported("a power that is no square");
  give(call, exponent == 1 ? x : x * x);
}

Expr absolute(Call& call, const Complex& x) { return sqrt(square(x.re) + square(imaginary(call, x))); }
void lower_abs(Call& call) { call.returns(absolute(call, complex_operand(call, "self"))); }

void lower_angle(Call& call) {
  const Complex x = complex_operand(call, "self");
  call.returns(binary(Primitive::kAtan2, imaginary(call, x), x.re));
}

// z / |z|, and 0 of 0.
void lower_sgn(Call& call) {
  const Complex x = complex_operand(call, "self");
  const Expr size = absolute(call, x), zero = equal(size, 0);
  const Expr divisor = select(zero, call.emitter().constant(1), size);
  give(call, {x.re / divisor, imaginary(call, x) / divisor});
}

// r cos(t) + i r sin(t)
void lower_polar(Call& call) {
  const Expr size = call.tensor("abs"), angle = call.tensor("angle");
  give(call, {size * unary(Primitive::kCos, angle), size * unary(Primitive::kSin, angle)});
}

void lower_exp(Call& call) {
  const Complex x = complex_operand(call, "self");
  const Expr size = exp(x.re), angle = imaginary(call, x);
  give(call, {size * unary(Primitive::kCos, angle), size * unary(Primitive::kSin, angle)});
}

void lower_complex(Call& call) { give(call, {call.tensor("real"), call.tensor("imag")}); }

void lower_where(Call& call) {
  const Expr condition = call.tensor("condition");
  const Complex a = complex_operand(call, "self"), b = complex_operand(call, "other");
  give(call, {select(condition, a.re, b.re), select(condition, imaginary(call, a), imaginary(call, b))});
}

void lower_masked_fill(Call& call) {
  const Expr mask = call.tensor("mask");
  const Complex x = complex_operand(call, "self"), value = complex_operand(call, "value");
  give(call, {select(mask, value.re, x.re), select(mask, imaginary(call, value), imaginary(call, x))});
}

// A copy of complex numbers to real ones keeps the real parts; a copy of real numbers to complex ones has none but
// these.
void give_copied(Call& call, const Complex& x, bool to_complex) {
  const Format format = call.result_format();
  if (!to_complex) {
    call.returns(expand(converted(x.re, format), call.result_shape()));
  } else {
    give(call, {converted(x.re, format), converted(imaginary(call, x), format)});
  }
}

void lower_copy(Call& call) {
  const Complex x = complex_operand(call, "self");
  give_copied(call, x, call.result_shape().size() == x.re.rank() + 1);
}
void lower_copy_from(Call& call) { give_copied(call, complex_operand(call, "src"), call.is_list("self")); }

template <int value>
void lower_filled_with(Call& call) {
  const std::size_t rank = call.has("size")       ? call.integers("size").size()
                           : call.is_list("self") ? complex_operand(call, "self").re.rank()
                                                  : call.result_shape().size() - 1;
  if (call.result_shape().size() != rank + 1) call.unsupported("a result that is not complex");
  give(call, {call.emitter().constant(value), std::nullopt});
}
void lower_zero(Call& call) { give(call, {call.emitter().constant(0), std::nullopt}); }
void lower_fill(Call& call) { give(call, complex_operand(call, "value")); }
void lower_scalar_tensor(Call& call) { give(call, complex_operand(call, "s")); }
void lower_full(Call& call) { give(call, complex_operand(call, "fill_value")); }

// Both parts by the rule of the operation on real numbers.
void lower_by_parts(Call& call) {
  const std::string& name = call.op().name;
  const Match real = find_rule(name.substr(0, name.find(' ')));
  if (!real.rule) call.unsupported("has no rule for real tensors");
  give(call, {call.of_part(*real.rule, 0), call.of_part(*real.rule, 1)});
}

void lower_constant_pad(Call& call) {
  if (call.real("value", 0) != 0) call.unsupported("padding with other numbers than 0");
  lower_by_parts(call);
}

// A sum, divided by its number of terms.
void lower_mean(Call& call) {
  const Match sum = find_rule("aten::sum.dim_IntList");
  const Complex total{call.of_part(*sum.rule, 0), call.of_part(*sum.rule, 1)};
  const auto terms =
      static_cast<double>(complex_operand(call, "self").re.count()) / static_cast<double>(total.re.count());
  give(call, total / Complex{call.emitter().constant(terms), std::nullopt});
}

// Each part of a product is one sum of twice as many terms, and of what is added to it.
Complex product(Call& call, const Complex& a, const Complex& b, const std::optional<Complex>& bias = std::nullopt,
                std::optional<Expr> alpha = std::nullopt) {
  if (!a.im || !b.im || a.re.rank() < 2 || a.re.rank() != b.re.rank()) call.unsupported("shapes");
  const std::size_t last = a.re.rank() - 1;
  const auto added = [&](bool real) {
    return bias ? std::optional(real ? bias->re : imaginary(call, *bias)) : std::nullopt;
  };
  return {matmul(joined(a.re, -*a.im, last), joined(b.re, *b.im, last - 1), added(true), alpha),
          matmul(joined(a.re, *a.im, last), joined(*b.im, b.re, last - 1), added(false), alpha)};
}

Complex reshaped(const Complex& x, const Shape& shape) {
  return {reshape(x.re, shape), x.im ? std::optional(reshape(*x.im, shape)) : std::nullopt};
}

void lower_mm(Call& call) { give(call, product(call, complex_operand(call, "self"), complex_operand(call, "mat2"))); }

// beta self + alpha a b; beta = 0 ignores self. BLAS libraries begin the sum with it, others end with it.
void with_bias(Call& call, const Complex& a, const Complex& b) {
  const auto given = [&](std::string_view name) { return call.has(name) ? call.known_number(name) : 1.0; };
  const std::optional<double> alpha = given("alpha"), beta = given("beta");
  if (!alpha || !beta) call.unsupported("a factor that is complex");
  std::optional<Complex> bias;
  if (*beta != 0) {
    const Complex self = complex_operand(call, "self");
    const Complex scaled = *beta == 1 ? self : Complex{call.operand("beta"), std::nullopt} * self;
    const Shape shape = parts_shape(call);
    bias = Complex{expand(scaled.re, shape), expand(imaginary(call, scaled), shape)};
  }
  give(call, product(call, a, b, bias, *alpha == 1 ? std::nullopt : std::optional(call.operand("alpha"))));
}
void lower_addmm(Call& call) { with_bias(call, complex_operand(call, "mat1"), complex_operand(call, "mat2")); }
void lower_baddbmm(Call& call) { with_bias(call, complex_operand(call, "batch1"), complex_operand(call, "batch2")); }

void lower_mv(Call& call) {
  const Complex vector = complex_operand(call, "vec");
  const std::int64_t n = vector.re.count();
  const Complex made = product(call, complex_operand(call, "self"), reshaped(vector, {n, 1}));
  give(call, reshaped(made, {made.re.count()}));
}

// vdot takes the conjugate of its first operand.
void lower_dot(Call& call) {
  const bool conjugate = call.base() == "vdot";
  Complex a = complex_operand(call, "self");
  const Complex b = complex_operand(call, conjugate ? "other" : "tensor");
  if (conjugate) a.im = -imaginary(call, a);
  const std::int64_t n = a.re.count();
  give(call, reshaped(product(call, reshaped(a, {1, n}), reshaped(b, {n, 1})), {}));
}

// All prefixes along a dimension, multiplied one after the other.
void lower_running_product(Call& call) {
  const Complex x = complex_operand(call, "self");
  if (!x.im || x.re.rank() == 0) call.unsupported("a number alone");
  const std::size_t dim = call.dim("dim", x.re.rank(), 0);
  const std::int64_t n = x.re.size(dim);
  if (n < 1 || n > kChainMax) call.unsupported("a chain of " + std::to_string(n) + " elements");
  const Shape shape = x.re.shape(), strides = row_major_strides(shape);
  const auto at = [&](std::int64_t i) { return Complex{narrow(x.re, dim, i, 1), narrow(*x.im, dim, i, 1)}; };
  Complex total = at(0);
  std::vector<Expr> re, im;
  std::vector<View> views;
  for (std::int64_t i = 0; i < n; ++i) {
    if (i > 0) total = total * at(i);
    re.push_back(total.re);
    im.push_back(*total.im);
    views.push_back({total.re.shape(), strides, i * strides[dim]});
  }
  Emitter& emitter = call.emitter();
  const auto whole = [&](const std::vector<Expr>& pieces) {
    return assemble(emitter, shape, std::nullopt, pieces, views, pieces.front().format());
  };
  give(call, {whole(re), whole(im)});
}

Expr same(Call& call) {
  const Complex a = complex_operand(call, "self"), b = complex_operand(call, "other");
  return binary(Primitive::kLogicalAnd, compare(Primitive::kEqual, a.re, b.re),
                compare(Primitive::kEqual, imaginary(call, a), imaginary(call, b)));
}
void lower_eq(Call& call) { call.returns(same(call)); }
void lower_ne(Call& call) { call.returns(unary(Primitive::kLogicalNot, same(call))); }

// log |z| + i arg z
void lower_log(Call& call) {
  const Complex x = complex_operand(call, "self");
  give(call, {log(absolute(call, x)), binary(Primitive::kAtan2, imaginary(call, x), x.re)});
}

}  // namespace

std::span<const Rule> complex_copy_rules() {
  static const Rule kRules[] = {
      {"clone", {"default"}, lower_copy},
      {"_to_copy", {"default"}, lower_copy},
      {"contiguous", {"default"}, lower_copy},
      {"copy", {"default"}, lower_copy_from, kInPlace},
      {"zeros", {"default"}, lower_filled_with<0>},
      {"zeros_like", {"default"}, lower_filled_with<0>},
      {"new_zeros", {"default"}, lower_filled_with<0>},
      {"zero", {"default"}, lower_zero, kOnlyInPlace},
  };
  return kRules;
}

std::span<const Rule> complex_rules() {
  constexpr unsigned kBoth = kInPlace | kOut;
  static const Rule kRules[] = {
      {"mul", {"Tensor", "Scalar"}, lower_mul, kBoth},
      {"div", {"Tensor", "Scalar"}, lower_div, kBoth},
      {"add", {"Tensor", "Scalar"}, lower_add, kBoth},
      {"sub", {"Tensor", "Scalar"}, lower_sub, kBoth},
      {"rsub", {"Tensor", "Scalar"}, lower_rsub},
      {"neg", {"default"}, lower_neg, kBoth},
      {"reciprocal", {"default"}, lower_reciprocal, kBoth},
      {"_conj_physical", {"default"}, lower_conj},
      {"conj_physical", {"default"}, lower_conj, kBoth},
      {"pow", {"Tensor_Scalar"}, lower_power, kInPlace | kOut},
      {"abs", {"default"}, lower_abs, kOut},
      {"angle", {"default"}, lower_angle, kOut},
      {"sgn", {"default"}, lower_sgn, kBoth},
      {"polar", {"default"}, lower_polar, kOut},
      {"complex", {"default"}, lower_complex, kOut},
      {"exp", {"default"}, lower_exp, kBoth},
      {"where", {"self"}, lower_where, kOut},
      {"masked_fill", {"Scalar", "Tensor"}, lower_masked_fill, kInPlace},
      {"ones", {"default"}, lower_filled_with<1>},
      {"ones_like", {"default"}, lower_filled_with<1>},
      {"new_ones", {"default"}, lower_filled_with<1>},
      {"fill", {"Scalar", "Tensor"}, lower_fill, kInPlace},
      {"full", {"default"}, lower_full},
      {"scalar_tensor", {"default"}, lower_scalar_tensor},
      {"sum", {"default", "dim_IntList"}, lower_by_parts, kOut},
      {"mean", {"default", "dim"}, lower_mean, kOut},
      {"mm", {"default"}, lower_mm, kOut},
      {"bmm", {"default"}, lower_mm, kOut},
      {"addmm", {"default"}, lower_addmm, kBoth},
      {"baddbmm", {"default"}, lower_baddbmm, kBoth},
      {"mv", {"default"}, lower_mv, kOut},
      {"dot", {"default"}, lower_dot, kOut},
      {"vdot", {"default"}, lower_dot, kOut},
      {"log", {"default"}, lower_log, kBoth},
      {"eq", {"Tensor", "Scalar"}, lower_eq, kOut},
      {"ne", {"Tensor", "Scalar"}, lower_ne, kOut},
      {"cumsum", {"default"}, lower_by_parts, kBoth},
      {"cumprod", {"default"}, lower_running_product, kInPlace},
      {"cat", {"default"}, lower_by_parts, kOut},
      {"stack", {"default"}, lower_by_parts, kOut},
      {"slice_backward", {"default"}, lower_by_parts},
      {"select_backward", {"default"}, lower_by_parts},
      {"slice_scatter", {"default"}, lower_by_parts},
      {"select_scatter", {"default"}, lower_by_parts},
      {"index", {"Tensor"}, lower_by_parts, kObserved},
      {"index_select", {"default"}, lower_by_parts, kOut},
      {"gather", {"default"}, lower_by_parts, kOut},
      {"index_put", {"default"}, lower_by_parts, kInPlace | kObserved},
      {"_index_put_impl", {"default"}, lower_by_parts, kOnlyInPlace | kObserved},
      {"index_add", {"default"}, lower_by_parts, kInPlace},
      {"scatter_add", {"default"}, lower_by_parts, kInPlace},
      {"flip", {"default"}, lower_by_parts},
      {"repeat", {"default"}, lower_by_parts},
      {"roll", {"default"}, lower_by_parts},
      {"constant_pad_nd", {"default"}, lower_constant_pad},
      {"diagonal_backward", {"default"}, lower_by_parts},
      {"tril", {"default"}, lower_by_parts, kBoth},
      {"triu", {"default"}, lower_by_parts, kBoth},
  };
  return kRules;
}

}  // namespace plumbline
