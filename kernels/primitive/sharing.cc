#include "kernels/sharing.h"

#include <algorithm>

#include "kernels/ball/key.h"
#include "kernels/ball/round.h"
#include "kernels/loop.h"
#include "kernels/operations.h"
#include "kernels/primitive/primitive.h"

namespace plumbline::primitive {
namespace {

constexpr int kOperandsMax = 3;

// 52 bits of a hash and one above them: a whole number, exact as a double, and never 0.
PLUMBLINE_HOST_DEVICE inline double number(std::uint64_t hash) { return static_cast<double>((hash >> 12) + 1); }

template <int N>
struct OfOperands {
  RoundTo held[kOperandsMax];

  template <class... X>
  PLUMBLINE_HOST_DEVICE double operator()(double value, X... x) const {
    if (value == 0) return 0;
    const double operands[] = {x...};
    std::uint64_t hash = key::kStart;
    for (int i = 0; i < N; ++i) hash = key::mixed(hash) ^ key::bits_of(held[i](operands[i]));
    return number(key::mixed(hash));
  }
};

struct OfResult {
  PLUMBLINE_HOST_DEVICE double operator()(double value) const {
    return value == 0 ? 0.0 : number(key::mixed(key::coarse_bits(value)));
  }
};

// A sum over the row of what each place and element give: the same for equal rows.
struct OfRow {
  std::int64_t n;
  RoundTo held;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t row, double* out, const double* x) const {
    const double* const xr = x + row * n;
    const RoundTo as = held;
    const double sum = team.sum(n, [=](std::int64_t i) {
      return number(key::mixed(key::mixed(static_cast<std::uint64_t>(i)) ^ key::bits_of(as(xr[i]))));
    });
    if (team.first()) out[row] = sum;
  }
};

// A stretch of the places in order, which a team walks.
constexpr std::int64_t kTile = 256;

PLUMBLINE_HOST_DEVICE inline std::int64_t end_of(std::int64_t tile, std::int64_t n) {
  return (tile + 1) * kTile < n ? (tile + 1) * kTile : n;
}
PLUMBLINE_HOST_DEVICE inline std::int64_t place(const double* order, std::int64_t at) {
  return static_cast<std::int64_t>(order[at]);
}

inline std::int64_t tiles_of(std::int64_t n) { return (n + kTile - 1) / kTile; }

struct InOrder {
  std::int64_t n;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t tile, double* sorted, const double* keys,
                                const double* order) const {
    const std::int64_t begin = tile * kTile;
    team.each(end_of(tile, n) - begin, [=](std::int64_t i) { sorted[begin + i] = keys[place(order, begin + i)]; });
  }
};

// Sums of cotangents of one event.
struct Part {
  double sum, squares, count;
};
constexpr std::int64_t kPartWords = 3;

PLUMBLINE_HOST_DEVICE inline double merged_size(const Part& event) {
  const double root = std::sqrt(event.squares), size = std::fabs(event.sum);
  return std::copysign(size > root ? size : root, event.sum);
}

// What each tile holds of an event that began before it.
struct Continued {
  std::int64_t n;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t tile, double* parts, const double* keys,
                                const double* order, const double* cotangent) const {
    const std::int64_t begin = tile * kTile;
    std::int64_t end = begin;
    if (begin > 0 && keys[begin] > 0 && keys[begin - 1] == keys[begin]) {
      for (std::int64_t high = end_of(tile, n); end < high;) {  // The first place of another event.
        const std::int64_t middle = end + (high - end) / 2;
        if (keys[middle] == keys[begin])
          end = middle + 1;
        else
          high = middle;
      }
    }
    const auto at = [=](std::int64_t i) { return cotangent[place(order, begin + i)]; };
    const double sum = team.sum(end - begin, at);
    const double squares = team.sum(end - begin, [=](std::int64_t i) { return at(i) * at(i); });
    if (!team.first()) return;
    parts[tile * kPartWords] = sum;
    parts[tile * kPartWords + 1] = squares;
    parts[tile * kPartWords + 2] = static_cast<double>(end - begin);
  }
};

// The first of an event gathers it: from its tile, and then what the next ones hold of it. `merged` holds the cotangent
// before.
struct Merge {
  std::int64_t n;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t tile, double* merged, const double* keys,
                                const double* order, const double* cotangent, const double* parts) const {
    const std::int64_t begin = tile * kTile, end = end_of(tile, n), all = n;
    team.each(end - begin, [=](std::int64_t i) {
      const std::int64_t first = begin + i;
      const double key = keys[first];
      if (key == 0) return;
      if (first > 0 && keys[first - 1] == key) {
        merged[place(order, first)] = 0;
        return;
      }
      Part event{0, 0, 0};
      std::int64_t at = first;
      for (; at < end && keys[at] == key; ++at) {
        const double a = cotangent[place(order, at)];
        event.sum += a;
        event.squares += a * a;
        event.count += 1;
      }
      for (std::int64_t next = tile + 1; at == next * kTile && at < all; ++next) {
        const double* const part = parts + next * kPartWords;
        event.sum += part[0];
        event.squares += part[1];
        event.count += part[2];
        at += static_cast<std::int64_t>(part[2]);
      }
      if (event.count > 1) merged[place(order, first)] = merged_size(event);
    });
  }
};

// Rows of one event, by the team of its first.
struct MergeRows {
  std::int64_t n, row;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t at, double* merged, const double* keys,
                                const double* order) const {
    const double key = keys[at];
    if (at > 0 && keys[at - 1] == key) return;
    double* const first = merged + place(order, at) * row;
    for (std::int64_t other = at + 1; other < n && keys[other] == key; ++other) {
      double* const own = merged + place(order, other) * row;
      team.each(row, [=](std::int64_t i) {
        first[i] += own[i];
        own[i] = 0;
      });
    }
  }
};

template <class... Values>
void keys_of(Array& keys, std::span<const EventOperand> operands, const Array& value, const Values&... values) {
  constexpr int kOperands = sizeof...(Values);
  if constexpr (kOperands > 0) {
    if (operands.size() == kOperands) {
      const auto held = [&](std::size_t i) { return RoundTo(operands[i < operands.size() ? i : 0].held); };
      loop::map(keys, OfOperands<kOperands>{{held(0), held(1), held(2)}}, value, values...);
      return;
    }
  }
  if constexpr (kOperands < kOperandsMax) keys_of(keys, operands, value, values..., operands[kOperands].values);
}

}  // namespace

EventOrder order_events(std::span<const EventOperand> operands, const Array& value, std::int64_t row) {
  const std::int64_t n = value.count() / row;
  EventOrder events{Array::uninitialized({n}), Array::uninitialized({n}), row};
  Array keys = Array::uninitialized({n});
  if (row > 1) {
    loop::for_each_row(n, row, keys, OfRow{row, RoundTo(operands[0].held)}, operands[0].values.materialize());
  } else {
    Array shaped = keys.reshape(value.shape());
    if (operands.empty()) {
      loop::map(shaped, OfResult{}, value);
    } else {
      keys_of(shaped, operands, value);
    }
  }
  Array line = events.order.reshape({1, n});
  loop::argsort(keys.reshape({1, n}), line);
  loop::for_each_row(tiles_of(n), kTile, events.keys, InOrder{n}, keys, events.order);
  return events;
}

Array merge_events(const EventOrder& events, const Array& cotangent) {
  const std::int64_t n = events.order.count(), tiles = tiles_of(n);
  const Array own = cotangent.materialize();
  Array merged = Array::uninitialized(cotangent.shape());
  loop::map(merged, loop::Copy{}, own);
  if (events.row > 1) {
    loop::for_each_row(n, events.row, merged, MergeRows{n, events.row}, events.keys, events.order);
  } else {
    Array parts = Array::uninitialized({tiles, kPartWords});
    loop::for_each_row(tiles, kTile, parts, Continued{n}, events.keys, events.order, own);
    loop::for_each_row(tiles, kTile, merged, Merge{n}, events.keys, events.order, own, parts);
  }
  return merged;
}

}  // namespace plumbline::primitive
