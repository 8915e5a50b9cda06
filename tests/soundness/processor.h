// The processor's own rounding mode and flushing of subnormals, for as long as the object lives. Arithmetic under it
// must stand in a function that the compiler cannot move across: a virtual call.
#pragma once

#include <cfenv>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace plumbline::soundness {

class ProcessorMode {
 public:
  ProcessorMode(bool flush_subnormals, bool toward_zero) : rounding_(std::fegetround()) {
    if (toward_zero) std::fesetround(FE_TOWARDZERO);
#if defined(__SSE2__)
    before_ = _mm_getcsr();
    if (flush_subnormals) _mm_setcsr(before_ | 0x8040);  // Flush to zero, denormals are zero.
#else
    static_cast<void>(flush_subnormals);
#endif
  }
  ~ProcessorMode() {
#if defined(__SSE2__)
    _mm_setcsr(before_);
#endif
    std::fesetround(rounding_);
  }
  ProcessorMode(const ProcessorMode&) = delete;
  ProcessorMode& operator=(const ProcessorMode&) = delete;

 private:
  int rounding_;
  unsigned before_ = 0;
};

}  // namespace plumbline::soundness
