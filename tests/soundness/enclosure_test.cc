// Every point of the input balls maps into the output ball: the radius rules against FLINT/Arb.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/soundness/images.h"

namespace plumbline::soundness {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kMost = std::numeric_limits<double>::max();
constexpr double kLeast = 0x1p-1074;

using Directions = std::vector<std::vector<double>>;  // In [-1, 1], of each input's elements.

struct Balls {
  Problem problem;
  std::vector<Bound> radii;

  double radius(std::size_t input, std::int64_t i) const { return radii[input] ? radii[input].values.data()[i] : 0.0; }
};

bool is_index(Primitive p, std::size_t input) {
  return (p == Primitive::kGatherRows || p == Primitive::kScatterAdd) && input == 1;
}

Point displaced(const Balls& balls, const Directions& directions) {
  Point point;
  for (std::size_t input = 0; input < directions.size(); ++input) {
    auto& elements = point.emplace_back();
    for (std::size_t i = 0; i < directions[input].size(); ++i) {
      Real& x = elements.emplace_back(balls.problem.inputs[input].data()[i]);
      const Real r(balls.radius(input, static_cast<std::int64_t>(i))), s(directions[input][i]);
      arb_addmul(x, s, r, ARF_PREC_EXACT);
    }
  }
  return point;
}

enum class Place { kInside, kOutside, kUnclear };

// Whether an image lies within `radius` of the centre's image, which fp64 holds as `out`.
Place place(const Real& image, const Real& centre, double out, double radius) {
  if (radius == kInfinity || arf_is_nan(image.point()) != 0) return Place::kInside;
  if (arb_equal(image, centre) != 0) return Place::kInside;  // The same point, or the same limit.
  if (std::isnan(radius) || std::isnan(out)) return Place::kOutside;
  if (std::isinf(out)) {
    return arf_cmp_d(image.point(), std::copysign(kMost, out)) * std::copysign(1, out) > 0 ? Place::kInside
                                                                                           : Place::kOutside;
  }
  if (arf_is_inf(image.point()) != 0) return Place::kOutside;
  Real distance;
  const Real limit(radius);
  arb_sub(distance, image, centre, ARF_PREC_EXACT);
  arb_abs(distance, distance);
  if (arb_le(distance, limit) != 0) return Place::kInside;
  return arb_gt(distance, limit) != 0 ? Place::kOutside : Place::kUnclear;
}

struct Outcome {
  std::int64_t held = 0, finite = 0;
  std::string violation;
};

class Enclosure {
 public:
  explicit Enclosure(Balls balls) : balls_(std::move(balls)), row_(traits(balls_.problem.primitive)) {
    const Problem& p = balls_.problem;
    out_ = row_.evaluate(p.attributes, p.shape, p.inputs).materialize();
    const Bound bound = row_.radius(p.attributes, p.inputs, balls_.radii, out_);
    limit_ = bound ? bound.values.materialize() : Array::zeros(p.shape);
    for (const Array& x : p.inputs) middle_.emplace_back(static_cast<std::size_t>(x.count()), 0.0);
  }

  const Directions& middle() const { return middle_; }
  const Array& limit() const { return limit_; }

  // Where one element of the result moves fastest.
  Directions steepest(std::int64_t element, Random& random) const {
    const Problem& p = balls_.problem;
    Array cotangent = Array::zeros(p.shape);
    cotangent.data()[element] = 1;
    std::vector<Array> slopes(p.inputs.size());
    std::vector<Array*> into;
    for (std::size_t i = 0; i < slopes.size(); ++i) into.push_back(is_index(p.primitive, i) ? nullptr : &slopes[i]);
    row_.pull_back(p.attributes, p.inputs, out_, cotangent, into);
    Directions result = middle_;
    const double sign = coin(random) ? 1 : -1;
    for (std::size_t input = 0; input < slopes.size(); ++input) {
      if (!slopes[input]) continue;
      const Array slope = slopes[input].materialize();
      for (std::int64_t i = 0; i < slope.count(); ++i) {
        result[input][i] = slope.data()[i] > 0 ? sign : slope.data()[i] < 0 ? -sign : coin(random) ? 1 : -1;
      }
    }
    return result;
  }

  void hold(const Directions& directions, Outcome& outcome) const {
    std::vector<Place> places;
    for (slong precision = 256; precision <= 16384; precision *= 4) {
      const Real none;
      const auto image = images(balls_.problem, displaced(balls_, directions), precision);
      const auto centre = images(balls_.problem, displaced(balls_, middle_), precision);
      if (image.size() != static_cast<std::size_t>(out_.count())) {
        outcome.violation = "no oracle";
        return;
      }
      places.clear();
      for (std::int64_t i = 0; i < out_.count(); ++i) {
        places.push_back(place(image[i], centre[i], out_.data()[i], limit_.data()[i]));
      }
      if (std::find(places.begin(), places.end(), Place::kUnclear) == places.end()) break;
    }
    for (std::int64_t i = 0; i < out_.count(); ++i) {
      ++outcome.held;
      outcome.finite += limit_.data()[i] < kInfinity ? 1 : 0;
      if (places[i] != Place::kInside && outcome.violation.empty()) outcome.violation = describe(i, directions);
    }
  }

 private:
  std::string describe(std::int64_t i, const Directions& directions) const {
    char text[200];
    std::snprintf(text, sizeof text, "%s %s element %lld = %.17g radius %.17g:", std::string(row_.name).c_str(),
                  balls_.problem.regime.c_str(), static_cast<long long>(i), out_.data()[i], limit_.data()[i]);
    std::string result = text;
    for (std::size_t input = 0; input < directions.size(); ++input) {
      const auto n = static_cast<std::int64_t>(directions[input].size());
      const bool alone = n == out_.count();
      for (std::int64_t j = alone ? i : 0; j < (alone ? i + 1 : std::min<std::int64_t>(n, 12)); ++j) {
        std::snprintf(text, sizeof text, " [%.17g %+g * %.17g]", balls_.problem.inputs[input].data()[j],
                      directions[input][j], balls_.radius(input, j));
        result += text;
      }
    }
    return result;
  }

  Balls balls_;
  const PrimitiveTraits& row_;
  Array out_, limit_;
  Directions middle_;
};

double random_radius(int regime, double x, Random& random) {
  if (pick(random, 0, 4) == 0) return 0;
  const double part = uniform(random, 0, 1);
  switch (regime) {
    case 0:  // Roundings.
      return std::fabs(x) * std::ldexp(part, -static_cast<int>(pick(random, 8, 54)));
    case 1:  // About as large as the value, or just as large.
      return std::fabs(x) * (coin(random) ? std::ldexp(part, static_cast<int>(pick(random, -6, 3))) : 1);
    case 2:  // Whatever the value.
      return std::ldexp(part, static_cast<int>(pick(random, -12, 12)));
    default:  // From the least number to the largest.
      return std::ldexp(part + 0.5, static_cast<int>(pick(random, -1075, 1022)));
  }
}

Balls random_balls(Primitive primitive, Random& random) {
  const Format format = coin(random) ? Format::kFloat64 : Format::kFloat32;
  Balls balls{random_problem(primitive, format, random, 8, 24), {}};
  const int regime = static_cast<int>(pick(random, 0, 3));
  for (std::size_t input = 0; input < balls.problem.inputs.size(); ++input) {
    Bound& radius = balls.radii.emplace_back();
    if (is_index(primitive, input) || pick(random, 0, 7) == 0) continue;
    const Array& x = balls.problem.inputs[input];
    radius.values = Array::uninitialized(x.shape());
    for (std::int64_t i = 0; i < x.count(); ++i) radius.values.data()[i] = random_radius(regime, x.data()[i], random);
  }
  return balls;
}

Directions random_directions(const Directions& like, Random& random) {
  Directions result = like;
  const bool corner = coin(random);
  for (auto& elements : result) {
    for (double& s : elements) {
      s = corner ? (coin(random) ? 1 : -1) : std::ldexp(static_cast<double>(pick(random, -64, 64)), -6);
    }
  }
  return result;
}

// No primitive is left out: one without an oracle in images.cc fails.
TEST(Enclosure, HoldsTheImagesOfEveryPoint) {
  for (const PrimitiveTraits& row : all_primitives()) {
    if (row.arity == 0) {  // Sources have nothing to carry.
      EXPECT_FALSE(row.radius({}, {}, {}, Array::scalar(1))) << row.name;
      continue;
    }
    Random random(1788 + static_cast<int>(row.primitive));
    Outcome outcome;
    for (int problem = 0; problem < 160; ++problem) {
      const Enclosure enclosure(random_balls(row.primitive, random));
      for (int point = 0; point < 8; ++point) {
        enclosure.hold(random_directions(enclosure.middle(), random), outcome);
        const std::int64_t results = enclosure.limit().count();
        if (results > 0) enclosure.hold(enclosure.steepest(pick(random, 0, results - 1), random), outcome);
      }
    }
    EXPECT_TRUE(outcome.violation.empty()) << outcome.violation;
    EXPECT_GT(outcome.finite, outcome.held / 8) << row.name << " is hardly ever bounded";
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
