// Does a ball hold the images of the points of its operands' balls? The radius rules against FLINT/Arb.
#pragma once

#include <string>
#include <vector>

#include "tests/soundness/images.h"

namespace plumbline::soundness {

// Where a point lies within the balls of a problem: for each element of each input a number in [-1, 1].
using Directions = std::vector<std::vector<double>>;

struct Balls {
  Problem problem;
  std::vector<Bound> radii;

  double radius(std::size_t input, std::int64_t i) const { return radii[input] ? radii[input].values.data()[i] : 0.0; }
};

Balls random_balls(Primitive primitive, Random& random);
Directions random_directions(const Directions& like, Random& random);
bool is_index(Primitive primitive, std::size_t input);

// Counts elements of results.
struct Outcome {
  std::int64_t held = 0;
  std::int64_t outside = 0;   // The point lay outside of the function's domain: there was nothing to hold.
  std::int64_t compared = 0;  // A number was held against a finite radius around a number.
  std::string violation;      // The first image outside of its ball.
};

class Enclosure {
 public:
  // `part`: how much of each radius is claimed. With less than the whole a violation must be found.
  explicit Enclosure(Balls balls, double part = 1);

  const Directions& middle() const { return middle_; }
  std::int64_t results() const { return out_.count(); }

  // Where one element of the result moves fastest.
  Directions steepest(std::int64_t element, Random& random) const;
  void hold(const Directions& directions, Outcome& outcome) const;

 private:
  std::string describe(std::int64_t i, const Directions& directions) const;

  Balls balls_;
  const PrimitiveTraits& row_;
  Array out_, limit_;
  Directions middle_;
};

// Points of so many random problems.
struct Points {
  int problems = 160;
  int points = 8;  // Each problem has so many in directions drawn at random, and as many in the steepest ones.
  double part = 1;
  bool until_violation = false;
};
Outcome hold_points(Primitive primitive, const Points& points, Random& random);

}  // namespace plumbline::soundness
