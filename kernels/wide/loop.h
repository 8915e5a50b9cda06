// Elementwise loops of the wide arrays, over both cores. Results do not depend on the number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "kernels/cpu/parallel.h"
#include "kernels/strided.h"
#include "kernels/wide/array.h"

namespace plumbline::wide {

inline constexpr std::int64_t kGrain = 1024;  // Operations, of some 20 ns, that a second thread is worth.

template <class T>
struct Operand {
  const T* data;
  View view;  // From `data` on.
};

inline Operand<Wide> operand(const WideArray& x) { return {x.data(), View{x.shape(), x.view().strides, 0}}; }

// to[i] = f(operands...), i the row-major index in `shape`, which the operands broadcast to.
template <class Out, class F, class... T>
void map_to(Out* to, const Shape& shape, const F& f, const Operand<T>&... operands) {
  constexpr int kOperands = sizeof...(T);
  const std::vector<Dimension<kOperands>> dims = merged_dimensions<kOperands>(shape, {&operands.view...});
  const auto& steps = dims.back().strides;
  cpu::parallel_for(count(shape), kGrain, [&](std::int64_t begin, std::int64_t end) {
    Out* at = to + begin;
    for_each_run<kOperands>(dims, begin, end,
                            [&](std::int64_t length, const std::array<std::int64_t, kOperands>& from) {
                              [&]<std::size_t... k>(std::index_sequence<k...>) {
                                for (std::int64_t i = 0; i < length; ++i)
                                  *at++ = f(operands.data[from[k] + i * steps[k]]...);
                              }
                              (std::make_index_sequence<kOperands>{});
                            });
  });
}

// The array f(inputs...) of `shape`.
template <class F, class... Arrays>
WideArray map(const Shape& shape, const F& f, const Arrays&... inputs) {
  WideArray out = WideArray::uninitialized(shape);
  map_to(out.data(), shape, f, operand(inputs)...);
  return out;
}

}  // namespace plumbline::wide
