// Small tables in the device's memory, and the operands that they point to.
#pragma once

#include <vector>

#include "kernels/chain.h"
#include "kernels/cuda/loop.cuh"

namespace plumbline::cuda {

// Room for so many rows.
template <class Row>
Array memory_of(std::size_t rows) {
  return Array::uninitialized({static_cast<std::int64_t>(rows * sizeof(Row) / sizeof(double) + 1)});
}
template <class Row>
Array table_of(Queue& queue, const std::vector<Row>& rows) {
  Array memory = memory_of<Row>(rows.size());
  queue.send(rows.data(), rows.size() * sizeof(Row), memory.device_write());
  return memory;
}
template <class Row>
Row* rows_of(const Array& table) {
  return reinterpret_cast<Row*>(table.device_write());
}

// The rows of a table that was brought to the host.
template <class Row>
std::vector<Row> rows_brought(const double* numbers, std::size_t rows) {
  const Row* const first = reinterpret_cast<const Row*>(numbers);
  return {first, first + rows};
}

namespace internal {
inline bool away(const ChainInput& of) { return of.values.away() || of.radii.values.away(); }
}  // namespace internal

// Operands in the device's memory, held until the work that reads them is in the queue: memory that is given up serves
// later work alone.
class Residents {
 public:
  explicit Residents(Queue& queue) : queue_(queue) {}

  const double* values(const ChainInput& of, std::int64_t count) {
    if (of.values) return keep(of.values);
    Array decoded = Array::uninitialized({count});
    cuda::decode(decoded, of.format, of.bytes);
    return keep(decoded);
  }
  const double* radii(const ChainInput& of) { return of.radii ? keep(of.radii.values) : nullptr; }

 private:
  const double* keep(const Array& x) { return held_.emplace_back(resident(queue_, x)).device_read(); }

  Queue& queue_;
  std::vector<Array> held_;
};

}  // namespace plumbline::cuda
