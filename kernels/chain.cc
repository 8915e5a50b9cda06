#include "kernels/chain.h"

#include "kernels/operations.h"

namespace plumbline {

void Chain::add(Primitive primitive, const Attributes& attributes, std::span<const std::size_t> inputs,
                const Arithmetic& arithmetic) {
  Step& step = steps_.emplace_back();
  step.primitive = primitive;
  step.arity = static_cast<int>(inputs.size());
  for (std::size_t k = 0; k < inputs.size(); ++k) step.inputs[k] = static_cast<std::uint32_t>(inputs[k]);
  step.fixed_exponent = primitive == Primitive::kPow && inputs[1] < sources_.size() && sources_[inputs[1]].one;
  if (!enclosed_) return;
  step.moved = std::ranges::any_of(inputs, [&](std::size_t input) { return enclosed(input); });
  step.inflated = step.moved && !of_result_alone(primitive, attributes);
  step.error = primitive::element::local_error(primitive, attributes, arithmetic);
  step.tiny = primitive::element::flushed_below(primitive, arithmetic);
}

// A step's slot is free again after its last reader, whose own is another.
void Chain::ask(std::vector<std::size_t> ends) {
  ends_ = std::move(ends);
  std::vector<std::size_t> last(steps_.size(), 0);  // The last reader of each step.
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    last[s] = s;
    for (const std::uint32_t input : steps_[s].inputs)
      if (input >= sources_.size()) last[input - sources_.size()] = s;
  }
  for (const std::size_t end : ends_) last[end - sources_.size()] = steps_.size();
  std::vector<std::uint32_t> free;
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    if (free.empty()) free.push_back(slots_++);
    steps_[s].slot = free.back();
    free.pop_back();
    for (std::size_t before = 0; before <= s; ++before)
      if (last[before] == s) free.push_back(steps_[before].slot);
  }
}

ChainResult run(const Chain& chain, std::span<const ChainInput> inputs, std::int64_t count,
                std::span<const Array> into) {
  if (chain.steps().empty()) return {};
  return current_operations().run_chain(chain, inputs, count, into);
}

}  // namespace plumbline
