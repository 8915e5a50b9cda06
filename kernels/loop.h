// The loops that all work on arrays runs through. One source serves every backend: compiled by the host's compiler
// these are the host's loops; compiled by nvcc they launch kernels where the result lives in the memory of the calling
// thread's CUDA device, and are the host's loops otherwise. Functors are called on either side: PLUMBLINE_HOST_DEVICE
// after a lambda's captures, which are by value. Results depend on shapes and the backend, never on timing.
//
//   map(out, f, inputs...)      out = f(inputs...), the inputs broadcast to out's shape. `out` may be a strided window
//                               without overlap, and one of the inputs where that is read at the index written.
//   map_add(out, f, inputs...)  out += f(inputs...)
//   map_wide<F, kWide>(out, inputs...)
//                               out = F::value(inputs...), all row-major; the host's kWide does whole vectors.
//   fill(out, f)                out[i] = f(i), i the row-major index
//   reduce<Combine>(out, accumulate, shape, f, inputs...)
//                               out (row-major, sizes 1 where reduced, or fewer leading dimensions than `shape`) =
//                               combination over the reduced dimensions of f(inputs...), the inputs broadcast to
//                               `shape`. With `accumulate`, combined with what out holds.
//   for_each_row(rows, length, out, body, inputs...)
//                               body(team, row, out's data, inputs' data...), all row-major; `length` tells how much
//                               work a row is. A team (kernels/cpu/team.h, kernels/cuda/team.cuh) walks the row.
//   placed(out, x)              x as for_each_row hands it to a body beside `out`: for who reckons with its strides,
//   which
//                               a copy in a device's memory need not keep
//   argsort(x, order)           order [lines, kept] = in each line of x [lines, length] the places of its `kept`
//   largest
//                               elements, falling, NaN first, equal ones in order
//   group(row, start, order)    order: the places of all that `row` names, a number from 0 or -1 (none), row after row
//                               and in order within each; row r's begin at start[r] and end before start[r + 1]
//   decode(out, format, bytes)  ball/format.h
//   total(f, n, inputs...)      the sum of the Totals f(inputs[i]...) over i < n, all row-major; Later
//   totals(f, n, each, inputs...)
//                               total(f, n, x, inputs...) for every x of `each`; Later
//   any(f, x)                   an array of one element, 1 if f holds for an element of x, row-major, otherwise 0
//   matmul(a, b, c, accumulate) kernels/cpu/gemm.h
//   matmul_narrow(a, of_a, b, of_b, c)
//                               kernels/cpu/gemm.h; a device's: kernels/cuda/product.cuh
#pragma once

#include "kernels/ball/scalar.h"

#if defined(__CUDACC__)
#include "kernels/cuda/loop.cuh"
namespace plumbline {
namespace loop = cuda;
}
#else
#include "kernels/cpu/loop.h"
namespace plumbline {
namespace loop = cpu;
}
#endif
