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

// Places of one event follow each other in `order`.
struct Runs {
  const double *keys, *order;

  PLUMBLINE_HOST_DEVICE std::int64_t place(std::int64_t at) const { return static_cast<std::int64_t>(order[at]); }
  PLUMBLINE_HOST_DEVICE double key(std::int64_t at) const { return keys[place(at)]; }
};

// Sums of cotangents of one event, as far as they were met.
struct Part {
  double sum, squares, count;
};
// A tile tells of the event that began before it and of the one that goes on after it.
constexpr std::int64_t kPartWords = 6;
constexpr std::int64_t kTile = 2048;  // Places that one thread walks.

PLUMBLINE_HOST_DEVICE inline void put(double* to, const Part& part) {
  to[0] = part.sum;
  to[1] = part.squares;
  to[2] = part.count;
}
PLUMBLINE_HOST_DEVICE inline void add(Part& total, const double* part) {
  total.sum += part[0];
  total.squares += part[1];
  total.count += part[2];
}
PLUMBLINE_HOST_DEVICE inline double merged_size(const Part& event) {
  const double root = std::sqrt(event.squares), size = std::fabs(event.sum);
  return std::copysign(size > root ? size : root, event.sum);
}

// Merges the events that lie within a tile. `merged` holds the cotangent before, and room for all tiles' parts.
struct MergeTile {
  std::int64_t n;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t tile, double* merged, const double* keys,
                                const double* order) const {
    if (!team.first()) return;
    const Runs runs{keys, order};
    const std::int64_t begin = tile * kTile, end = begin + kTile < n ? begin + kTile : n;
    double* const mine = merged + n + tile * kPartWords;
    put(mine, {0, 0, 0});
    put(mine + 3, {0, 0, 0});
    for (std::int64_t at = begin; at < end;) {
      const double key = runs.key(at);
      if (key == 0) break;  // These come last.
      const bool earlier = at == begin && begin > 0 && runs.key(begin - 1) == key;
      const std::int64_t first = runs.place(at);
      Part event{0, 0, 0};
      for (; at < end && runs.key(at) == key; ++at) {
        const std::int64_t place = runs.place(at);
        const double a = merged[place];
        event.sum += a;
        event.squares += a * a;
        event.count += 1;
        if (earlier || place != first) merged[place] = 0;
      }
      const bool later = at == end && end < n && runs.key(end) == key;
      if (earlier) put(mine, event);
      if (!earlier && later) put(mine + 3, event);
      if (!earlier && !later && event.count > 1) merged[first] = merged_size(event);
    }
  }
};

// Adds up what all tiles hold of an event that begins in one tile and goes on after it.
struct MergeAcross {
  std::int64_t n;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t tile, double* merged, const double* order) const {
    const double *const parts = merged + n, *const mine = parts + tile * kPartWords + 3;
    if (!team.first() || mine[2] == 0) return;
    Part event{0, 0, 0};
    add(event, mine);
    const std::int64_t tiles = (n + kTile - 1) / kTile;
    for (std::int64_t next = tile + 1; next < tiles && parts[next * kPartWords + 2] > 0; ++next) {
      add(event, parts + next * kPartWords);
      if (parts[next * kPartWords + 2] < kTile) break;
    }
    const std::int64_t first = (tile + 1) * kTile - static_cast<std::int64_t>(mine[2]);
    merged[static_cast<std::int64_t>(order[first])] = merged_size(event);
  }
};

// Rows of one event, by the team of its first.
struct MergeRows {
  std::int64_t n, row;

  PLUMBLINE_ROW void operator()(const Team& team, std::int64_t at, double* merged, const double* keys,
                                const double* order) const {
    const Runs runs{keys, order};
    const double key = runs.key(at);
    if (at > 0 && runs.key(at - 1) == key) return;
    double* const first = merged + runs.place(at) * row;
    for (std::int64_t other = at + 1; other < n && runs.key(other) == key; ++other) {
      double* const own = merged + runs.place(other) * row;
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
  if (row > 1) {
    loop::for_each_row(n, row, events.keys, OfRow{row, RoundTo(operands[0].held)}, operands[0].values.materialize());
  } else {
    Array keys = events.keys.reshape(value.shape());
    if (operands.empty()) {
      loop::map(keys, OfResult{}, value);
    } else {
      keys_of(keys, operands, value);
    }
  }
  Array line = events.order.reshape({1, n});
  loop::argsort(events.keys.reshape({1, n}), line);
  return events;
}

Array merge_events(const EventOrder& events, const Array& cotangent) {
  const std::int64_t n = events.order.count(), tiles = (n + kTile - 1) / kTile;
  const bool rows = events.row > 1;
  const std::int64_t all = cotangent.count();
  Array memory = Array::uninitialized({all + (rows ? 0 : tiles * kPartWords)});
  Array merged = memory.restride({cotangent.shape(), row_major_strides(cotangent.shape()), 0});
  loop::map(merged, loop::Copy{}, cotangent);
  if (rows) {
    loop::for_each_row(n, events.row, memory, MergeRows{n, events.row}, events.keys, events.order);
  } else {
    loop::for_each_row(tiles, 1, memory, MergeTile{n}, events.keys, events.order);
    loop::for_each_row(tiles, 1, memory, MergeAcross{n}, events.order);
  }
  return merged;
}

}  // namespace plumbline::primitive
