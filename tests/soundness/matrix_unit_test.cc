// Products as matrix units accumulate them: k exact products and the running sum are aligned to the largest of them,
// cut off `guard` bits below the accumulator's last, added, and cut off to the accumulator's precision. NUMERICS
// section 4 states each unit as the bound of this: k terms cut off and one normalisation, c k = k 2^-guard + 2 units.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "server/profile/profile_registry.h"
#include "tests/soundness/execution.h"

namespace plumbline::soundness {
namespace {

double cut(double x, int quantum_exponent) {
  return std::ldexp(std::trunc(std::ldexp(x, -quantum_exponent)), quantum_exponent);
}

int exponent_of(double x) { return x == 0 ? -2000 : std::ilogb(x); }

int accumulator_bits(const Product& unit) { return unit.accumulator_bits > 0 ? unit.accumulator_bits : 24; }
int guard_bits(const Product& unit) {
  return -static_cast<int>(std::lround(std::log2((unit.c * unit.k - 2) / unit.k)));
}

double matrix_unit(const Product& unit, const std::vector<double>& a, const std::vector<double>& b) {
  const int bits = accumulator_bits(unit), guard = guard_bits(unit);
  double total = 0, promoted = 0;
  for (std::size_t begin = 0; begin < a.size(); begin += static_cast<std::size_t>(unit.k)) {
    if (unit.promote_every > 0 && begin > 0 && begin % static_cast<std::size_t>(unit.promote_every) == 0) {
      promoted = static_cast<float>(promoted + total);
      total = 0;
    }
    const std::size_t end = std::min(a.size(), begin + static_cast<std::size_t>(unit.k));
    int top = exponent_of(total);
    for (std::size_t i = begin; i < end; ++i) top = std::max(top, exponent_of(a[i] * b[i]));
    double sum = cut(total, top - bits - guard);
    for (std::size_t i = begin; i < end; ++i) sum += cut(a[i] * b[i], top - bits - guard);
    total = cut(sum, exponent_of(sum) - bits + 1);
  }
  return static_cast<float>(promoted + total);
}

struct Unit {
  const char* profile;
  ProductClass kind;
  Format input;
  int input_bits;  // Of the elements that are drawn.
};

class MatrixUnit : public ::testing::TestWithParam<Unit> {};

TEST_P(MatrixUnit, StaysWithinItsProfile) {
  const auto [name, kind, input, input_bits] = GetParam();
  const ProfileRegistry registry = ProfileRegistry::load(PLUMBLINE_PROFILES);
  Profile profile = *registry.find(name);
  Product& unit = profile.products[static_cast<int>(kind)];
  const PrimitiveTraits& row = traits(Primitive::kMatmul);
  Random random(7);
  std::uniform_real_distribution<double> unit_interval(-1, 1);
  double worst = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    unit.promote_every = kind == ProductClass::kFp8 && trial % 2 == 1 ? 128 : 0;
    const auto n = static_cast<std::int64_t>(std::uniform_int_distribution<int>(1, 300)(random));
    Array a = Array::uninitialized({1, n}), b = Array::uninitialized({n, 1});
    std::vector<double> left, right;
    for (std::int64_t i = 0; i < n; ++i) {
      double x = unit_interval(random), y = unit_interval(random);
      if (trial % 3 == 1) {  // One product of 1, all others just below what it cuts off.
        const int half = (accumulator_bits(unit) + guard_bits(unit)) / 2;
        x = i == 0 ? 1 : std::ldexp(1 - 0x1p-5 * std::fabs(x), -half);
        y = i == 0 ? 1 : std::ldexp(1 - 0x1p-5 * std::fabs(y), half - accumulator_bits(unit) - guard_bits(unit));
      } else if (trial % 3 == 2) {
        x = std::ldexp(x, -std::uniform_int_distribution<int>(0, 12)(random));
      }
      a.data()[i] = cut(x, exponent_of(x) - input_bits + 1);
      b.data()[i] = cut(y, exponent_of(y) - input_bits + 1);
      const bool converted = kind == ProductClass::kTf32;
      left.push_back(converted ? cut(a.data()[i], exponent_of(a.data()[i]) - 10) : a.data()[i]);
      right.push_back(converted ? cut(b.data()[i], exponent_of(b.data()[i]) - 10) : b.data()[i]);
    }
    const std::vector<Array> in = {a, b};
    long double exact = 0;
    for (std::int64_t i = 0; i < n; ++i) exact += static_cast<long double>(a.data()[i]) * b.data()[i];
    const Array out = row.evaluate({}, {1, 1}, in);
    const Arithmetic arithmetic{Format::kFloat32, Format::kFloat32, &profile, input};
    const double bound = row.local_error({}, arithmetic, in, out).values.item();
    const auto error = static_cast<double>(std::fabs(matrix_unit(unit, left, right) - exact));
    ASSERT_LE(error, bound) << name << " n = " << n << " trial " << trial;
    worst = std::max(worst, error / bound);
  }
  EXPECT_GT(worst, 0.3) << "no execution comes near the bound";
}

INSTANTIATE_TEST_SUITE_P(Profiles, MatrixUnit,
                         ::testing::Values(Unit{"cuda-sm90", ProductClass::kBf16, Format::kBFloat16, 8},
                                           Unit{"cuda-sm90", ProductClass::kFp16, Format::kFloat16, 11},
                                           Unit{"cuda-sm90+tf32", ProductClass::kTf32, Format::kFloat32, 24},
                                           Unit{"cuda-sm80", ProductClass::kBf16, Format::kBFloat16, 8},
                                           Unit{"cuda-sm80+tf32", ProductClass::kTf32, Format::kFloat32, 24}),
                         [](const auto& info) {
                           std::string name = std::string(info.param.profile) + "_" +
                                              std::to_string(static_cast<int>(info.param.kind));
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace plumbline::soundness
