#include "tests/soundness/check.h"

#include <cmath>
#include <limits>
#include <sstream>

namespace plumbline::soundness {

void Tally::add(const Tally& other) {
  executions += other.executions;
  if (violations == 0) first = other.first;
  violations += other.violations;
  witness = std::max(witness, other.witness);
}

Checked::Checked(Problem problem, const Arithmetic& arithmetic)
    : problem_(std::move(problem)), arithmetic_(arithmetic) {
  const PrimitiveTraits& row = traits(problem_.primitive);
  const bool leaf = problem_.primitive == Primitive::kLeaf;
  const Array out =
      leaf ? problem_.inputs[0] : row.evaluate(problem_.attributes, problem_.shape, problem_.inputs).materialize();
  const Inputs inputs = leaf ? Inputs{} : Inputs{problem_.inputs};
  const Bound bound = row.local_error(problem_.attributes, arithmetic_, inputs, out);
  const Array values = bound ? bound.values.materialize() : Array::zeros(problem_.shape);
  truth_ = exact(problem_);
  // Overflow is the range lane's; so is what lies outside of a function's domain. An infinite bound says nothing.
  const double most = std::min(largest_finite(arithmetic_.compute), largest_finite(arithmetic_.result));
  // Partial sums that are held in the result's format may overflow where the whole does not: they reach sum|terms|.
  Array reach = out;
  if (problem_.primitive == Primitive::kMatmul && arithmetic_.profile->split_k.reduced) {
    std::vector<Array> magnitudes;
    for (const Array& input : problem_.inputs)
      magnitudes.push_back(traits(Primitive::kAbs).evaluate({}, input.shape(), {&input, 1}).materialize());
    reach = row.evaluate(problem_.attributes, problem_.shape, magnitudes).materialize();
  }
  for (std::size_t i = 0; i < truth_.size(); ++i) {
    const double b = values.data()[i];
    const double largest = std::max(std::fabs(truth_[i].value), std::fabs(reach.data()[i]));
    const bool eligible = largest + b <= most && b < std::numeric_limits<double>::infinity();
    limit_.push_back(b);
    eligible_.push_back(eligible ? 1 : 0);
    divisor_.push_back(eligible && b > 0 ? b : std::numeric_limits<double>::infinity());
    count_ += eligible ? 1 : 0;
  }
  replay_.assign(out.data(), out.data() + out.count());
  executions_ = legal_executions(problem_, truth_, arithmetic_);
}

void Checked::hold(const double* out, const char* what, Tally& tally) const {
  std::int64_t wrong = 0;
  double witness = 0;
  for (std::size_t i = 0; i < limit_.size(); ++i) {
    const double error = distance(out[i], truth_[i]);
    wrong += static_cast<std::int64_t>(!(error <= limit_[i])) & eligible_[i];
    const double ratio = error / divisor_[i];
    witness = ratio > witness ? ratio : witness;
  }
  tally.executions += count_;
  tally.witness = std::max(tally.witness, witness);
  if (wrong == 0) return;
  if (tally.violations == 0) {
    for (std::size_t i = 0; i < limit_.size(); ++i) {
      const double error = distance(out[i], truth_[i]);
      if (eligible_[i] == 0 || error <= limit_[i]) continue;
      std::ostringstream text;
      text.precision(17);
      text << traits(problem_.primitive).name << " " << what << " (" << problem_.regime << ", "
           << traits(arithmetic_.compute).name << " to " << traits(arithmetic_.result).name << ", "
           << arithmetic_.profile->name << ") element " << i << ": exact " << truth_[i].value << ", computed " << out[i]
           << ", error " << error << ", bound " << limit_[i];
      if (problem_.inputs.size() == 1 && problem_.inputs[0].count() == static_cast<std::int64_t>(limit_.size())) {
        text << ", x " << problem_.inputs[0].data()[i];
      }
      tally.first = text.str();
      break;
    }
  }
  tally.violations += wrong;
}

namespace {

// Either neighbour of x in the format: stochastic rounding may choose it, truncation one of them.
double round_to_neighbour(Format format, double x, float choice) {
  const double nearest = round_to(format, x);
  if (nearest == x || choice > 0 || !std::isfinite(nearest)) return nearest;
  const FormatTraits& t = traits(format);
  const int exponent = std::max(x == 0 ? t.exponent_min : std::ilogb(x), t.exponent_min);
  const double step = std::ldexp(1.0, exponent - t.precision + 1);
  return nearest > x ? nearest - step : nearest + step;
}

}  // namespace

void Checked::execute(Random& random, bool elided, double* out) {
  executions_->run(random, out);
  if (arithmetic_.result == arithmetic_.compute || elided) return;
  const auto stream = static_cast<std::uint32_t>(random());
  const bool nearest = arithmetic_.profile->rounding == Rounding::kNearest;
  for (std::size_t i = 0; i < limit_.size(); ++i) {
    out[i] = nearest ? round_to(arithmetic_.result, out[i])
                     : round_to_neighbour(arithmetic_.result, out[i], noise(stream, static_cast<std::uint32_t>(i)));
  }
  if (!arithmetic_.profile->flush_subnormals || coin(random)) return;
  for (std::size_t i = 0; i < limit_.size(); ++i) {
    if (std::fabs(out[i]) < smallest_normal(arithmetic_.result)) out[i] = 0;
  }
}

Tally Checked::run(int executions, Random& random) {
  Tally tally;
  if (!executions_) return tally;
  // Our own replay is one more execution in fp64, though none of a declared tree.
  if (!arithmetic_.profile->sum.tree && arithmetic_.compute == Format::kFloat64 &&
      arithmetic_.result == Format::kFloat64) {
    hold(replay_.data(), "replay", tally);
  }
  std::vector<double> out(limit_.size());
  for (int e = 0; e < executions; ++e) {
    execute(random, e % 4 == 3, out.data());  // One in four: a cast is elided, the consumer sees the wider value.
    hold(out.data(), "execution", tally);
  }
  return tally;
}

std::vector<double> Checked::largest_errors(int executions, Random& random) {
  std::vector<double> largest(limit_.size(), 0.0), out(limit_.size());
  for (int e = 0; e < executions; ++e) {
    execute(random, false, out.data());
    for (std::size_t i = 0; i < out.size(); ++i) largest[i] = std::max(largest[i], distance(out[i], truth_[i]));
  }
  return largest;
}

Format random_input_format(const Arithmetic& arithmetic, Random& random) {
  if (arithmetic.compute == Format::kFloat64) return Format::kFloat64;
  switch (pick(random, 0, 3)) {
    case 0:
      return arithmetic.result == Format::kFloat32 ? Format::kBFloat16 : arithmetic.result;
    case 1:
      return coin(random) ? Format::kFloat16 : Format::kBFloat16;
    default:
      return arithmetic.compute;
  }
}

Tally check(Primitive primitive, const Arithmetic& arithmetic, const Effort& effort, Random& random) {
  Tally tally;
  Arithmetic of = arithmetic;
  for (int i = 0; i < effort.problems; ++i) {
    of.input = random_input_format(arithmetic, random);
    Checked checked(random_problem(primitive, of.input, random, effort.size, effort.terms), of);
    tally.add(checked.run(effort.executions, random));
    if (effort.until_violation && tally.violations > 0) break;
  }
  return tally;
}

namespace {

// A neighbour: one element of one input moved by ulps, scaled, taken from another element, or drawn anew.
Problem changed(const Problem& from, Format input, Random& random) {
  Problem to = from;
  if (to.inputs.empty()) {
    to.attributes.scalar *= 1 + 1e-3 * uniform(random, -1, 1);
    return to;
  }
  const bool indexed = to.primitive == Primitive::kScatterAdd || to.primitive == Primitive::kGatherRows;
  const std::size_t which = indexed ? 0 : random() % to.inputs.size();
  Array fresh = Array::uninitialized(from.inputs[which].shape());
  std::copy(from.inputs[which].data(), from.inputs[which].data() + fresh.count(), fresh.data());
  const bool nonnegative = to.primitive == Primitive::kLog || to.primitive == Primitive::kSqrt ||
                           to.primitive == Primitive::kRsqrt || to.primitive == Primitive::kPow ||
                           to.primitive == Primitive::kLog1p;
  const auto touches = pick(random, 1, 3);
  for (std::int64_t t = 0; t < touches; ++t) {
    double& x = fresh.data()[random() % static_cast<std::uint64_t>(fresh.count())];
    switch (pick(random, 0, 4)) {
      case 0:
        x *= 1 + static_cast<double>(pick(random, -4, 4)) * 2 * unit_roundoff(input);
        break;
      case 1:
        x *= 1 + std::ldexp(uniform(random, -1, 1), -static_cast<int>(pick(random, 0, 20)));
        break;
      case 2:
        x = fresh.data()[random() % static_cast<std::uint64_t>(fresh.count())];
        break;
      case 3:
        x *= std::ldexp(1.0, static_cast<int>(pick(random, -3, 3)));
        break;
      default:
        x = nonnegative ? uniform(random, 0, 2) : -x;
    }
    x = round_to(input, x);
  }
  to.inputs[which] = fresh;
  return to;
}

}  // namespace

Witness climb(Primitive primitive, const Arithmetic& arithmetic, int steps, Random& random, std::int64_t terms) {
  constexpr int kStarts = 24, kExecutions = 12;
  Witness best;
  Arithmetic of = arithmetic;
  for (int i = 0; i < kStarts; ++i) {
    if (arithmetic.input == Format::kUnknown) of.input = random_input_format(arithmetic, random);
    Checked checked(random_problem(primitive, of.input, random, 1 + 3 * (i % 8), terms), of);
    const double ratio = checked.run(2 * kExecutions, random).witness;
    if (ratio >= best.ratio) best = {ratio, of.input, checked.problem()};
  }
  of.input = best.input;
  for (int i = 0; i < steps && best.ratio < 1; ++i) {
    Checked checked(changed(best.problem, of.input, random), of);
    const double ratio = checked.run(kExecutions, random).witness;
    if (ratio >= best.ratio) best = {ratio, of.input, checked.problem()};
  }
  return best;
}

}  // namespace plumbline::soundness
