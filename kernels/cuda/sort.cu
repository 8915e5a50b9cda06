#include <bit>
#include <cstdint>
#include <cub/device/device_radix_sort.cuh>
#include <limits>

#include "kernels/cuda/loop.cuh"
#include "kernels/cuda/sort.cuh"
#include "kernels/cuda/table.cuh"

namespace plumbline::cuda {
namespace {

using internal::grid_for;
using internal::kThreads;

// Keys whose order as unsigned numbers is that of falling values, NaN first and the zeros equal; and where each is.
__global__ void __launch_bounds__(kThreads)
    key_kernel(std::int64_t n, const double* x, std::uint64_t* key, std::uint32_t* place) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    const double v = x[i] + 0.0;  // -0 becomes 0.
    const auto bits = static_cast<std::uint64_t>(__double_as_longlong(v));
    constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
    key[i] = v != v ? 0 : (bits & kSign) != 0 ? bits : ~(bits | kSign);
    place[i] = static_cast<std::uint32_t>(i);
  }
}

__global__ void __launch_bounds__(kThreads)
    line_kernel(std::int64_t n, std::uint32_t length, const std::uint32_t* place, std::uint32_t* line) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    line[i] = place[i] / length;
  }
}

// order [lines, kept] from the places of each line's elements, line after line.
__global__ void __launch_bounds__(kThreads)
    order_kernel(std::int64_t n, std::int64_t length, std::int64_t kept, const std::uint32_t* place, double* order) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    const std::int64_t line = i / kept;
    order[i] = static_cast<double>(place[line * length + i % kept] - line * length);
  }
}

// Stable, by the lowest `bits` of the keys.
template <class Key>
void sort(Queue& queue, std::int64_t n, int bits, const Key* from, Key* to, const std::uint32_t* place,
          std::uint32_t* sorted) {
  std::size_t bytes = 0;
  const auto count = static_cast<std::uint32_t>(n);
  const auto by_cub = [&](void* memory) {
    queue.check(cub::DeviceRadixSort::SortPairs(memory, bytes, from, to, place, sorted, count, 0, bits, queue.stream()),
                "cub::DeviceRadixSort");
  };
  by_cub(nullptr);
  const Array memory = memory_of<char>(bytes);
  by_cub(memory.device_write());
  queue.launched();
}

}  // namespace

bool argsort(Queue& queue, const Array& x, Array& order) {
  const std::int64_t n = x.count(), lines = x.shape()[0], length = x.shape()[1];
  if (n > std::numeric_limits<std::int32_t>::max()) return false;
  if (order.count() == 0) return true;
  const auto room = static_cast<std::size_t>(n);
  const Array keys = memory_of<std::uint64_t>(room), sorted_keys = memory_of<std::uint64_t>(room);
  Array places = memory_of<std::uint32_t>(room), sorted = memory_of<std::uint32_t>(room);
  queue.launch("keys", key_kernel, grid_for(n), n, x.device_read(), rows_of<std::uint64_t>(keys),
               rows_of<std::uint32_t>(places));
  sort(queue, n, 64, rows_of<std::uint64_t>(keys), rows_of<std::uint64_t>(sorted_keys), rows_of<std::uint32_t>(places),
       rows_of<std::uint32_t>(sorted));
  if (lines > 1) {  // All elements by value; now by line, each line's staying in order.
    std::swap(places, sorted);
    queue.launch("lines", line_kernel, grid_for(n), n, static_cast<std::uint32_t>(length),
                 static_cast<const std::uint32_t*>(rows_of<std::uint32_t>(places)), rows_of<std::uint32_t>(keys));
    sort(queue, n, std::bit_width(static_cast<std::uint64_t>(lines - 1)), rows_of<std::uint32_t>(keys),
         rows_of<std::uint32_t>(sorted_keys), rows_of<std::uint32_t>(places), rows_of<std::uint32_t>(sorted));
  }
  queue.launch("order", order_kernel, grid_for(order.count()), order.count(), length, order.shape()[1],
               static_cast<const std::uint32_t*>(rows_of<std::uint32_t>(sorted)), order.device_write());
  return true;
}

}  // namespace plumbline::cuda
