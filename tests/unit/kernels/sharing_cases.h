// Arrays some of whose elements share a rounding event, and what merging makes of a cotangent, written out.
#pragma once

#include <bit>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "kernels/operations.h"
#include "tests/unit/kernels/cases.h"

namespace plumbline::testing {

struct Sharing {
  std::vector<EventOperand> operands;
  Array value, cotangent;
  std::int64_t row = 1;
};

// Elements of few and of many, one event longer than some tiles, results of 0; by results; and rows.
inline std::vector<Sharing> sharings(std::uint64_t seed) {
  constexpr std::int64_t kRows = 150, kColumns = 140, kCount = kRows * kColumns;
  std::mt19937_64 rng(seed);
  const auto drawn = [&](const Shape& shape, std::int64_t distinct) {
    Array x = random_array(rng, shape, -1, 1);
    for (std::int64_t i = distinct; i < x.count(); ++i)
      x.data()[i] = x.data()[rng() % static_cast<std::uint64_t>(distinct)];
    return x;
  };
  std::vector<Sharing> result;
  for (const std::int64_t distinct : {std::int64_t{1}, std::int64_t{3}, std::int64_t{700}, kCount}) {
    const Array x = drawn({kRows, kColumns}, distinct), column = drawn({kColumns}, 5);
    Array value = drawn({kRows, kColumns}, kCount);
    for (std::int64_t i = 0; i < kCount; i += 7) value.data()[i] = 0;
    const Array a = drawn({kRows, kColumns}, kCount);
    result.push_back({{{x, Format::kFloat32}}, value, a});
    result.push_back({{{x, Format::kBFloat16}, {column.expand(x.shape()), Format::kFloat16}}, value, a});
    result.push_back({{}, x, a});
    Array rows = drawn({kCount / 30, 30}, kCount);
    for (std::int64_t r = distinct; r < kCount / 30; r += 2)
      std::copy_n(rows.data() + r % distinct * 30, 30, rows.data() + r * 30);
    result.push_back({{{rows, Format::kFloat32}}, rows, a.reshape(rows.shape()), 30});
  }
  // Events that end where tiles do, and take one, two or all.
  for (const std::int64_t length : {256, 512, 1024}) {
    Array x = Array::uninitialized({1024});
    for (std::int64_t i = 0; i < x.count(); ++i) x.data()[i] = static_cast<double>(i / length);
    result.push_back({{{x, Format::kFloat32}}, drawn({1024}, 1024), drawn({1024}, 1024)});
  }
  return result;
}

// Merges by what the formats hold of the operands. Rows are added; elements keep the root of their squares.
inline Array merged(const Sharing& of) {
  Array result = Array::uninitialized(of.cotangent.shape());
  const Array a = of.cotangent.materialize();
  std::copy_n(a.data(), a.count(), result.data());
  std::vector<Array> operands;
  for (const EventOperand& operand : of.operands) operands.push_back(operand.values.materialize());
  struct Event {
    std::int64_t first;
    double sum, squares;
    int count;
  };
  std::map<std::vector<std::uint64_t>, Event> events;
  for (std::int64_t i = 0; i < a.count() / of.row; ++i) {
    if (of.row == 1 && of.value.data()[i] == 0) continue;
    std::vector<std::uint64_t> held;
    for (std::size_t k = 0; k < operands.size(); ++k)
      for (std::int64_t j = 0; j < of.row; ++j)
        held.push_back(std::bit_cast<std::uint64_t>(round_to(of.operands[k].held, operands[k].data()[i * of.row + j])));
    if (operands.empty()) held.push_back(std::bit_cast<std::uint64_t>(of.value.data()[i]));
    const auto [at, fresh] = events.try_emplace(held, Event{i, 0, 0, 0});
    Event& event = at->second;
    if (of.row > 1 && !fresh)
      for (std::int64_t j = 0; j < of.row; ++j) {
        result.data()[event.first * of.row + j] += a.data()[i * of.row + j];
        result.data()[i * of.row + j] = 0;
      }
    if (of.row > 1) continue;
    const double one = a.data()[i];
    event.sum += one;
    event.squares += one * one;
    ++event.count;
    if (!fresh) result.data()[i] = 0;
  }
  if (of.row == 1)
    for (const auto& [held, event] : events)
      if (event.count > 1)
        result.data()[event.first] = std::copysign(std::max(std::fabs(event.sum), std::sqrt(event.squares)), event.sum);
  return result;
}

inline Array merged_by_operations(const Sharing& of) {
  return merge_events(order_events(of.operands, of.value, of.row), of.cotangent);
}

}  // namespace plumbline::testing
