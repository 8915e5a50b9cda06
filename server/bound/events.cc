#include "server/bound/events.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <mutex>
#include <numeric>

#include "kernels/cpu/parallel.h"

namespace plumbline {
namespace {

std::uint64_t mixed(std::uint64_t z) {  // The finaliser of splitmix64 (Steele, Lea, Flood 2014).
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

bool by_rows(Primitive primitive) { return primitive == Primitive::kSoftmax || primitive == Primitive::kLogSoftmax; }
bool elementwise(Primitive primitive) { return primitive >= Primitive::kNeg && primitive <= Primitive::kSelect; }

// Bits of x as `format` holds it.
std::uint64_t bits_in(Format format, double x) {
  if (format == Format::kFloat32) return std::bit_cast<std::uint32_t>(static_cast<float>(x));
  return std::bit_cast<std::uint64_t>(is_float(format) && format != Format::kFloat64 ? round_to(format, x) : x);
}

// Equal results of one function may differ in our replay's last bits where its own sums ran in another order.
std::uint64_t coarse_bits(double x) { return (std::bit_cast<std::uint64_t>(x) + 0x800) >> 12; }

// The i-th element in row-major order, whatever the strides.
double element(const Array& x, std::int64_t i) {
  if (x.contiguous()) return x.data()[i];
  std::int64_t offset = 0;
  for (std::size_t d = x.shape().size(); d-- > 0; i /= x.shape()[d]) offset += i % x.shape()[d] * x.strides()[d];
  return x.data()[offset];
}

// Keys to small numbers; linear probing.
class Table {
 public:
  explicit Table(std::size_t most) : slots_(std::bit_ceil(2 * most + 2)), numbers_(slots_.size(), kAbsent) {}

  void insert(std::uint64_t key) { slots_[slot(key)] = key; }
  // kAbsent for a key that was never inserted.
  static constexpr std::uint32_t kAbsent = 0xffffffff;
  std::uint32_t& number(std::uint64_t key) { return numbers_[slot(key)]; }
  bool has(std::uint64_t key) const { return slots_[slot(key)] == key; }

 private:
  std::size_t slot(std::uint64_t key) const {
    std::size_t at = key >> 7 & (slots_.size() - 1);
    while (slots_[at] != 0 && slots_[at] != key) at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  std::vector<std::uint64_t> slots_;
  std::vector<std::uint32_t> numbers_;
};

}  // namespace

EventKeys::EventKeys(const Graph& graph, NodeId id, const std::vector<Array>& inputs, const Array& value)
    : primitive_(graph.nodes[id].primitive), value_(value.materialize()), count_(value.count()) {
  const Node& node = graph.nodes[id];
  if (!elementwise(primitive_) && !by_rows(primitive_)) return;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    operands_.push_back(inputs[i].expand(node.shape));
    formats_.push_back(graph.nodes[node.inputs[i]].result);
  }
  if (by_rows(primitive_) && !node.shape.empty() && node.shape.back() > 1) {
    row_ = node.shape.back();
    count_ /= row_;
    materialize();
  }
}

void EventKeys::materialize() {
  for (Array& operand : operands_) operand = operand.materialize();
}

std::uint64_t EventKeys::at(std::int64_t i) const {
  std::uint64_t key = 0x9e3779b97f4a7c15ULL;
  if (row_ > 1) {
    for (std::int64_t k = i * row_; k < (i + 1) * row_; ++k)
      key = mixed(key) ^ bits_in(formats_[0], operands_[0].data()[k]);
    return mixed(key) | 1;
  }
  if (value_.data()[i] == 0) return 0;
  if (operands_.empty()) return mixed(coarse_bits(value_.data()[i])) | 1;
  for (std::size_t k = 0; k < operands_.size(); ++k) key = mixed(key) ^ bits_in(formats_[k], element(operands_[k], i));
  return mixed(key) | 1;
}

// A cotangent of exactly 0 adds nothing, even where the error is infinite.
inline double weight(double a, double error) {
  const double product = std::fabs(a) * error;
  return a == 0 ? 0.0 : product;
}

std::optional<double> sharing_drawn(const EventKeys& keys, const Array& cotangent, const Bound& error) {
  constexpr std::int64_t kSmall = 1 << 14, kBlock = 64;
  constexpr std::size_t kPairsMax = 3;
  const std::int64_t n = keys.count();
  if (keys.row() > 1 || n <= kSmall) return std::nullopt;
  const Array weights = cotangent.materialize(), errors = error.values.expand(cotangent.shape()).materialize();
  const double *a = weights.data(), *e = errors.data();
  std::vector<double> blocks(static_cast<std::size_t>((n + kBlock - 1) / kBlock));
  cpu::parallel_for(std::ssize(blocks), 1 << 8, [&](std::int64_t first, std::int64_t last) {
    constexpr std::int64_t kLanes = 8;
    for (std::int64_t k = first; k < last; ++k) {
      std::int64_t i = k * kBlock;
      const std::int64_t end = std::min(n, i + kBlock);
      double lanes[kLanes] = {}, sum = 0;
      for (; i + kLanes <= end; i += kLanes)
        for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += weight(a[i + lane], e[i + lane]);
      for (; i < end; ++i) sum += weight(a[i], e[i]);
      for (double lane : lanes) sum += lane;
      blocks[static_cast<std::size_t>(k)] = sum;
    }
  });
  std::vector<double> before(blocks.size() + 1, 0.0);  // Weight of all blocks before each.
  std::partial_sum(blocks.begin(), blocks.end(), before.begin() + 1);
  const double total = before.back();
  if (!(total > 0) || !std::isfinite(total)) return std::nullopt;

  // Drawn where the sum of the weights passes an odd multiple of half a step.
  const double step = total / (8 * std::sqrt(static_cast<double>(n)));
  const auto passed = [step](double weight) { return std::floor(weight / step + 0.5); };
  std::vector<std::uint64_t> drawn;
  std::mutex mutex;
  cpu::parallel_for(std::ssize(blocks), 1 << 8, [&](std::int64_t first, std::int64_t last) {
    std::vector<std::uint64_t> here;
    for (std::int64_t k = first; k < last; ++k) {
      double at = before[static_cast<std::size_t>(k)], next = (passed(at) + 0.5) * step;
      const double after = before[static_cast<std::size_t>(k) + 1];
      for (std::int64_t i = k * kBlock; next <= after && i < std::min(n, (k + 1) * kBlock); ++i) {
        at += weight(a[i], e[i]);
        if (at < next) continue;
        here.push_back(keys.at(i));
        next = (passed(at) + 0.5) * step;
      }
    }
    const std::lock_guard lock(mutex);
    drawn.insert(drawn.end(), here.begin(), here.end());
  });
  std::erase(drawn, 0U);
  std::sort(drawn.begin(), drawn.end());
  std::size_t pairs = 0;
  for (std::size_t i = 1; i < drawn.size(); ++i) pairs += drawn[i] == drawn[i - 1];
  if (pairs > kPairsMax) return std::nullopt;
  constexpr double kPoisson99[] = {4.6, 6.6, 8.4, 10.0};
  return 1 + kPoisson99[pairs] / 32;
}

SharedEvents shared_events(EventKeys event_keys) {
  SharedEvents shared;
  shared.row = event_keys.row();
  const std::int64_t n = event_keys.count();
  if (n < 2 || n >= Table::kAbsent) return shared;
  event_keys.materialize();
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(n));
  cpu::parallel_for(n, (1 << 14) / shared.row + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) keys[static_cast<std::size_t>(i)] = event_keys.at(i);
  });

  // A key whose bit is set already may be a repetition: only those are looked at more closely.
  const std::size_t bits = std::bit_ceil(static_cast<std::size_t>(16 * n));
  std::vector<std::uint64_t> seen(std::max<std::size_t>(1, bits / 64));
  std::vector<std::uint64_t> suspects;
  for (const std::uint64_t key : keys) {
    if (key == 0) continue;
    const std::size_t bit = (key >> 8) & (bits - 1);
    std::uint64_t& word = seen[bit / 64];
    const std::uint64_t mask = std::uint64_t{1} << (bit % 64);
    if ((word & mask) != 0) suspects.push_back(key);
    word |= mask;
  }
  if (suspects.empty()) return shared;
  Table first(suspects.size());  // To the first element of each suspect, then to its event.
  for (const std::uint64_t key : suspects) first.insert(key);
  std::vector<std::uint32_t> event_of(static_cast<std::size_t>(n), Table::kAbsent);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t key = keys[static_cast<std::size_t>(i)];
    if (key == 0 || !first.has(key)) continue;
    std::uint32_t& leader = first.number(key);
    if (leader == Table::kAbsent) {
      leader = static_cast<std::uint32_t>(i);
      continue;
    }
    if (event_of[leader] == Table::kAbsent) {
      event_of[leader] = shared.count++;
      shared.elements.push_back(leader);
      shared.events.push_back(event_of[leader]);
    }
    shared.elements.push_back(static_cast<std::uint32_t>(i));
    shared.events.push_back(event_of[leader]);
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
