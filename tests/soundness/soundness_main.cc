// Legal executions of every primitive against their bounds. Prints a table and a line of JSON.
// usage: soundness [EXECUTIONS [SEED]]     elements executed per class of primitives; default 200000
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/soundness/arithmetics.h"
#include "tests/soundness/check.h"

namespace plumbline::soundness {
namespace {

int run(double per_class, std::uint64_t seed) {
  const std::vector<Case> cases = all_cases();
  const auto rows = all_primitives();
  std::vector<Tally> tallies(rows.size());
  std::int64_t executions = 0, violations = 0, tested = 0;
  std::printf("%-16s %-12s %14s %10s %8s\n", "primitive", "class", "executions", "violations", "witness");
  for (int c = 0; c < static_cast<int>(PrimitiveClass::kCount); ++c) {
    const auto begin = std::chrono::steady_clock::now();
    const auto primitive_class = static_cast<PrimitiveClass>(c);
    std::int64_t members = 0, total = 0;
    for (const PrimitiveTraits& row : rows) members += class_of(row.primitive) == primitive_class ? 1 : 0;
    const auto share = static_cast<std::int64_t>(per_class / static_cast<double>(members)) + 1;
    for (std::size_t p = 0; p < rows.size(); ++p) {
      if (class_of(rows[p].primitive) != primitive_class) continue;
      Random random(seed * 1000003 + p);
      Tally& tally = tallies[p];
      const bool small = share < 1000000;
      // Each problem is executed often: its exact result costs more than an execution.
      const Effort effort{.problems = 1, .executions = small ? 8 : 64, .size = small ? 64 : 1024, .terms = 96};
      std::size_t rounds = 0;
      while (tally.executions < share && rounds < 1000000) {
        tally.add(check(rows[p].primitive, cases[rounds++ % cases.size()].arithmetic(), effort, random));
        if (tally.executions == 0 && rounds > 2 * cases.size()) break;
      }
      if (rounds < cases.size()) {
        for (; rounds < cases.size(); ++rounds) {
          tally.add(check(rows[p].primitive, cases[rounds].arithmetic(), effort, random));
        }
      }
      tested += tally.executions > 0 ? 1 : 0;
      total += tally.executions;
      violations += tally.violations;
      std::printf("%-16s %-12s %14lld %10lld %8.4f %s\n", std::string(rows[p].name).c_str(),
                  std::string(name_of(primitive_class)).c_str(), static_cast<long long>(tally.executions),
                  static_cast<long long>(tally.violations), tally.witness, tally.first.c_str());
      std::fflush(stdout);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("%-16s %-12s %14lld   in %.1f s\n", "", std::string(name_of(primitive_class)).c_str(),
                static_cast<long long>(total), seconds.count());
    executions += total;
  }
  std::printf("{\"primitives\": %zu, \"primitives_tested\": %lld, \"executions\": %lld, \"violations\": %lld}\n",
              rows.size(), static_cast<long long>(tested), static_cast<long long>(executions),
              static_cast<long long>(violations));
  return violations == 0 && tested == static_cast<std::int64_t>(rows.size()) ? 0 : 1;
}

}  // namespace
}  // namespace plumbline::soundness

int main(int argc, char** argv) {
  const double per_class = argc > 1 ? std::atof(argv[1]) : 2e5;
  return plumbline::soundness::run(per_class, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
}
