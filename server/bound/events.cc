#include "server/bound/events.h"

#include <algorithm>
#include <bit>
#include <cmath>

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

// 0 stands for "no event".
std::vector<std::uint64_t> keys_of(const Graph& graph, NodeId id, const std::vector<Array>& inputs,
                                   const Array& value) {
  const Node& node = graph.nodes[id];
  const Array t = value.materialize();
  if (by_rows(node.primitive)) {
    const std::int64_t row = std::max<std::int64_t>(1, node.shape.empty() ? 1 : node.shape.back());
    const Array x = inputs[0].expand(node.shape).materialize();
    std::vector<std::uint64_t> keys(static_cast<std::size_t>(x.count() / row), 0x9e3779b97f4a7c15ULL);
    const Format format = graph.nodes[node.inputs[0]].result;
    cpu::parallel_for(x.count() / row, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        std::uint64_t& key = keys[static_cast<std::size_t>(r)];
        for (std::int64_t i = r * row; i < (r + 1) * row; ++i) key = mixed(key) ^ bits_in(format, x.data()[i]);
        key = mixed(key) | 1;
      }
    });
    return keys;
  }
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(t.count()));
  const auto fill = [&](const auto& key_at) {
    cpu::parallel_for(t.count(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        keys[static_cast<std::size_t>(i)] = t.data()[i] == 0 ? 0 : mixed(key_at(i)) | 1;
    });
  };
  if (!elementwise(node.primitive)) {
    fill([&](std::int64_t i) { return coarse_bits(t.data()[i]); });
    return keys;
  }
  std::vector<Array> operands;
  std::vector<Format> formats;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    operands.push_back(inputs[i].expand(node.shape).materialize());
    formats.push_back(graph.nodes[node.inputs[i]].result);
  }
  fill([&](std::int64_t i) {
    std::uint64_t key = 0;
    for (std::size_t k = 0; k < operands.size(); ++k)
      key = mixed(key + 0x9e3779b97f4a7c15ULL) ^ bits_in(formats[k], operands[k].data()[i]);
    return key;
  });
  return keys;
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

SharedEvents shared_events(const Graph& graph, NodeId id, const std::vector<Array>& inputs, const Array& value) {
  SharedEvents shared;
  if (value.count() < 2 || value.count() >= Table::kAbsent) return shared;
  const std::vector<std::uint64_t> keys = keys_of(graph, id, inputs, value);
  const auto n = static_cast<std::int64_t>(keys.size());
  shared.row = value.count() / n;

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
