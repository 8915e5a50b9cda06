#include "kernels/chain.h"

#include "kernels/operations.h"

#if defined(__CUDACC__)
#include "kernels/cuda/chain.cuh"
#else
#include "kernels/cpu/chain.h"
#endif

namespace plumbline::primitive {

ChainResult run_chain(const Chain& chain, std::span<const ChainInput> inputs, std::int64_t count) {
#if defined(__CUDACC__)
  return cuda::run(chain, inputs, count);
#else
  return cpu::run(chain, inputs, count);
#endif
}

}  // namespace plumbline::primitive
