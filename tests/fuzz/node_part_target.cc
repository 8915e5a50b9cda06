// What daemons tell each other of a step whose ranks stream to several of them, and the verdict that follows. The first
// byte of an input is the number of the run's ranks; then come the parts, each after its length.
#include "server/nodes/combine.h"
#include "tests/fuzz/pieces.h"
#include "tests/fuzz/steps.h"
#include "tests/fuzz/target.h"

namespace plumbline::fuzz {

PLUMBLINE_FUZZ_TARGET(node_part) {
  if (input.empty() || input.size() > kInputMax) return;
  StepOfNodes of;
  of.step = {"p", "j", "r", kAllRanks, 0};
  of.ranks_of_run = static_cast<std::uint8_t>(input[0]);
  of.waited = "5m";
  for (const std::string_view part : pieces(input.substr(1))) of.parts.emplace_back(part);
  const v1::Verdict verdict = combine(of);
  require(verdict.verdict() != v1::OUTCOME_UNSPECIFIED, "there is a verdict");
  require(!verdict.sentence().empty() && verdict.digest().size() == 32, "that can be stored");
  require(combine(of).SerializeAsString() == verdict.SerializeAsString(), "the same parts give the same one");
}

}  // namespace plumbline::fuzz
