#include "server/bound/envelope/events.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "kernels/cpu/parallel.h"

namespace plumbline {
namespace {

using key::bits_of;
using key::coarse_bits;
using key::mixed;

bool by_rows(Primitive primitive) { return primitive == Primitive::kSoftmax || primitive == Primitive::kLogSoftmax; }

// Keys that are not 0, by linear probing.
class KeyCounts {
 public:
  explicit KeyCounts(std::size_t most) : slots_(std::bit_ceil(2 * most + 2)) {}

  // How often it was counted before.
  std::uint32_t count(std::uint64_t key) {
    std::size_t at = key >> 7 & (slots_.size() - 1);
    while (slots_[at].key != 0 && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    slots_[at].key = key;
    return slots_[at].times++;
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    std::uint32_t times = 0;
  };
  std::vector<Slot> slots_;
};

}  // namespace

bool exact_at_zero(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  return node.primitive == Primitive::kExp && node.attributes.scalar == 0 && !graph.origins[node.origin].defined;
}

EventKeys::Operand::Operand(const Array& values, Format held)
    : array(values), format(held), held(held), contiguous(values.contiguous()) {
  // Dimensions that one stride walks through are one.
  for (std::size_t d = 0; d < values.shape().size(); ++d) {
    const std::int64_t size = values.shape()[d], stride = values.strides()[d];
    if (size == 1) continue;
    if (!dims.empty() && dims.back().second == stride * size)
      dims.back() = {dims.back().first * size, stride};
    else
      dims.emplace_back(size, stride);
  }
}

double EventKeys::Operand::at(std::int64_t i) const {
  if (contiguous) return array.data()[i];
  std::int64_t offset = 0;
  for (std::size_t d = dims.size(); d-- > 1; i /= dims[d].first) offset += i % dims[d].first * dims[d].second;
  return array.data()[dims.empty() ? 0 : offset + i * dims[0].second];
}

EventKeys::EventKeys(const Graph& graph, NodeId id, const std::vector<Array>& inputs, const Array& value)
    : value_(value.materialize()), count_(value.count()) {
  const Node& node = graph.nodes[id];
  by_operands_ = is_elementwise(node.primitive) || by_rows(node.primitive);
  if (!by_operands_) return;
  exact_at_zero_ = exact_at_zero(graph, id);
  for (std::size_t i = 0; i < inputs.size(); ++i)  // One number for all tells nothing apart.
    if (inputs[i].count() > 1 || count_ == 1)
      operands_.emplace_back(inputs[i].expand(node.shape), graph.nodes[node.inputs[i]].result);
  if (by_rows(node.primitive) && !node.shape.empty() && node.shape.back() > 1) {
    row_ = node.shape.back();
    count_ /= row_;
    materialize();
  }
}

void EventKeys::materialize() {
  for (Operand& operand : operands_) operand = {operand.array.materialize(), operand.format};
}

EventOrder EventKeys::order() const {
  std::vector<EventOperand> operands;
  for (const Operand& operand : operands_) operands.push_back({operand.array, operand.format});
  if (!exact_at_zero_) return order_events(operands, value_, row_);
  const std::vector<Array> where = {operands_[0].array, value_, Array::scalar(0)};  // A result of 0 is no event.
  return order_events(operands, traits(Primitive::kSelect).evaluate({}, value_.shape(), where), row_);
}

std::uint64_t EventKeys::at(std::int64_t i) const {
  std::uint64_t key = key::kStart;
  if (row_ > 1) {
    const double* const x = operands_[0].array.data();
    for (std::int64_t k = i * row_; k < (i + 1) * row_; ++k) key = mixed(key) ^ bits_of(operands_[0].held(x[k]));
    return mixed(key) | 1;
  }
  if (value_.data()[i] == 0) return 0;
  if (!by_operands_) return mixed(coarse_bits(value_.data()[i])) | 1;
  if (exact_at_zero_ && operands_[0].at(i) == 0) return 0;
  for (const Operand& operand : operands_) key = mixed(key) ^ bits_of(operand.held(operand.at(i)));
  return mixed(key) | 1;
}

namespace {

// A cotangent of exactly 0 adds nothing, even where the error is infinite.
inline double weight(double a, double error) {
  const double product = std::fabs(a) * error;
  return a == 0 ? 0.0 : product;
}

// The upper 99% limit of how many pairs were to be expected, where so many pairs and triples of one event were drawn.
// Pairs of many events occur as in a Poisson process: (found + 1)'s gamma distribution (Wilson, Hilferty 1931). Those
// of one event that is drawn x times, Poisson of mean m, have the variance m^3 + m^2 / 2, of which triples tell the
// first part: E[x (x - 1) (x - 2)] = m^3.
double pairs_limit(double pairs, double triples) {
  constexpr double kNormal99 = 2.3263;
  const double shape = pairs + 1;
  const double apart = shape * std::pow(1 - 1 / (9 * shape) + kNormal99 / (3 * std::sqrt(shape)), 3);
  return apart + kNormal99 * (std::sqrt(pairs + 6 * triples) - std::sqrt(pairs));
}

}  // namespace

EventWeights::EventWeights(std::int64_t count, std::int64_t tile)
    : tile(tile),
      tile_blocks((tile + kBlock - 1) / kBlock),
      totals(static_cast<std::size_t>((count + tile - 1) / tile)),
      blocks(totals.size() * static_cast<std::size_t>(tile_blocks)) {}

double EventWeights::weigh(std::int64_t index, std::span<const double> a, const double* errors) {
  constexpr std::int64_t kLanes = 8;
  double* block = &blocks[static_cast<std::size_t>(index * tile_blocks)];
  double total = 0;
  for (std::int64_t begin = 0; begin < std::ssize(a); begin += kBlock) {
    std::int64_t i = begin;
    const std::int64_t end = std::min(std::ssize(a), begin + kBlock);
    double lanes[kLanes] = {}, sum = 0;
    for (; i + kLanes <= end; i += kLanes)
      for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += weight(a[i + lane], errors[i + lane]);
    for (; i < end; ++i) sum += weight(a[i], errors[i]);
    for (double lane : lanes) sum += lane;
    *block++ = sum;
    total += sum;
  }
  totals[static_cast<std::size_t>(index)] = total;
  return total * (1 + 0x1p-20);  // Above the rounding of its additions, and of those of 2^31 tiles.
}

EventWeights::EventWeights(const Array& cotangent, const Array& errors) : EventWeights(cotangent.count(), 1 << 13) {
  const double *const a = cotangent.data(), *const e = errors.data();
  cpu::parallel_for(std::ssize(totals), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t index = begin; index < end; ++index) {
      const std::int64_t from = index * tile, length = std::min(tile, cotangent.count() - from);
      weigh(index, {a + from, static_cast<std::size_t>(length)}, e + from);
    }
  });
}

double sharing_drawn(const EventKeys& keys, const EventWeights& weights, const Array& cotangent, const Array& errors,
                     double d) {
  constexpr std::int64_t kBlock = EventWeights::kBlock;
  const std::int64_t n = keys.count();
  const double *a = cotangent.data(), *e = errors.data();
  std::vector<double> before{0};
  for (double of_tile : weights.totals) before.push_back(before.back() + of_tile);
  const double total = before.back();
  if (!(total > 0) || !std::isfinite(total)) return HUGE_VAL;

  // Drawn where the sum of the weights passes an odd multiple of half a step.
  const double step = total / (d * std::sqrt(static_cast<double>(n)));
  const auto passed = [per_weight = 1 / step](double weight) { return std::floor(weight * per_weight + 0.5); };
  const std::int64_t tiles = std::ssize(weights.totals);
  std::vector<std::vector<std::uint64_t>> found(static_cast<std::size_t>(tiles));
  cpu::parallel_for(tiles, 1, [&](std::int64_t first_tile, std::int64_t last_tile) {
    struct Block {
      std::int64_t begin;
      double before, after, next;  // Sums of the weights; where the first of its elements is drawn.
    };
    std::vector<Block> blocks;
    std::vector<std::int64_t> drawn;
    for (std::int64_t tile = first_tile; tile < last_tile; ++tile) {
      blocks.clear();
      drawn.clear();
      const std::int64_t begin = tile * weights.tile, end = std::min(n, begin + weights.tile);
      const double* sum = &weights.blocks[static_cast<std::size_t>(tile * weights.tile_blocks)];
      double after = before[static_cast<std::size_t>(tile)], next = (passed(after) + 0.5) * step;
      for (std::int64_t k = begin; k < end; k += kBlock) {
        const double before_block = after;
        after += *sum++;
        if (next > after) continue;
        blocks.push_back({k, before_block, after, next});
        next = (passed(after) + 0.5) * step;
        for (const double* values : {a, e}) {  // Far apart in memory: all are fetched at a time.
          __builtin_prefetch(values + k);
          __builtin_prefetch(values + std::min(end - 1, k + kBlock / 2));
        }
      }
      for (const Block& block : blocks) {
        const std::int64_t k = block.begin;
        double sums[kBlock], at = block.before;
        for (std::int64_t i = 0; i < kBlock; ++i) sums[i] = at += k + i < end ? weight(a[k + i], e[k + i]) : 0;
        for (double here = block.next; here <= block.after;) {
          const std::int64_t i = std::count_if(sums, sums + kBlock - 1, [here](double sum) { return sum < here; });
          drawn.push_back(std::min(end - 1, k + i));
          if (i == kBlock - 1) break;
          here = std::max((passed(sums[i]) + 0.5) * step, here + 0.5 * step);  // Rounded or not, further on.
        }
      }
      // Read one after the other, so that the processor waits for many at a time.
      for (const std::int64_t i : drawn) found[static_cast<std::size_t>(tile)].push_back(keys.at(i));
    }
  });
  std::vector<std::uint64_t> events;
  for (const std::vector<std::uint64_t>& tile : found) events.insert(events.end(), tile.begin(), tile.end());
  return sharing_of(events, d);
}

double sharing_of(std::span<const std::uint64_t> drawn, double d) {
  KeyCounts known(drawn.size());
  double pairs = 0, triples = 0;
  for (const std::uint64_t event : drawn) {
    const double earlier = event == 0 ? 0 : known.count(event);
    pairs += earlier;
    triples += earlier * (earlier - 1) / 2;
  }
  return 1 + 2 * pairs_limit(pairs, triples) / (d * d);
}

namespace {

struct KeyedElement {
  std::uint64_t key;
  std::uint32_t element;
};

// Finds shared events among elements that hold all members of theirs.
SharedEvents shared_among(std::span<const KeyedElement> keyed) {
  constexpr std::uint32_t kNone = 0xffffffff;
  SharedEvents shared;
  std::vector<std::uint32_t> slots(std::bit_ceil(2 * keyed.size() + 1), kNone);  // The first of each key.
  std::vector<std::uint32_t> event_of(keyed.size(), kNone);
  for (std::uint32_t i = 0; i < keyed.size(); ++i) {
    std::size_t at = keyed[i].key >> 7 & (slots.size() - 1);
    while (slots[at] != kNone && keyed[slots[at]].key != keyed[i].key) at = (at + 1) & (slots.size() - 1);
    const std::uint32_t first = slots[at];
    if (first == kNone) {
      slots[at] = i;
      continue;
    }
    if (event_of[first] == kNone) {
      event_of[first] = shared.count++;
      shared.elements.push_back(keyed[first].element);
      shared.events.push_back(event_of[first]);
    }
    shared.elements.push_back(keyed[i].element);
    shared.events.push_back(event_of[first]);
  }
  return shared;
}

}  // namespace

SharedEvents shared_events(EventKeys event_keys) {
  SharedEvents shared;
  shared.row = event_keys.row();
  const std::int64_t n = event_keys.count();
  if (n < 2 || n >= 0xffffffff) return shared;
  event_keys.materialize();
  // Dealt out by the keys' upper bits, a chunk of elements after the other: each part stays near the processor.
  constexpr std::int64_t kChunk = 1 << 16;
  const std::int64_t chunks = (n + kChunk - 1) / kChunk;
  const int bits = std::clamp(static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n) >> 13)), 1, 9);
  const std::size_t parts = std::size_t{1} << bits;
  const auto part_of = [bits](std::uint64_t key) { return static_cast<std::size_t>(key >> (64 - bits)); };
  const auto keys = std::make_unique_for_overwrite<std::uint64_t[]>(static_cast<std::size_t>(n));
  std::vector<std::vector<std::size_t>> places(static_cast<std::size_t>(chunks), std::vector<std::size_t>(parts));
  const auto each_chunk = [&](const auto& body) {
    cpu::parallel_for(chunks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c)
        for (std::int64_t i = c * kChunk; i < std::min(n, (c + 1) * kChunk); ++i)
          body(i, places[static_cast<std::size_t>(c)]);
    });
  };
  each_chunk([&](std::int64_t i, std::vector<std::size_t>& counts) {
    keys[static_cast<std::size_t>(i)] = event_keys.at(i);
    counts[part_of(keys[static_cast<std::size_t>(i)])] += keys[static_cast<std::size_t>(i)] != 0;
  });
  std::vector<std::size_t> starts;
  std::size_t total = 0;
  for (std::size_t part = 0; part < parts; ++part) {
    starts.push_back(total);
    for (std::vector<std::size_t>& counts : places) total += std::exchange(counts[part], total);
  }
  starts.push_back(total);
  const auto keyed = std::make_unique_for_overwrite<KeyedElement[]>(total);
  each_chunk([&](std::int64_t i, std::vector<std::size_t>& next) {
    const std::uint64_t key = keys[static_cast<std::size_t>(i)];
    if (key != 0) keyed[next[part_of(key)]++] = {key, static_cast<std::uint32_t>(i)};
  });
  std::vector<SharedEvents> found(parts);
  cpu::parallel_for(static_cast<std::int64_t>(parts), n < (1 << 14) ? static_cast<std::int64_t>(parts) : 1,
                    [&](std::int64_t begin, std::int64_t end) {
                      for (auto part = static_cast<std::size_t>(begin); part < static_cast<std::size_t>(end); ++part)
                        found[part] = shared_among({&keyed[starts[part]], starts[part + 1] - starts[part]});
                    });
  for (const SharedEvents& part : found) {
    shared.elements.insert(shared.elements.end(), part.elements.begin(), part.elements.end());
    for (const std::uint32_t event : part.events) shared.events.push_back(shared.count + event);
    shared.count += part.count;
  }
  return shared;
}

Array merge_shared(const Array& cotangent, const SharedEvents& shared) {
  if (shared.count == 0) return cotangent;
  const Array source = cotangent.materialize();
  Array merged = Array::uninitialized(source.shape());
  std::copy(source.data(), source.data() + source.count(), merged.data());
  std::vector<std::uint32_t> leaders(shared.count, 0xffffffff);
  if (shared.row > 1) {
    for (std::size_t k = 0; k < shared.elements.size(); ++k) {
      std::uint32_t& leader = leaders[shared.events[k]];
      double* const own = merged.data() + shared.elements[k] * shared.row;
      if (leader == 0xffffffff) {
        leader = shared.elements[k];
        continue;
      }
      double* const first = merged.data() + leader * shared.row;
      for (std::int64_t i = 0; i < shared.row; ++i) {
        first[i] += own[i];
        own[i] = 0;
      }
    }
    return merged;
  }
  std::vector<double> sums(shared.count), squares(shared.count);
  for (std::size_t k = 0; k < shared.elements.size(); ++k) {
    const double a = source.data()[shared.elements[k]];
    sums[shared.events[k]] += a;
    squares[shared.events[k]] += a * a;
    merged.data()[shared.elements[k]] = 0;
    if (leaders[shared.events[k]] == 0xffffffff) leaders[shared.events[k]] = shared.elements[k];
  }
  for (std::uint32_t e = 0; e < shared.count; ++e)
    merged.data()[leaders[e]] = std::copysign(std::max(std::fabs(sums[e]), std::sqrt(squares[e])), sums[e]);
  return merged;
}

}  // namespace plumbline
