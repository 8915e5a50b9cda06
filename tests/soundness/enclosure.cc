#include "tests/soundness/enclosure.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plumbline::soundness {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMost = std::numeric_limits<double>::max();

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

bool is_number(const Image& image) { return image && arf_is_finite(image->point()) != 0; }

enum class Place { kInside, kOutside, kUnclear, kOutsideOfDomain };

// Whether an image lies within `radius` of the centre's image, which fp64 holds as `out`.
Place place(const Image& image, const Image& centre, double out, double radius) {
  if (!image) return Place::kOutsideOfDomain;
  if (radius == kInfinity) return Place::kInside;
  if (arf_is_nan(image->point()) != 0) return Place::kUnclear;  // The oracle knows no number yet.
  if (!centre || std::isnan(radius) || std::isnan(out)) return Place::kOutside;
  if (arb_equal(*image, *centre) != 0) return Place::kInside;  // The same point, or the same limit.
  if (std::isinf(out)) {
    return arf_cmp_d(image->point(), std::copysign(kMost, out)) * std::copysign(1, out) > 0 ? Place::kInside
                                                                                            : Place::kOutside;
  }
  if (arf_is_inf(image->point()) != 0) return Place::kOutside;
  Real distance;
  const Real limit(radius);
  arb_sub(distance, *image, *centre, ARF_PREC_EXACT);
  arb_abs(distance, distance);
  if (arb_le(distance, limit) != 0) return Place::kInside;
  return arb_gt(distance, limit) != 0 ? Place::kOutside : Place::kUnclear;
}

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
      if (pick(random, 0, 15) == 0) return kMost;
      return std::ldexp(part + 0.5, static_cast<int>(pick(random, -1075, 1022)));
  }
}

}  // namespace

bool is_index(Primitive primitive, std::size_t input) {
  return (primitive == Primitive::kGatherRows || primitive == Primitive::kScatterAdd) && input == 1;
}

Balls random_balls(Primitive primitive, Random& random) {
  const Format format = coin(random) ? Format::kFloat64 : Format::kFloat32;
  Balls balls{random_problem(primitive, format, random, 8, 24), {}};
  // Of a sum that may absorb a term, radius and rounding hold the images together (absorb_test.cc).
  if (primitive == Primitive::kAdd || primitive == Primitive::kSub) balls.problem.attributes.scalar = 0;
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

Enclosure::Enclosure(Balls balls, double part) : balls_(std::move(balls)), row_(traits(balls_.problem.primitive)) {
  const Problem& p = balls_.problem;
  out_ = row_.evaluate(p.attributes, p.shape, p.inputs).materialize();
  const Bound bound = row_.radius(p.attributes, p.inputs, balls_.radii, out_);
  limit_ = bound ? bound.values.materialize() : Array::zeros(p.shape);
  if (part != 1) {
    Array claimed = Array::uninitialized(p.shape);
    for (std::int64_t i = 0; i < claimed.count(); ++i) claimed.data()[i] = part * limit_.data()[i];
    limit_ = claimed;
  }
  for (const Array& x : p.inputs) middle_.emplace_back(static_cast<std::size_t>(x.count()), 0.0);
}

Directions Enclosure::steepest(std::int64_t element, Random& random) const {
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

void Enclosure::hold(const Directions& directions, Outcome& outcome) const {
  const Point point = displaced(balls_, directions), middle = displaced(balls_, middle_);
  std::vector<Image> image, centre;
  std::vector<Place> places;
  for (slong precision = 256; precision <= 16384; precision *= 4) {
    image = images(balls_.problem, point, precision);
    centre = images(balls_.problem, middle, precision);
    places.clear();
    for (std::int64_t i = 0; i < out_.count(); ++i) {
      places.push_back(place(image.at(i), centre.at(i), out_.data()[i], limit_.data()[i]));
    }
    if (std::ranges::find(places, Place::kUnclear) == places.end()) break;
  }
  for (std::int64_t i = 0; i < out_.count(); ++i) {
    ++outcome.held;
    if (places[i] == Place::kOutsideOfDomain) {
      ++outcome.outside;
      continue;
    }
    outcome.compared += is_number(image[i]) && is_number(centre[i]) && limit_.data()[i] < kInfinity ? 1 : 0;
    if (places[i] != Place::kInside && outcome.violation.empty()) outcome.violation = describe(i, directions);
  }
}

std::string Enclosure::describe(std::int64_t i, const Directions& directions) const {
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

Outcome hold_points(Primitive primitive, const Points& points, Random& random) {
  Outcome outcome;
  for (int problem = 0; problem < points.problems; ++problem) {
    const Enclosure enclosure(random_balls(primitive, random), points.part);
    for (int point = 0; point < points.points; ++point) {
      enclosure.hold(random_directions(enclosure.middle(), random), outcome);
      if (enclosure.results() > 0) {
        enclosure.hold(enclosure.steepest(pick(random, 0, enclosure.results() - 1), random), outcome);
      }
    }
    if (points.until_violation && !outcome.violation.empty()) break;
  }
  return outcome;
}

}  // namespace plumbline::soundness
