#include "kernels/pullback.h"

#include <array>

#include "kernels/operations.h"
#include "kernels/primitive/element.h"
#include "kernels/strided.h"

namespace plumbline {

Array Pullback::source_of(const Array& values, const Shape& shape) {
  if (values.count() == 1) return values.reshape({1});
  const View view = view_of(values);
  const auto dims = merged_dimensions<1>(shape, {&view});
  View merged;
  for (const Dimension<1>& dim : dims) {
    merged.sizes.push_back(dim.size);
    merged.strides.push_back(dim.strides[0]);
  }
  if (dims.size() <= 2) return values.restride(merged);
  return values.expand(shape).materialize().reshape({count(shape)});
}

void PulledFunctional::reach(const Chain& chain) {
  const std::size_t sources = chain.sources().size();
  reached.assign(sources + chain.steps().size(), false);
  for (std::size_t s = chain.steps().size(); s-- > 0;) {
    const Chain::Step& step = chain.steps()[s];
    reached[sources + s] = reached[sources + s] || seeds[s];
    for (int k = 0; k < step.arity; ++k)
      if (reached[sources + s] && primitive::element::hands_on(step.primitive, k)) reached[step.inputs[k]] = true;
  }
}

void PulledBack::add(const PulledBack& part) {
  steps.resize(part.steps.size());
  sources.resize(part.sources.size());
  for (std::size_t s = 0; s < steps.size(); ++s) {
    steps[s].target.add(part.steps[s].target);
    steps[s].own.add(part.steps[s].own);
  }
  for (std::size_t i = 0; i < sources.size(); ++i) sources[i] += part.sources[i];
  drawn.resize(part.drawn.size());
  for (std::size_t s = 0; s < drawn.size(); ++s) {
    drawn[s].events.insert(drawn[s].events.end(), part.drawn[s].events.begin(), part.drawn[s].events.end());
    drawn[s].too_many = drawn[s].too_many || part.drawn[s].too_many;
  }
}

Later<std::vector<PulledBack>> pull_back(const Pullback& pullback, std::span<const PulledFunctional> functionals,
                                         std::span<const Array> errors, std::int64_t begin, std::int64_t count) {
  return current_operations().pull_back(pullback, functionals, errors, begin, count);
}

}  // namespace plumbline
