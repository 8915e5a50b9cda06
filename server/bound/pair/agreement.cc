#include "server/bound/pair/agreement.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

namespace plumbline {
namespace {

constexpr int kGridBits = 34;
constexpr double kBoundless = 1e30;  // What is as large stands for infinity: a mask's value, which hides all beside it.
constexpr std::int64_t kElementsMax = 1 << 12;  // A vector of no more elements is also known element by element.

std::uint64_t mixed(std::uint64_t h, std::uint64_t x) {
  h = (h ^ x) * 0xbf58476d1ce4e5b9ULL;
  return h ^ (h >> 29);
}

struct Fingerprint {
  std::uint64_t kind = 0;  // Hash of length, exponent and the places of infinities and NaNs.
  std::int64_t cell = 0;

  std::uint64_t key(std::int64_t shift = 0) const { return mixed(kind, static_cast<std::uint64_t>(cell + shift)); }
};

// Empty for zeros.
std::optional<Fingerprint> fingerprint(const double* x, std::int64_t length) {
  double squares = 0, projection = 0;
  std::uint64_t state = 0x2545f4914f6cdd1dULL, places = static_cast<std::uint64_t>(length);
  for (std::int64_t j = 0; j < length; ++j) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const double weight = 0.5 + static_cast<double>(state >> 40) * 0x1p-24;
    if (std::fabs(x[j]) < kBoundless) {
      squares += x[j] * x[j];
      projection += weight * x[j];
    } else {
      places = mixed(places, static_cast<std::uint64_t>(j) * 3 + (std::isnan(x[j]) ? 2 : x[j] > 0 ? 1 : 0));
    }
  }
  if (squares == 0 && places == static_cast<std::uint64_t>(length)) return std::nullopt;
  // The exponent is rounded, so that norms at a power of two, which are common, do not jump between exponents.
  const double exponent = squares > 0 ? std::round(0.5 * std::log2(squares)) : 0;
  Fingerprint mark;
  mark.kind = mixed(mixed(places, 0x9e3779b97f4a7c15ULL), std::bit_cast<std::uint64_t>(exponent + 0.5));
  mark.cell = std::llround(std::ldexp(projection, kGridBits - static_cast<int>(exponent)));
  return mark;
}

bool holds(const std::vector<std::uint64_t>& keys, const Fingerprint& mark) {
  auto known = [&](std::uint64_t key) { return std::binary_search(keys.begin(), keys.end(), key); };
  return known(mark.key()) || known(mark.key(-1)) || known(mark.key(1));
}

void sort_unique(std::vector<std::uint64_t>* keys) {
  std::sort(keys->begin(), keys->end());
  keys->erase(std::unique(keys->begin(), keys->end()), keys->end());
}

std::int64_t row_length(const Array& value) { return value.shape().empty() ? 1 : value.shape().back(); }

Array complement(const Array& value) {
  Array other = Array::uninitialized(value.shape());
  for (std::int64_t i = 0; i < value.count(); ++i) other.data()[i] = 1 - value.data()[i];
  return other;
}

Array negated(const Array& value) {  // It has one element.
  return Array::scalar(-value.materialize().item());
}

}  // namespace

KnownValues::KnownValues(const Graph& graph, const Replay& replay) {
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (!replay.has(id)) continue;
    const Array value = replay.value(id).on_host();
    shapes_.insert(node.shape);
    add_rows(&rows_, value);
    add_whole(value);
    if (node.result == Format::kBool) add_whole(complement(value));  // x <= 0 says what x > 0 does.
    if (node.primitive == Primitive::kDiv) add_rows(&divisors_, replay.value(node.inputs[1]));
    if (node.primitive == Primitive::kMul)
      for (NodeId input : node.inputs) {
        add_rows(&factors_, replay.value(input));
        // Taken away by one program, a product is added by the other with a negative factor.
        if (count(graph.nodes[input].shape) == 1) add_rows(&factors_, negated(replay.value(input)));
      }
  }
  for (Keys* keys : {&wholes_, &rows_, &factors_, &divisors_}) sort_unique(keys);
}

void KnownValues::add_whole(const Array& value) {
  if (const auto mark = fingerprint(value.data(), value.count())) wholes_.push_back(mark->key());
}

void KnownValues::add_rows(Keys* keys, const Array& value) {
  const Array rows = value.on_host();
  const std::int64_t length = row_length(rows);
  for (std::int64_t i = 0; length > 0 && i + length <= rows.count(); i += length)
    if (const auto mark = fingerprint(rows.data() + i, length)) keys->push_back(mark->key());
  if (rows.shape().size() == 1 && rows.count() <= kElementsMax)
    for (std::int64_t i = 0; i < rows.count(); ++i)
      if (const auto mark = fingerprint(rows.data() + i, 1)) keys->push_back(mark->key());
}

bool KnownValues::holds_rows(const Keys& keys, const Array& value) {
  const Array rows = value.on_host();
  auto all_known = [&](std::int64_t length) {
    for (std::int64_t i = 0; length > 0 && i + length <= rows.count(); i += length) {
      const auto mark = fingerprint(rows.data() + i, length);
      if (mark && !holds(keys, *mark)) return false;
    }
    return true;
  };
  return all_known(row_length(rows)) || (rows.shape().size() == 1 && rows.count() > 1 && all_known(1));
}

Agreement KnownValues::of(const Node& node, const Array& value) const {
  const Array elements = value.on_host();
  const auto mark = fingerprint(elements.data(), elements.count());
  if (!mark || holds(wholes_, *mark)) return Agreement::kAgrees;
  if (!holds_rows(rows_, elements)) return Agreement::kDiffers;
  return shapes_.count(node.shape) ? Agreement::kRearranged : Agreement::kAgrees;
}

std::vector<std::uint64_t> value_keys(const Array& value) {
  const Array elements = value.on_host();
  const auto mark = fingerprint(elements.data(), elements.count());
  if (!mark || elements.count() < 2) return {};
  return {mark->key(), mark->key(-1), mark->key(1)};
}

std::size_t scaling_input(const Graph& graph, const Node& node) {
  if (node.primitive == Primitive::kDiv) return 1;
  return count(graph.nodes[node.inputs[0]].shape) < count(graph.nodes[node.inputs[1]].shape) ? 0 : 1;
}

}  // namespace plumbline
