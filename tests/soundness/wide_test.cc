// The wide evaluation against FLINT/Arb: how many bits of each primitive's result are right, on operands that take all
// bits of a wide scalar.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/wide/evaluate.h"
#include "tests/soundness/images.h"

namespace plumbline::soundness {
namespace {

using enum Primitive;

constexpr slong kPrecision = 800;

bool is_index(Primitive p, std::size_t input) { return (p == kGatherRows || p == kScatterAdd) && input == 1; }

Real real_of(Wide x) {  // Finite.
  int exponent = 0;
  Wide rest = frexpf128(x, &exponent);
  Real r;
  for (int part = 0; part < 3; ++part) {
    const auto head = static_cast<double>(rest);
    rest -= head;
    const Real added(head);
    arb_add(r, r, added, ARF_PREC_EXACT);
  }
  arb_mul_2exp_si(r, r, exponent);
  return r;
}

// The operands of a problem, with bits beyond those of fp64 where that does not change what they are.
std::vector<WideArray> operands(const Problem& problem, Random& random) {
  std::vector<WideArray> result;
  for (std::size_t input = 0; input < problem.inputs.size(); ++input) {
    WideArray x = WideArray::of(problem.inputs[input]);
    const bool more = !is_index(problem.primitive, input) && coin(random);
    for (std::int64_t i = 0; more && i < x.count(); ++i)
      x.data()[i] *= 1 + Wide(0x1p-60) * static_cast<Wide>(uniform(random, -1, 1));
    for (std::int64_t i = 0; i < x.count(); ++i)
      if (x.data()[i] == 0) x.data()[i] = 0;  // Positive: the image of a pole has one sign.
    result.push_back(std::move(x));
  }
  return result;
}

Point point_of(const std::vector<WideArray>& operands, bool magnitudes) {
  Point point;
  for (const WideArray& x : operands) {
    auto& elements = point.emplace_back();
    for (std::int64_t i = 0; i < x.count(); ++i) {
      elements.push_back(real_of(x.data()[i]));
      if (magnitudes) arb_abs(elements.back(), elements.back());
    }
  }
  return point;
}

// An error is at most 2^-bits of the scale: the result itself, or what a sum's terms have in magnitude, at least
// `least`.
struct Claim {
  int bits;
  bool of_magnitudes = false;
  double least = 0;
};

Claim claim(Primitive p) {
  switch (p) {
    case kSum:
    case kCumsum:
    case kScatterAdd:
      return {106, true};
    case kMatmul:
      return {100, true};
    case kNorm:
      return {110};
    case kVarianceRsqrt:
      return {96};
    case kExp:
      return {103};
    case kExpm1:
    case kTanh:
    case kSigmoid:
    case kSoftmax:
      return {102};
    case kErf:
      return {101};
    case kLogSoftmax:
      return {102, false, 1};
    default:
      return {110};
  }
}

// Whether `got` is the image up to the claim. Beyond the exponents of wide scalars it is their limit.
bool agrees(Wide got, const Real& image, const Real& scale, const Claim& claim) {
  if (arf_is_nan(image.point()) != 0) return false;  // The oracle knows no number.
  if (arf_cmpabs_2exp_si(image.point(), 16384) >= 0 || arf_is_inf(image.point()) != 0)
    return got == static_cast<Wide>(arf_sgn(image.point()) * __builtin_inf());
  if (got - got != 0) return false;
  Real distance, allowed, least(claim.least);
  arb_sub(distance, image, real_of(got), kPrecision);
  arb_abs(distance, distance);
  arb_abs(allowed, scale);
  arb_max(allowed, allowed, least, kPrecision);
  arb_mul_2exp_si(allowed, allowed, -claim.bits);
  Real subnormal(1);
  arb_mul_2exp_si(subnormal, subnormal, -16490);
  arb_add(allowed, allowed, subnormal, kPrecision);
  return arb_le(distance, allowed) != 0;
}

void check(const Problem& problem, const std::vector<WideArray>& in) {
  const Primitive p = problem.primitive;
  const Claim claimed = claim(p);
  const WideArray got = wide::evaluate(p, problem.attributes, problem.shape, in).materialize();
  const std::vector<Image> image = images(problem, point_of(in, false), kPrecision);
  const std::vector<Image> scale = claimed.of_magnitudes ? images(problem, point_of(in, true), kPrecision) : image;
  ASSERT_EQ(image.size(), static_cast<std::size_t>(got.count())) << traits(p).name;
  for (std::int64_t i = 0; i < got.count(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool inside = image[at].has_value();  // Otherwise the point lies outside of the domain.
    char* const wanted = arb_get_str(inside ? *image[at] : Real(), 40, ARB_STR_MORE);
    const std::string text = wanted;
    flint_free(wanted);
    const std::int64_t own = in[0].count() == got.count() ? i : 0;
    ASSERT_TRUE(inside ? agrees(got.data()[i], *image[at], *scale[at], claimed) : got.data()[i] != got.data()[i])
        << traits(p).name << " " << problem.regime << " element " << i << " got " << static_cast<double>(got.data()[i])
        << ", exactly " << text << ", of " << static_cast<double>(in[0].data()[own]);
  }
}

// Those without operands have exact counterparts in the unit tests, as have orders of elements.
bool has_images(Primitive p) { return p >= kNeg && p < kCount && p != kArgsort; }

class WideEvaluation : public ::testing::TestWithParam<int> {};

TEST_P(WideEvaluation, HoldsAHundredBits) {
  const auto p = static_cast<Primitive>(GetParam());
  Random random(static_cast<std::uint64_t>(GetParam()) + 1);
  for (int trial = 0; trial < 60; ++trial) {
    const Problem problem = random_problem(p, trial % 3 == 0 ? Format::kFloat32 : Format::kFloat64, random, 24, 48);
    check(problem, operands(problem, random));
    if (HasFatalFailure()) return;
  }
}

std::vector<int> with_images() {
  std::vector<int> result;
  for (int p = 0; p < static_cast<int>(kCount); ++p)
    if (has_images(static_cast<Primitive>(p))) result.push_back(p);
  return result;
}

INSTANTIATE_TEST_SUITE_P(Primitives, WideEvaluation, ::testing::ValuesIn(with_images()),
                         [](const auto& info) { return std::string(traits(static_cast<Primitive>(info.param)).name); });

// On both sides of where their table and their ways change, and over all exponents.
TEST(WideEvaluation, FunctionsByTablesHoldAHundredBits) {
  std::vector<Wide> values;
  for (int k = -300; k <= 300; ++k)
    for (int beside = -2; beside <= 2; ++beside)
      for (const Wide step : {logf128(2) / 64, Wide(0x1p-5)})
        values.push_back(k * step * (1 + beside * (std::abs(beside) == 2 ? Wide(0x1p-112) : Wide(0x1p-54))));
  for (const double turn : {0x1p-121, 0x1p-120, 0.34375, 0.6875, 300.0, 600.0, 1200.0})
    for (const double factor : {-1.0, 1.0, 1 - 0x1p-53, 0x1p-53 - 1, 1 + 0x1p-52})
      values.push_back(turn * Wide(factor));
  Random random(6);
  for (int draw = 0; draw < 4000; ++draw) {
    const double size = std::exp2(draw % 2 == 0 ? uniform(random, -130, 10.2) : uniform(random, -6, 4));
    values.push_back((coin(random) ? 1 : -1) *
                     (Wide(size) + Wide(0x1p-60) * size * static_cast<Wide>(uniform(random, -1, 1))));
  }
  const auto n = static_cast<std::int64_t>(values.size());
  WideArray x = WideArray::uninitialized({n});
  std::copy(values.begin(), values.end(), x.data());
  for (const Primitive p : {kExp, kExpm1, kTanh, kSigmoid, kErf}) {
    check({p, {}, {n}, {}, "tables"}, {x});
    if (HasFatalFailure()) return;
  }
}

// Ends of domains and ranges, multiples of pi, neighbours of poles; also beyond what fp64 holds.
TEST(WideEvaluation, HoldsAHundredBitsAtEdges) {
  const std::vector<Wide> values = {0.0,
                                    1,
                                    -1,
                                    0.5,
                                    -0.5,
                                    1.5,
                                    2.5,
                                    -2.5,
                                    3,
                                    0x1p-1074,
                                    -0x1p-1050,
                                    0x1p-1022,
                                    0x1p1023,
                                    -0x1p1023,
                                    700,
                                    -745,
                                    11000,
                                    -11000,
                                    1e22,
                                    -1e300,
                                    3.141592653589793,
                                    6.283185307179586,
                                    1 + Wide(0x1p-112),
                                    1 - Wide(0x1p-113),
                                    -1 + Wide(0x1p-112),
                                    Wide(0x1p-400) * Wide(0x1p-1000),
                                    Wide(0x1p400) * Wide(0x1p1000),
                                    27.2,
                                    -5.9,
                                    0x1p-60,
                                    -0x1p-57,
                                    1e-5};
  const auto n = static_cast<std::int64_t>(values.size());
  for (const int number : with_images()) {
    const auto p = static_cast<Primitive>(number);
    if (!is_elementwise(p)) continue;
    const std::int64_t arity = traits(p).arity, all = arity == 1 ? n : n * n;
    Problem problem{p, {}, {all}, {}, "edges"};
    std::vector<WideArray> in;
    for (std::int64_t operand = 0; operand < arity; ++operand) {
      WideArray x = WideArray::uninitialized({all});
      for (std::int64_t i = 0; i < all; ++i)
        x.data()[i] = values[static_cast<std::size_t>(operand == 1 ? i / n : i % n)];
      in.push_back(x);
    }
    check(problem, in);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace plumbline::soundness
