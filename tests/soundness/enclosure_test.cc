// Every point of the input balls maps into the output ball: the radius rules against FLINT/Arb.
#include "tests/soundness/enclosure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace plumbline::soundness {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kMost = std::numeric_limits<double>::max();
constexpr double kLeast = 0x1p-1074;

// A row whose oracle knows no numbers, or whose radius is hardly ever finite, proves nothing: of the points held so
// many must have been compared with a finite radius, of random ones and of those at the edges.
constexpr double kHealthy = 0.5, kHealthyAtEdges = 0.2;

double compared(const Outcome& outcome) {
  return static_cast<double>(outcome.compared) / static_cast<double>(outcome.held);
}

// No primitive is left out: images() throws for one without an oracle.
TEST(Enclosure, HoldsTheImagesOfEveryPoint) {
  for (const PrimitiveTraits& row : all_primitives()) {
    if (row.arity == 0) {  // Sources have nothing to carry.
      EXPECT_FALSE(row.radius({}, {}, {}, Array::scalar(1))) << row.name;
      continue;
    }
    Random random(1788 + static_cast<int>(row.primitive));
    const Outcome outcome = hold_points(row.primitive, {}, random);
    EXPECT_TRUE(outcome.violation.empty()) << outcome.violation;
    EXPECT_GT(compared(outcome), kHealthy)
        << row.name << ": of " << outcome.held << " points " << outcome.outside << " lay outside of its domain";
  }
}

TEST(Enclosure, NeedsAnOracle) {
  EXPECT_THROW(images({Primitive::kLeaf, {}, {1}, {Array::scalar(1)}, {}}, {{Real(1)}}, 64), std::logic_error);
}

// A quarter of a radius does not hold them: the points reach far enough to tell, whatever the primitive.
TEST(Enclosure, CatchesAQuarterOfEveryRadius) {
  for (const PrimitiveTraits& row : all_primitives()) {
    if (row.arity == 0) continue;
    Random random(1788 + static_cast<int>(row.primitive));
    const Outcome outcome = hold_points(row.primitive, {.part = 0.25, .until_violation = true}, random);
    EXPECT_FALSE(outcome.violation.empty()) << row.name;
  }
}

// Centres and radii where rules break: poles, signed zeros, subnormals, the largest numbers, ends of domains.
constexpr double kCentres[] = {
    0.0, -0.0, kLeast, -kLeast, 0x1p-1022, 0x1p-540, 0.5,     -0.5,  1,      -1,    1.5,
    -2,  3,    709.7,  -745.2,  1e16,      -0x1p511, 0x1p512, 1e300, -kMost, kMost, 0x1.921fb54442d18p0};
constexpr double kRadii[] = {0, kLeast, 0x1p-1022, 0x1p-540, 0x1p-60, 0.5, 1, 750, 1e300, kMost};
constexpr double kSteps[] = {-1, -0.5, 0, 0.5, 1};

// All combinations of centres and radii of so many inputs, each an element.
Balls every_combination(Primitive primitive, const std::vector<double>& centres, const std::vector<double>& radii) {
  const int inputs = traits(primitive).arity;
  const std::size_t one = centres.size() * radii.size();
  std::size_t all = 1;
  for (int i = 0; i < inputs; ++i) all *= one;
  Balls balls{{primitive, {}, {static_cast<std::int64_t>(all)}, {}, "edges"}, {}};
  std::size_t period = 1;
  for (int input = 0; input < inputs; ++input, period *= one) {
    Array& x = balls.problem.inputs.emplace_back(Array::uninitialized(balls.problem.shape));
    Array& r = balls.radii.emplace_back(Bound{Array::uninitialized(balls.problem.shape)}).values;
    for (std::size_t i = 0; i < all; ++i) {
      const std::size_t which = i / period % one;
      x.data()[i] = centres[which / radii.size()];
      r.data()[i] = radii[which % radii.size()];
    }
  }
  return balls;
}

// Every how many-th of the values: fewer for more inputs.
std::vector<double> some(std::span<const double> values, std::size_t stride) {
  std::vector<double> result;
  for (std::size_t i = 0; i < values.size(); i += stride) result.push_back(values[i]);
  return result;
}

bool elementwise(const PrimitiveTraits& row) {
  return class_of(row.primitive) == PrimitiveClass::kElementwise || row.primitive == Primitive::kCast;
}

TEST(Enclosure, HoldsAtTheEdges) {
  for (const PrimitiveTraits& row : all_primitives()) {
    if (!elementwise(row)) continue;
    const std::size_t stride = row.arity == 3 ? 5 : 1, fewer = row.arity == 3 ? 3 : row.arity;
    const Enclosure enclosure(every_combination(row.primitive, some(kCentres, stride), some(kRadii, fewer)));
    Outcome outcome;
    Directions directions = enclosure.middle();
    const int steps = row.arity == 1 ? 5 : 3, half = row.arity == 1 ? 1 : 2;
    int points = 1;
    for (int i = 0; i < row.arity; ++i) points *= steps;
    for (int point = 0; point < points; ++point) {
      int rest = point;
      for (auto& elements : directions) {
        std::fill(elements.begin(), elements.end(), kSteps[rest % steps * half]);
        rest /= steps;
      }
      enclosure.hold(directions, outcome);
    }
    EXPECT_TRUE(outcome.violation.empty()) << outcome.violation;
    EXPECT_GT(compared(outcome), kHealthyAtEdges) << row.name;
  }
}

// An infinite ball holds anything, NaN included, and a radius of NaN is as good as none; around an infinity or NaN a
// finite ball holds the centre alone.
TEST(Enclosure, HoldsWhatIsNotFinite) {
  const std::vector<double> centres = {0.0, -0.0, 1, -2, kMost, kInfinity, -kInfinity, kNan};
  const std::vector<double> radii = {0, 1, kInfinity, kNan};
  const double anything[] = {kInfinity, -kInfinity, kNan, 0, -kMost, 3};
  for (const PrimitiveTraits& row : all_primitives()) {
    if (!elementwise(row)) continue;
    const Balls balls = every_combination(row.primitive, row.arity == 3 ? some(centres, 2) : centres, radii);
    const Problem& p = balls.problem;
    const Array out = row.evaluate({}, p.shape, p.inputs).materialize();
    const Bound bound = row.radius({}, p.inputs, balls.radii, out);
    ASSERT_TRUE(bound) << row.name;
    int points = 1;
    for (int i = 0; i < row.arity; ++i) points *= static_cast<int>(std::size(anything));
    for (int point = 0; point < points; ++point) {
      std::vector<Array> moved;
      int rest = point;
      for (int input = 0; input < row.arity; ++input, rest /= static_cast<int>(std::size(anything))) {
        Array& x = moved.emplace_back(Array::uninitialized(p.shape));
        for (std::int64_t i = 0; i < x.count(); ++i) {
          const bool open = !(balls.radius(input, i) < kInfinity);
          x.data()[i] = open ? anything[rest % std::size(anything)] : p.inputs[input].data()[i];
        }
      }
      const Array image = row.evaluate({}, p.shape, moved).materialize();
      for (std::int64_t i = 0; i < out.count(); ++i) {
        const double t = out.data()[i], y = image.data()[i], r = bound.values.data()[i];
        const bool same = y == t || (std::isnan(y) && std::isnan(t));
        ASSERT_TRUE(same || !(r < kInfinity) || std::fabs(y - t) <= r)
            << row.name << " " << p.inputs[0].data()[i] << " +- " << balls.radius(0, i) << ", "
            << p.inputs.back().data()[i] << " +- " << balls.radius(row.arity - 1, i) << ": " << y << " outside " << t
            << " +- " << r;
      }
    }
  }
}

// The same for one element of a line, a row or a factor.
TEST(Enclosure, OneUnboundedElementIsEnough) {
  for (const PrimitiveTraits& row : all_primitives()) {
    if (elementwise(row) || row.arity == 0) continue;
    Random random(754);
    for (const double open : {kInfinity, kNan}) {
      Balls balls{random_problem(row.primitive, Format::kFloat32, random, 4, 8), {}};
      const Problem& p = balls.problem;
      for (const Array& x : p.inputs) balls.radii.push_back({Array::full(x.shape(), open)});
      const Array out = row.evaluate(p.attributes, p.shape, p.inputs).materialize();
      const Bound bound = row.radius(p.attributes, p.inputs, balls.radii, out);
      ASSERT_TRUE(bound) << row.name;
      const bool position = row.primitive == Primitive::kArgmax || row.primitive == Primitive::kArgsort;
      const double all = position ? static_cast<double>(p.inputs[0].count()) : kInfinity;
      const Array r = bound.values.materialize();
      for (std::int64_t i = 0; i < r.count(); ++i) {
        if (position) {
          EXPECT_GE(r.data()[i] * static_cast<double>(r.count()), std::min(all, 2.0) - 1) << row.name;
        } else if (row.primitive != Primitive::kScatterAdd && row.primitive != Primitive::kAssemble) {
          EXPECT_FALSE(r.data()[i] < kInfinity) << row.name << " element " << i << " of a ball of radius " << open;
        }
      }
    }
  }
}

// Lines of many equal radii: the rule's own roundings all go one way.
TEST(Enclosure, HoldsLongSums) {
  constexpr std::int64_t kTerms = 200000;
  for (const Primitive primitive : {Primitive::kSum, Primitive::kCumsum, Primitive::kNorm, Primitive::kScatterAdd,
                                    Primitive::kSoftmax, Primitive::kMatmul, Primitive::kVarianceRsqrt}) {
    for (const double radius : {0.1, 1.0 / 3, 0.7}) {
      Balls balls{{primitive, {}, {1, 1}, {}, "long"}, {}};
      Problem& p = balls.problem;
      const bool rows = primitive == Primitive::kSoftmax || primitive == Primitive::kMatmul;
      p.inputs = {Array::full(rows ? Shape{1, kTerms} : Shape{kTerms, 1}, 0)};
      for (std::int64_t i = 0; i < kTerms; ++i) p.inputs[0].data()[i] = 1 + 0.3 * static_cast<double>(i % 2);
      balls.radii = {{Array::full(p.inputs[0].shape(), radius)}};
      if (rows) {
        if (primitive == Primitive::kSoftmax) p.shape = {1, kTerms};
      } else if (primitive != Primitive::kScatterAdd) {
        p.attributes.dims = {0};
        p.attributes.scalar = 1e-5;
        if (primitive == Primitive::kCumsum) p.shape = {kTerms, 1};
      }
      if (primitive == Primitive::kMatmul) p.inputs.push_back(Array::full({kTerms, 1}, 1));
      if (primitive == Primitive::kScatterAdd) p.inputs.push_back(Array::zeros({kTerms}));
      if (primitive == Primitive::kScatterAdd) p.attributes.size = 1;
      balls.radii.resize(p.inputs.size());
      const Enclosure enclosure(balls);
      Directions directions = enclosure.middle();
      std::fill(directions[0].begin(), directions[0].end(), 1.0);
      Outcome outcome;
      enclosure.hold(directions, outcome);
      EXPECT_TRUE(outcome.violation.empty()) << outcome.violation;
    }
  }
}

}  // namespace
}  // namespace plumbline::soundness
