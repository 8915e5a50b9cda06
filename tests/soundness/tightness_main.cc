// How far each bound stands above the largest legal error found. Prints a table and a line of JSON.
// usage: tightness [SEED] [--small]
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "tests/soundness/arithmetics.h"
#include "tests/soundness/check.h"
#include "tests/soundness/statistical.h"

namespace plumbline::soundness {
namespace {

using Clock = std::chrono::steady_clock;

const Profile& profile_named(const std::vector<Profile>& profiles, std::string_view name) {
  for (const Profile& profile : profiles) {
    if (profile.name == name) return profile;
  }
  std::abort();
}

// Best witness of a primitive: fp32 results, then bf16 ones.
double witness(Primitive primitive, const Profile& profile, int steps, Random& random) {
  double best = 0;
  for (const std::int64_t terms : {8, 200}) {
    const Arithmetic arithmetic{Format::kFloat32, Format::kFloat32, &profile, Format::kFloat32};
    best = std::max(best, climb(primitive, arithmetic, steps, random, terms).ratio);
  }
  return best;
}

// Bound over largest legal error of products of Gaussian bf16 matrices, at elements up to 1.5 times the root mean
// square (87 of 100): larger ones hide the accumulation behind their own rounding.
double product_ratio(std::int64_t k, const Profile& profile, int executions, Random& random) {
  constexpr std::int64_t kRows = 32, kColumns = 64;
  const auto gaussian = [&](const Shape& shape) {
    std::normal_distribution<double> normal;
    Array a = Array::uninitialized(shape);
    for (std::int64_t i = 0; i < a.count(); ++i) a.data()[i] = round_to(Format::kBFloat16, normal(random));
    return a;
  };
  const Arithmetic arithmetic{Format::kFloat32, Format::kBFloat16, &profile, Format::kBFloat16};
  Checked checked(
      {Primitive::kMatmul, {}, {kRows, kColumns}, {gaussian({kRows, k}), gaussian({k, kColumns})}, "gaussian"},
      arithmetic);
  const std::vector<double> errors = checked.largest_errors(executions, random);
  double squares = 0, best = std::numeric_limits<double>::infinity();
  for (const Exact& t : checked.truth()) squares += t.value * t.value;
  const double limit = 1.5 * std::sqrt(squares / static_cast<double>(errors.size()));
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (std::fabs(checked.truth()[i].value) <= limit) best = std::min(best, checked.bound()[i] / errors[i]);
  }
  return best;
}

// 1024 terms in [0, 1], fp64, a balanced tree: the bound for any of them, and the time that it takes.
struct TreeSum {
  double bound, milliseconds;
};
TreeSum tree_sum() {
  Profile profile = ieee();
  profile.sum.tree = true;
  Attributes over;
  over.dims = {1};
  const std::vector<Array> in = {Array::full({1, 1024}, 1 - 0x1p-53)};
  const PrimitiveTraits& row = traits(Primitive::kSum);
  const auto begin = Clock::now();
  const Array t = row.evaluate(over, {1, 1}, in);
  const Bound bound = row.local_error(over, {Format::kFloat64, Format::kFloat64, &profile}, in, t);
  const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
  return {bound.values.item(), took.count()};
}

int run(std::uint64_t seed, bool small) {
  Random random(seed);
  const std::vector<Profile> profiles = all_profiles();
  const Profile& ieee_profile = profile_named(profiles, "ieee");
  const int steps = small ? 200 : 800;
  double elementwise = 0, least = 1;
  std::printf("%-16s %-12s %s\n", "primitive", "class", "bound / largest legal error, fp32 (ieee)");
  for (const PrimitiveTraits& row : all_primitives()) {
    const PrimitiveClass of = class_of(row.primitive);
    if (row.bitwise) continue;
    const double ratio = witness(row.primitive, ieee_profile, steps, random);
    std::printf("%-16s %-12s %.3f\n", std::string(row.name).c_str(), std::string(name_of(of)).c_str(), 1 / ratio);
    std::fflush(stdout);
    if (of == PrimitiveClass::kElementwise) elementwise = std::max(elementwise, 1 / ratio);
    if (of != PrimitiveClass::kElementwise && of != PrimitiveClass::kMovement) least = std::min(least, ratio);
  }

  const int products = small ? 4 : 10;
  const double k1024 = product_ratio(1024, ieee_profile, products, random);
  const double k4096 = product_ratio(4096, profile_named(profiles, "cuda-sm90"), products, random);
  const double k4096_ieee = product_ratio(4096, ieee_profile, products, random);
  std::printf("\nbf16 products    K=1024 ieee %.3f, K=4096 cuda-sm90 %.3f, K=4096 ieee %.3f\n", k1024, k4096,
              k4096_ieee);
  const TreeSum tree = tree_sum();
  std::printf("sum of 1024      fp64, balanced tree, [0, 1]: %.5g in %.3f ms\n", tree.bound, tree.milliseconds);

  constexpr double kAlpha = 1e-3;  // The default of a run.
  int violations = 0;
  double expected = 0, largest = 1;
  std::printf("\n%-40s %10s %10s %10s %s\n", "statistical", "executions", "violations", "expected",
              "envelope / largest");
  for (const StatisticalOutcome& o : statistical_outcomes(small ? 50 : 1000, kAlpha, random)) {
    std::printf("%-40s %10d %10d %10.3g %.3g\n", o.graph.c_str(), o.executions, o.violations, o.expected,
                1 / o.largest);
    violations += o.violations;
    expected += o.expected;
    if (o.nearest) largest = std::min(largest, o.largest);
  }
  std::printf(
      "{\"elementwise_max\": %.4g, \"matmul_bf16_k1024\": %.4g, \"matmul_bf16_k4096\": %.4g, \"min_witness_ratio\": "
      "%.4g, "
      "\"statistical_ratio\": %.4g, \"statistical_violations\": %d, \"statistical_expected\": %.4g}\n",
      elementwise, k1024, k4096, least, 1 / largest, violations, expected);
  // The small run holds what little it samples against its own, wider limits.
  const bool passed = elementwise <= 1.2 && k1024 <= (small ? 1.6 : 1.5) && k4096 <= 3 && k4096_ieee <= 4 &&
                      least >= 0.5 && 1 / largest <= (small ? 40 : 10) && violations <= expected &&
                      tree.bound <= 1.14e-12;
  return passed ? 0 : 1;
}

}  // namespace
}  // namespace plumbline::soundness

int main(int argc, char** argv) {
  const bool small = argc > 1 && std::strcmp(argv[argc - 1], "--small") == 0;
  return plumbline::soundness::run(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1, small);
}
