#include "server/bound/value/questions.h"

#include <algorithm>
#include <cmath>

#include "kernels/sums.h"
#include "server/bound/replay/terms.h"

namespace plumbline {
namespace {

constexpr std::size_t kWholeMax = 16;        // Taps of one element that are asked one by one, and other taps so.
constexpr std::size_t kPartedMax = 8;        // Taps that are asked in parts.
constexpr std::int64_t kDenseMax = 1 << 22;  // Elements of a tap up to which weights of their own are held for each.

// Indices of `scores`, largest first.
std::vector<std::size_t> ranked(const std::vector<double>& scores) {
  std::vector<std::size_t> order(scores.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  return order;
}

const ValueDifference& of_tap(const std::vector<ValueDifference>& taps, std::size_t index) {
  return *std::ranges::find(taps, index, &ValueDifference::tap);
}

// The parts of one tap.
class Parts {
 public:
  Parts(const Graph& graph, const ValueDifference& of, std::uint64_t seed)
      : tap_(graph.taps[of.tap]), of_(of), seed_(seed), elements_(count(tap_.shape)) {
    rows_ = tap_.shape.size() > 1 ? tap_.shape[0] : 1;
    columns_ = elements_ / rows_;
    rms_ = of.norm / std::sqrt(static_cast<double>(elements_));
  }

  double tests() const { return 2 + 2 * static_cast<double>(elements_) + (rows_ > 1 ? 2.0 * rows_ + columns_ : 0); }

  std::vector<ValueQuestion> ask() {
    if (elements_ <= kDenseMax) common();
    if (rows_ > 1 && columns_ > 1) {
      row();
      column();
    }
    single();
    return std::move(asked_);
  }

 private:
  void add(const std::string& pattern, Weights weights, double scale, std::int64_t elements) {
    if (of_.mask && weights.mask) {
      Array masked = weights.mask.materialize().on_host(), kept = Array::uninitialized(masked.shape());
      const Array mask = of_.mask.on_host();
      for (std::int64_t i = 0; i < kept.count(); ++i) kept.data()[i] = mask.data()[i] == 0 ? 0 : masked.data()[i];
      weights.mask = kept;
    } else if (of_.mask) {
      weights.mask = of_.mask;
    }
    ValueQuestion question{{tap_.name, {{of_.tap, elements, std::move(weights)}}, scale}, pattern};
    asked_.push_back(std::move(question));
  }

  // Weighs by the exact values where `in` says so, over their squares there.
  template <class In>
  void factor(const std::string& pattern, In in) {
    const double* const m = of_.exact.data();
    double squares = 0;
    std::int64_t elements = 0;
    for (std::int64_t i = 0; i < elements_; ++i)
      if (in(i)) {
        squares += m[i] * m[i];
        ++elements;
      }
    if (!(squares > 0) || !std::isfinite(squares)) return;
    Array weights = Array::zeros(tap_.shape);
    for (std::int64_t i = 0; i < elements_; ++i)
      if (in(i)) weights.data()[i] = m[i] / squares;
    add(pattern, dense_weights(weights, tap_.shape), 1, elements);
  }

  void common() {
    factor("a common factor", [](std::int64_t) { return true; });
    const double n = static_cast<double>(elements_);
    add("a common shift", dense_weights(Array::full(tap_.shape, 1 / n), tap_.shape), rms_ > 0 ? rms_ : 1, elements_);
  }

  // Squares of the difference, along rows or columns; where they are largest.
  template <class Index>
  std::int64_t worst(std::int64_t many, Index index) const {
    std::vector<double> squares(static_cast<std::size_t>(many), 0);
    const double* const d = of_.difference.data();
    for (std::int64_t i = 0; i < elements_; ++i) squares[static_cast<std::size_t>(index(i))] += d[i] * d[i];
    return std::ranges::max_element(squares) - squares.begin();
  }

  void row() {
    const std::int64_t at = worst(rows_, [this](std::int64_t i) { return i / columns_; });
    const std::string name = "row " + std::to_string(at);
    const Probe signs = signs_probe("", {{of_.tap, "", {columns_}, 1, {}}}, seed_ + 1);
    Array rows = Array::zeros({rows_});
    rows.data()[at] = 1;
    const double scale = rms_ * std::sqrt(static_cast<double>(columns_));
    add(name, {rows, signs.parts[0].weights.columns, tap_.shape}, scale > 0 ? scale : 1, columns_);
    if (elements_ <= kDenseMax)
      factor("a factor of " + name, [this, at](std::int64_t i) { return i / columns_ == at; });
  }

  void column() {
    const std::int64_t at = worst(columns_, [this](std::int64_t i) { return i % columns_; });
    const Probe signs = signs_probe("", {{of_.tap, "", {rows_}, 1, {}}}, seed_ + 2);
    Array columns = Array::zeros({columns_});
    columns.data()[at] = 1;
    const double scale = rms_ * std::sqrt(static_cast<double>(rows_));
    add("position " + std::to_string(at), {signs.parts[0].weights.columns, columns, tap_.shape}, scale > 0 ? scale : 1,
        rows_);
  }

  // The element that is furthest off, and the one that is so relative to its own size.
  void single() {
    const double *const d = of_.difference.data(), *const m = of_.exact.data();
    std::int64_t absolute = 0, relative = 0;
    double most = -1;
    for (std::int64_t i = 0; i < elements_; ++i) {
      if (std::fabs(d[i]) > std::fabs(d[absolute])) absolute = i;
      const double ratio = d[i] == 0 ? 0 : std::fabs(d[i]) / std::fabs(m[i]);
      if (ratio > most) {
        most = ratio;
        relative = i;
      }
    }
    for (const std::int64_t at : {absolute, relative}) {
      if (at == relative && relative == absolute && !asked_.empty() && asked_.back().pattern.starts_with("element"))
        return;
      const ProbeTap tap{of_.tap, tap_.name, tap_.shape, rms_, {}};
      Probe probe = element_probe(tap_.name, tap, at, std::fmax(std::fabs(m[at]), std::fabs(d[at])));
      probe.of_mathematics = false;
      asked_.push_back({std::move(probe), "element " + std::to_string(at)});
    }
  }

  const GraphTap& tap_;
  const ValueDifference& of_;
  const std::uint64_t seed_;
  const std::int64_t elements_;
  std::int64_t rows_ = 1, columns_ = 1;
  double rms_ = 0;
  std::vector<ValueQuestion> asked_;
};

}  // namespace

ValueQuestion asked_of(ValueQuestion question, const Graph& graph, const std::vector<ValueDifference>& taps) {
  question.deviation = question.storage = question.storage_squares = 0;
  for (const Probe::Part& part : question.probe.parts) {
    const ValueDifference& of = of_tap(taps, part.tap);
    const GraphTap& tap = graph.taps[part.tap];
    const double u = is_float(tap.reference_format) ? unit_roundoff(tap.reference_format) : 0;
    const double eta = is_float(tap.reference_format) ? half_smallest_subnormal(tap.reference_format) : 0;
    const Array w = part.weights.array().materialize().on_host();
    const double *const weights = w.data(), *const d = of.difference.data(), *const r = of.reference.data();
    for (std::int64_t i = 0; i < w.count(); ++i) {
      if (weights[i] == 0) continue;
      question.deviation += weights[i] * d[i];
      const double moved = std::fabs(weights[i]) * (u * std::fabs(r[i]) + eta);
      question.storage += moved;
      question.storage_squares += moved * moved;
    }
  }
  return question;
}

ValueQuestions questions_of_taps(const Graph& graph, const Replay& exact, const std::vector<ValueDifference>& taps,
                                 std::uint64_t seed) {
  std::vector<double> scores;
  scores.reserve(taps.size());
  for (const ValueDifference& of : taps) scores.push_back(of.relative());
  ValueQuestions questions;
  questions.tests = static_cast<double>(taps.size());
  std::vector<ProbeTap> others;
  std::size_t scalars = 0, arrays = 0;
  for (const std::size_t i : ranked(scores)) {
    const GraphTap& tap = graph.taps[taps[i].tap];
    ProbeTap probed{taps[i].tap, tap.name, tap.shape, tap.scale > 0 ? tap.scale : taps[i].norm, taps[i].mask};
    if (tap.scale <= 0 && !taps[i].mask) probed.magnitude = tap_magnitude(graph, exact, tap, probed.magnitude);
    // A loss has the narrowest envelope of all: it shows a factor of everything that gradients hide.
    if ((count(tap.shape) == 1 ? scalars : arrays)++ >= kWholeMax) {
      others.push_back(probed);
      continue;
    }
    const Probe probe = count(tap.shape) == 1 && !taps[i].mask
                            ? scalar_probe(probed)
                            : signs_probe(tap.name, {probed}, seed ^ (probed.index + 1));
    questions.asked.push_back({probe, ""});
  }
  if (!others.empty()) questions.asked.push_back({signs_probe("all other reference values", others, seed ^ 0x58), ""});
  for (ValueQuestion& question : questions.asked) question = asked_of(std::move(question), graph, taps);
  return questions;
}

ValueQuestions questions_of_parts(const Graph& graph, const std::vector<ValueDifference>& taps, std::uint64_t seed) {
  // The score of what stands out most: the tap itself, or an element of it beside its own size.
  std::vector<double> scores;
  for (const ValueDifference& of : taps) {
    const double *const d = of.difference.data(), *const m = of.exact.data();
    double most = of.relative();
    for (std::int64_t i = 0; i < of.difference.count(); ++i)
      if (d[i] != 0) most = std::fmax(most, std::fabs(d[i]) / (std::fabs(m[i]) + 0x1p-10 * of.norm));
    scores.push_back(most);
  }
  ValueQuestions questions;
  std::size_t parted = 0;
  for (const std::size_t i : ranked(scores)) {
    if (count(graph.taps[taps[i].tap].shape) < 2) continue;
    Parts parts(graph, taps[i], seed ^ (0x9e3779b97f4a7c15ULL * (taps[i].tap + 1)));
    questions.tests += parts.tests();
    if (parted++ >= kPartedMax || scores[i] == 0) continue;
    for (ValueQuestion& question : parts.ask()) questions.asked.push_back(asked_of(std::move(question), graph, taps));
  }
  return questions;
}

}  // namespace plumbline
