// Do the legal executions catch a bound that is too small, and the points of balls a radius that is? The bound code is
// linked with its mutations (mutations.py); each is switched on in turn and must be exceeded by an execution or an
// image. Prints one line for each and a line of JSON. usage: soundness_mutants [--small]
#include <cstdio>
#include <cstring>
#include <sstream>

#include "tests/soundness/arithmetics.h"
#include "tests/soundness/check.h"
#include "tests/soundness/enclosure.h"

int plumbline_mutant = 0;  // NOLINT: read by the mutated sources.

namespace plumbline::soundness {
namespace {

struct Mutant {
  const char* name;
  const char* primitives;
  bool of_radius;
};

constexpr Mutant kMutants[] = {
#include "mutants.inc"
};

std::vector<Primitive> primitives_of(const Mutant& mutant) {
  std::vector<Primitive> result;
  std::istringstream names(mutant.primitives);
  for (std::string name; names >> name;) {
    for (const PrimitiveTraits& row : all_primitives()) {
      if (row.name == name) result.push_back(row.primitive);
    }
  }
  return result;
}

// The first violation found, by more and more executions, then by climbing; empty if none.
std::string caught(const Mutant& mutant, const std::vector<Case>& cases, int rounds, Random& random) {
  for (int round = 0; round < rounds; ++round) {
    const Effort effort{
        .problems = 8 << round, .executions = 8 << round, .size = 32, .terms = 64, .until_violation = true};
    for (const Primitive primitive : primitives_of(mutant)) {
      for (const Case& c : cases) {
        const Tally tally = check(primitive, c.arithmetic(), effort, random);
        if (tally.violations > 0) return tally.first;
      }
    }
  }
  for (int attempt = 0; attempt < 3; ++attempt) {
    for (const Primitive primitive : primitives_of(mutant)) {
      for (const Case& c : cases) {
        for (const std::int64_t terms : {3, 64}) {
          const int steps = terms == 3 ? 2000 << attempt : 400;
          if (climb(primitive, c.arithmetic(), steps, random, terms).ratio > 1) return "by climbing, " + c.name();
        }
      }
    }
  }
  return "";
}

// The same of a radius, which every one of its primitives must catch.
std::string caught_by_images(const Mutant& mutant, int problems, Random& random) {
  std::string first;
  for (const Primitive primitive : primitives_of(mutant)) {
    const Outcome outcome = hold_points(primitive, {.problems = problems, .until_violation = true}, random);
    if (outcome.violation.empty()) return "";
    if (first.empty()) first = outcome.violation;
  }
  return first;
}

int run(bool small) {
  Random random(12);
  const std::vector<Case> cases = all_cases();
  int number = 0, found = 0;
  for (const Mutant& mutant : kMutants) {
    plumbline_mutant = ++number;
    const std::string how = mutant.of_radius ? caught_by_images(mutant, small ? 1000 : 10000, random)
                                             : caught(mutant, cases, small ? 3 : 5, random);
    found += how.empty() ? 0 : 1;
    std::printf("%-8s %-48s %s\n", how.empty() ? "MISSED" : "caught", mutant.name, how.substr(0, 110).c_str());
  }
  std::printf("{\"bound_mutants\": %d, \"bound_mutants_caught\": %d}\n", number, found);
  return found == number ? 0 : 1;
}

}  // namespace
}  // namespace plumbline::soundness

int main(int argc, char** argv) { return plumbline::soundness::run(argc > 1 && std::strcmp(argv[1], "--small") == 0); }
