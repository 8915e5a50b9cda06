// Chains and comparisons of the backend that is compiled (kernels/chain.h, kernels/comparison.h).
#include "kernels/operations.h"

#if defined(__CUDACC__)
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/comparison.cuh"
namespace plumbline {
namespace backend = cuda;
}
#else
#include "kernels/cpu/chain.h"
#include "kernels/cpu/comparison.h"
namespace plumbline {
namespace backend = cpu;
}
#endif

namespace plumbline::primitive {

ChainResult run_chain(const Chain& chain, std::span<const ChainInput> inputs, std::int64_t count) {
  return backend::run(chain, inputs, count);
}

Comparison compare(std::span<const ComparedTerm> centres, std::span<const ComparedTerm> values, std::int64_t count,
                   double slack) {
  return backend::compare(centres, values, count, slack);
}

}  // namespace plumbline::primitive
