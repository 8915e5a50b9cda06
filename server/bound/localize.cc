#include "server/bound/localize.h"

#include <cmath>
#include <cstdio>
#include <unordered_set>

namespace plumbline {
namespace {

constexpr std::int64_t kElementsMax = 1 << 16;  // of a vector that is also compared element by element
constexpr std::int64_t kRowsSampled = 64;       // of a target's value

// Fingerprint of a row: a projection with fixed pseudo-random weights, relative to the row's norm, to 24 bits. Replays
// of equal mathematics differ by some 1e-13, so that neighbours on the 2^-24 grid are tried too.
struct Fingerprint {
  std::int64_t length = 0;
  int exponent = 0;
  std::int64_t cell = 0;

  std::uint64_t key(std::int64_t cell_shift) const {
    std::uint64_t h = static_cast<std::uint64_t>(length) * 0x9e3779b97f4a7c15ULL;
    h = (h ^ static_cast<std::uint64_t>(exponent + 4096)) * 0xbf58476d1ce4e5b9ULL;
    h = (h ^ static_cast<std::uint64_t>(cell + cell_shift)) * 0x94d049bb133111ebULL;
    return h ^ (h >> 29);
  }
};

bool fingerprint(const double* row, std::int64_t length, Fingerprint* result) {
  double squares = 0, projection = 0;
  std::uint64_t state = 0x2545f4914f6cdd1dULL;
  for (std::int64_t j = 0; j < length; ++j) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const double weight = 0.5 + static_cast<double>(state >> 40) * 0x1p-24;
    if (!std::isfinite(row[j])) continue;
    squares += row[j] * row[j];
    projection += weight * row[j];
  }
  if (squares == 0) return false;
  const double norm = std::sqrt(squares);
  // Rounded, so that norms at a power of two, which are common, do not jump between exponents.
  result->length = length;
  result->exponent = static_cast<int>(std::lround(std::log2(norm)));
  result->cell = static_cast<std::int64_t>(std::floor(std::ldexp(projection, 24 - result->exponent)));
  return true;
}

class RowSet {
 public:
  void insert(const Array& value) {
    const Array rows = value.materialize();
    const std::int64_t length = rows.shape().empty() ? 1 : rows.shape().back();
    insert_rows(rows, length);
    if (rows.shape().size() == 1 && rows.count() <= kElementsMax) insert_rows(rows, 1);
  }
  // All (sampled) rows are known.
  bool holds(const Array& value) const {
    const Array rows = value.materialize();
    const std::int64_t length = rows.shape().empty() ? 1 : rows.shape().back();
    return holds_rows(rows, length) || (rows.shape().size() <= 1 && length > 1 && holds_rows(rows, 1));
  }

 private:
  void insert_rows(const Array& rows, std::int64_t length) {
    Fingerprint mark;
    for (std::int64_t i = 0; length > 0 && i + length <= rows.count(); i += length)
      if (fingerprint(rows.data() + i, length, &mark)) known_.insert(mark.key(0));
  }
  bool holds_rows(const Array& rows, std::int64_t length) const {
    if (length <= 0) return true;
    const std::int64_t n = rows.count() / length, stride = std::max<std::int64_t>(1, n / kRowsSampled);
    Fingerprint mark;
    for (std::int64_t i = 0; i < n; i += stride) {
      if (!fingerprint(rows.data() + i * length, length, &mark)) continue;
      bool found = false;
      for (std::int64_t shift : {0, -1, 1}) found = found || known_.count(mark.key(shift)) != 0;
      if (!found) return false;
    }
    return true;
  }
  std::unordered_set<std::uint64_t> known_;
};

bool additive(Primitive primitive) {
  switch (primitive) {
    case Primitive::kSum:
    case Primitive::kAdd:
    case Primitive::kSub:
    case Primitive::kNeg:
    case Primitive::kMatmul:
    case Primitive::kScatterAdd:
    case Primitive::kAssemble:
    case Primitive::kWindow:
    case Primitive::kGatherRows:
    case Primitive::kCast:
    case Primitive::kCumsum:
      return true;
    default:
      return false;
  }
}

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", x);
  return text;
}

bool is_scaling(Primitive primitive) { return primitive == Primitive::kMul || primitive == Primitive::kDiv; }

// The operand that scales: the smaller one of a product, the divisor of a quotient.
std::size_t scaling_operand(const Graph& graph, const Node& node) {
  if (node.primitive == Primitive::kDiv) return 1;
  return count(graph.nodes[node.inputs[0]].shape) < count(graph.nodes[node.inputs[1]].shape) ? 0 : 1;
}

}  // namespace

std::optional<Suspicion> localize(const Graph& target, const Replay& target_replay, const Graph& reference,
                                  const Replay& reference_replay, const std::vector<NodeId>& failing) {
  RowSet values, factors, divisors;
  for (NodeId id = 0; id < reference.nodes.size(); ++id) {
    const Array& value = reference_replay.values[id];
    const Node& node = reference.nodes[id];
    if (!value) continue;
    values.insert(value);
    if (node.primitive == Primitive::kDiv) divisors.insert(reference_replay.values[node.inputs[1]]);
    if (node.primitive == Primitive::kMul)
      for (NodeId input : node.inputs) factors.insert(reference_replay.values[input]);
  }

  std::vector<bool> wanted(target.nodes.size(), false);
  NodeId last = 0;
  for (NodeId id : failing) {
    wanted[id] = true;
    last = std::max(last, id);
  }
  for (std::size_t id = target.nodes.size(); id-- > 0;)
    if (wanted[id])
      for (NodeId input : target.nodes[id].inputs) wanted[input] = true;

  for (NodeId id = 0; id < target.nodes.size(); ++id) {
    const Node& node = target.nodes[id];
    const Array& value = target_replay.values[id];
    if (!wanted[id] || !value || node.inputs.empty() || !is_float(node.result)) continue;
    if (additive(node.primitive) || values.holds(value)) continue;
    if (is_scaling(node.primitive)) {
      const Array& scale = target_replay.values[node.inputs[scaling_operand(target, node)]];
      const RowSet& known = node.primitive == Primitive::kDiv ? divisors : factors;
      if (known.holds(scale)) continue;
      const bool one = scale.count() == 1;
      const std::string how = node.primitive == Primitive::kDiv ? "divides by " : "multiplies by ";
      return Suspicion{
          id,
          how + (one ? number(scale.materialize().item()) : std::string("values")) + ", which the reference never does",
          true};
    }
    return Suspicion{id, "its inputs agree with the reference's values, its result does not", false};
  }
  return Suspicion{last, "everything before it agrees with the reference up to the grouping of sums", false};
}

}  // namespace plumbline
