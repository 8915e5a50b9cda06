#include "server/bound/replay/taps.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/checks.h"
#include "kernels/device.h"
#include "kernels/sums.h"
#include "server/bound/replay/finite_ranges.h"

namespace plumbline {
namespace {

// a + b for row-major arrays of one count.
Array plus(const Array& a, const Array& b) {
  Array sum = Array::uninitialized(a.shape());
  current_operations().add(sum, a, b);
  return sum;
}

Array decoded(Format format, const Bytes& bytes, std::int64_t begin, std::int64_t length) {
  if (bytes == nullptr) return Array::full({length}, std::numeric_limits<double>::quiet_NaN()).materialize();
  Array values = Array::uninitialized({length});
  current_operations().decode(values, format, bytes->data() + begin * traits(format).bytes);
  return values;
}

// x (x - x) is 0 where x is finite, otherwise NaN.
Later<bool> finite_all_over(const Array& values) {
  return all_finite(values, values).then([](const Finite& finite) { return finite.first; });
}

}  // namespace

Array weighted(Array term, double weight) {
  if (weight == 1) return term;
  const Array source = term.materialize();
  Array scaled = Array::uninitialized(source.shape());
  current_operations().scale(scaled, weight, source);
  return scaled;
}

Array sum_of_terms(const GraphTap& tap, const std::vector<Array>& values) {
  Array sum;
  for (std::size_t k = 0; k < values.size(); ++k) {
    const Array value = weighted(values[k], tap.terms[k].weight).materialize();
    sum = sum ? plus(sum, value) : value;
  }
  return sum;
}

std::vector<NodeId> nodes_of(const GraphTap& tap) {
  std::vector<NodeId> nodes;
  for (const GraphTap::Term& term : tap.terms) nodes.push_back(term.node);
  return nodes;
}

bool is_observed(const GraphTap& tap) {
  return std::ranges::none_of(tap.terms, [](const GraphTap::Term& term) { return term.observed == nullptr; });
}

Array observed_part(const GraphTap& tap, std::int64_t begin, std::int64_t length) {
  std::vector<Array> values;
  for (const GraphTap::Term& term : tap.terms) values.push_back(decoded(term.format, term.observed, begin, length));
  return sum_of_terms(tap, values);
}

Array observed_value(const GraphTap& tap) { return observed_part(tap, 0, count(tap.shape)).reshape(tap.shape); }

Array seen_value(const GraphTap& tap, const Replay& replay) {
  std::vector<Array> values;
  for (const GraphTap::Term& term : tap.terms) values.push_back(replay.value(term.node));
  return sum_of_terms(tap, values).reshape(tap.shape);
}

Array replayed_value(const GraphTap& tap, const Replay& replay) {
  std::vector<Array> values;
  for (const GraphTap::Term& term : tap.terms) values.push_back(replay.computed(term.node));
  return sum_of_terms(tap, values).reshape(tap.shape);
}

Array reference_value(const GraphTap& tap) {
  return tap.reference ? decoded(tap.reference_format, tap.reference, 0, count(tap.shape)).reshape(tap.shape) : Array();
}

Format tap_format(const GraphTap& tap) { return tap.terms.front().format; }

// What was observed is looked at as it came: of formats narrower than fp64 a sum is finite where its terms are.
bool observed_finite(const GraphTap& tap) {
  const auto may_overflow = [&](const GraphTap::Term& term) {
    return term.format == Format::kFloat64 && (tap.terms.size() > 1 || term.weight != 1);
  };
  if (std::ranges::any_of(tap.terms, may_overflow)) return all_finite(observed_value(tap));
  return std::ranges::all_of(tap.terms, [&](const GraphTap::Term& term) {
    return term.observed != nullptr && finite(term.format, term.observed->data(), count(tap.shape));
  });
}

bool all_finite(const Array& values) { return finite_all_over(values); }

Array common_infinities(const Array& observed, const Array& exact) {
  const Array x = observed.materialize().on_host(), m = exact.materialize().on_host();
  Array mask = Array::uninitialized(observed.shape());
  std::int64_t infinite = 0;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const bool finite = std::isfinite(x.data()[i]) && std::isfinite(m.data()[i]);
    if (!finite && x.data()[i] != m.data()[i]) return {};
    mask.data()[i] = finite ? 1 : 0;
    infinite += finite ? 0 : 1;
  }
  return infinite == 0 || infinite == x.count() ? Array() : mask;
}

std::vector<FiniteTap> observed_finite(const Graph& graph) {
  std::vector<FiniteTap> finite;
  for (const GraphTap& tap : graph.taps) finite.push_back({observed_finite(tap), {}});
  return finite;
}

std::vector<Look> finite_looks(const Graph& graph, const Replay& replay, const std::vector<bool>& known,
                               std::vector<FiniteTap>* finite) {
  FiniteRanges ranges(graph, replay);
  const auto told = [&](const GraphTap& tap) {  // Without any value of it.
    double most = 0;
    for (const GraphTap::Term& term : tap.terms) {
      const auto range = current_device() == nullptr ? ranges.of(term.node) : std::nullopt;
      most += range ? std::fabs(term.weight) * std::max(std::fabs(range->low), std::fabs(range->high)) : HUGE_VAL;
    }
    return most < HUGE_VAL;
  };
  std::vector<Look> looks;
  for (std::size_t i = 0; i < graph.taps.size(); ++i) {
    const GraphTap& tap = graph.taps[i];
    FiniteTap& found = (*finite)[i];
    if (known[i]) continue;
    found.exact_parts.assign(count_parts(count(tap.shape)), true);
    if (told(tap)) continue;
    const auto of_tile = [&tap, &found](std::int64_t index, const Tile&, std::span<const Array> ends) {
      found.exact_parts[static_cast<std::size_t>(index)] =
          finite_all_over(sum_of_terms(tap, {ends.begin(), ends.end()}));
    };
    const auto whole = [&tap, &replay, &found] { found.exact_parts[0] = finite_all_over(replayed_value(tap, replay)); };
    looks.push_back({nodes_of(tap), of_tile, whole});
  }
  return looks;
}

bool of_all_parts(std::int64_t count, const std::function<bool(std::int64_t begin, std::int64_t length)>& holds) {
  constexpr std::int64_t kFirst = 1 << 12, kGrowth = 8;
  const HostScope host;  // A device would be waited for before each next part.
  std::int64_t begin = 0;
  for (std::int64_t length = kFirst; begin < count; begin += length, length *= kGrowth)
    if (!holds(begin, std::min(length, count - begin))) return false;
  return true;
}

bool bitwise_equal(const LeafValue& a, const LeafValue& b) {
  return a.same_bytes(b) || (a.count() == b.count() && of_all_parts(a.count(), [&](std::int64_t begin, auto length) {
                               return bitwise_equal(a.part(begin, length), b.part(begin, length));
                             }));
}

bool bitwise_equal(const Array& a, const Array& b) {
  return a.count() == b.count() && (a.same_place(b) || count_differing(a, b) == 0);
}

}  // namespace plumbline
