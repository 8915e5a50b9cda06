// Chains, their cotangents and comparisons of the backend that is compiled (kernels/chain.h, pullback.h, comparison.h).
#include "kernels/loop.h"
#include "kernels/operations.h"
#if defined(__CUDACC__)
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/comparison.cuh"
#include "kernels/cuda/pullback.cuh"
#else
#include "kernels/cpu/chain.h"
#include "kernels/cpu/comparison.h"
#include "kernels/cpu/pullback.h"
#endif

namespace plumbline::primitive {

ChainResult run_chain(const Chain& chain, std::span<const ChainInput> inputs, std::int64_t count,
                      std::span<const Array> into) {
  return loop::run(chain, inputs, count, into);
}

Later<std::vector<PulledBack>> pull_back(const Pullback& pullback, std::span<const PulledFunctional> functionals,
                                         std::span<const Array> errors, std::int64_t begin, std::int64_t count) {
  return loop::pull_back(pullback, functionals, errors, begin, count);
}

Later<Comparison> compare(std::span<const ComparedTerm> centres, std::span<const ComparedTerm> values,
                          std::int64_t count, double slack) {
  return loop::compare(centres, values, count, slack);
}

}  // namespace plumbline::primitive
