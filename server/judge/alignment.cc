#include "server/judge/judge.h"

namespace plumbline {

std::optional<Alignment> alignment(const JudgeInput& input) {
  if (!input.bounds->alignment || input.reference == nullptr) return std::nullopt;
  const ProgramAlignment& found = *input.bounds->alignment;
  Alignment told{{},          found.before, found.after,        found.parts,
                 found.agree, found.differ, found.target_alone, found.reference_alone};
  for (const AlignedPair& pair : found.operations) {
    AlignedOperation& operation = told.operations.emplace_back();
    if (pair.target) operation.target = place_of(*input.graph, *pair.target);
    if (pair.reference) operation.reference = place_of(*input.reference, *pair.reference);
    operation.deviation = pair.deviation;
    operation.allowed = pair.allowed;
    operation.elements = pair.elements;
    operation.element = pair.element;
    operation.target_value = pair.target_value;
    operation.reference_value = pair.reference_value;
    operation.elsewhere = pair.elsewhere;
    operation.drift = pair.drift;
  }
  return told;
}

}  // namespace plumbline
