#include "tests/soundness/problem.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace plumbline::soundness {
namespace {

using enum Primitive;

enum class Regime { kOrdinary, kWide, kCancelling, kSubnormal, kFewBits, kEdges, kStagnating, kCount };
constexpr std::string_view kRegimes[] = {"ordinary", "wide",  "cancelling", "subnormal",
                                         "few bits", "edges", "stagnating"};

// One value after another in a regime, each rounded to the format.
class Values {
 public:
  Values(Regime regime, Format format, bool exponential, Random& random)
      : regime_(regime), format_(format), exponential_(exponential), random_(random) {
    const FormatTraits& t = traits(format);
    precision_ = t.precision;
    lowest_ = t.exponent_min - t.precision + 1;
    // Sums of squares of the widest values stay finite.
    reach_ = std::min(30, t.exponent_max / 4);
    if (format == Format::kFloat64) reach_ = 300;
  }

  double next() {
    double x = uniform(random_, -1, 1);
    switch (regime_) {
      case Regime::kWide:
        x = exponential_ ? 40 * x : std::ldexp(x, static_cast<int>(pick(random_, -reach_, reach_)));
        break;
      case Regime::kCancelling:
        x = coin(random_) ? -last_ * (1 + 1e-6 * x) : x;
        break;
      case Regime::kSubnormal:  // And differences that become so.
        if (pick(random_, 0, 3) == 0) {
          x = -last_ * (1 + static_cast<double>(pick(random_, -4, 4)) * std::ldexp(1.0, -precision_ / 2));
          break;
        }
        x = std::ldexp(
            x, static_cast<int>(pick(random_, lowest_, precision_ > 24 ? lowest_ + 570 : std::min(lowest_ + 90, -10))));
        break;
      case Regime::kFewBits:
        x = std::ldexp(static_cast<double>(pick(random_, -16, 16)), static_cast<int>(pick(random_, 2 - precision_, 0)));
        break;
      case Regime::kEdges: {  // Next to powers of two.
        const double ulps = static_cast<double>(pick(random_, -3, 3));
        x = std::ldexp(1 + std::ldexp(ulps, 1 - precision_), static_cast<int>(pick(random_, -4, 4)));
        if (coin(random_)) x = -x;
        break;
      }
      default:
        break;
    }
    return last_ = round_to(format_, x);
  }

  Array array(const Shape& shape) {
    Array a = Array::uninitialized(shape);
    for (std::int64_t i = 0; i < a.count(); ++i) a.data()[i] = next();
    return a;
  }

 private:
  Regime regime_;
  Format format_;
  bool exponential_;
  Random& random_;
  int precision_, lowest_, reach_;
  double last_ = 1;
};

Array absolute(Array a) {
  for (std::int64_t i = 0; i < a.count(); ++i) a.data()[i] = std::fabs(a.data()[i]);
  return a;
}

// [n, lanes], every lane a large first term, then terms whose `power`-th power is u of the first's or just less: a
// chain from the first does not move. Two large terms of opposite sign where the mean is to stay 0.
Array stagnating(std::int64_t n, std::int64_t lanes, Format compute, Format input, int power, bool centred,
                 Random& random) {
  Array a = Array::uninitialized({n, lanes});
  const double u = unit_roundoff(compute) * (centred ? 2 : 1);
  for (std::int64_t l = 0; l < lanes; ++l) {
    const double scale = std::ldexp(1.0, static_cast<int>(pick(random, -6, 6)));
    double tiny = power == 2 ? std::sqrt(u) : u;
    while (round_to(input, tiny) * (power == 2 ? round_to(input, tiny) : 1.0) > u) tiny *= 1 - unit_roundoff(input);
    if (coin(random)) tiny *= uniform(random, 0.9, 1);
    for (std::int64_t i = 0; i < n; ++i) {
      const bool large = i == 0 || (centred && i == 1);
      const double sign = centred && i % 2 == 1 ? -1 : 1;
      a.data()[i * lanes + l] = round_to(input, sign * scale * (large ? 1.0 : tiny));
    }
  }
  return a;
}

Array transposed(const Array& a) {
  const std::int64_t n = a.shape()[0], m = a.shape()[1];
  return a.restride({{m, n}, {1, m}, 0}).materialize();
}

bool is_exponential(Primitive p) {
  return p == kExp || p == kExpm1 || p == kSoftmax || p == kLogSoftmax || p == kSigmoid;
}

// Moves [n, lanes] over the first dimension or [lanes, n] over the second.
void reduce_over(Problem& problem, Array terms, bool keep_length, Random& random) {
  const std::int64_t lanes = terms.shape()[1];
  const bool last = coin(random);
  problem.attributes.dims = {last ? 1 : 0};
  problem.inputs = {last ? transposed(terms) : std::move(terms)};
  if (keep_length) {
    problem.shape = problem.inputs[0].shape();
  } else {
    problem.shape = last ? Shape{lanes, 1} : Shape{1, lanes};
  }
}

void window_problem(Problem& problem, Values& values, Random& random) {
  const std::int64_t rows = pick(random, 1, 9), columns = pick(random, 1, 9);
  problem.inputs = {values.array({rows, columns})};
  View& view = problem.attributes.view;
  switch (pick(random, 0, 3)) {
    case 0:
      view = {{columns, rows}, {1, columns}, 0};  // Transposed.
      break;
    case 1:
      view = {{rows, (columns + 1) / 2}, {columns, 2}, columns > 1 ? (columns % 2 == 0 ? 1 : 0) : 0};  // Every other.
      break;
    case 2:
      view = {{3, columns}, {0, 1}, (rows - 1) * columns};  // Expanded.
      break;
    default:
      view = {{rows * columns}, {1}, 0};
  }
  problem.shape = view.sizes;
}

void assemble_problem(Problem& problem, Values& values, Random& random) {
  const std::int64_t rows = pick(random, 1, 6), left = pick(random, 1, 5), right = pick(random, 1, 5);
  const std::int64_t width = left + right;
  Attributes& a = problem.attributes;
  a.size = rows * width;
  a.has_base = coin(random);
  if (a.has_base) problem.inputs.push_back(values.array({a.size}));
  problem.inputs.push_back(values.array({rows, left}));
  problem.inputs.push_back(values.array({rows, right}));
  a.views = {{{rows, left}, {width, 1}, 0}, {{rows, right}, {width, 1}, coin(random) ? left : left - 1}};
  problem.shape = {a.size};
}

// [n, lanes] on which Welford's running mean is rounded up by nearly half an ulp at every step: it drifts by a multiple
// of an ulp and a little more than a half.
Array drifting(std::int64_t n, std::int64_t lanes, Format compute, Format input, Random& random) {
  Array a = Array::uninitialized({n, lanes});
  for (std::int64_t l = 0; l < lanes; ++l) {
    const double step = 2 * unit_roundoff(compute) * (static_cast<double>(pick(random, 4, 400)) + 0.5);
    double mean = 1;
    a.data()[l] = mean;
    for (std::int64_t k = 2; k <= n; ++k) {
      const double x = round_to(input, mean + static_cast<double>(k) * step * 1.01);
      a.data()[(k - 1) * lanes + l] = x;
      mean = round_to(compute, mean + (x - mean) / static_cast<double>(k));
    }
  }
  return a;
}

Array random_index(std::int64_t n, std::int64_t low, std::int64_t high, Random& random) {
  Array index = Array::uninitialized({n});
  for (std::int64_t i = 0; i < n; ++i) index.data()[i] = static_cast<double>(pick(random, low, high));
  return index;
}

// Second terms of a sum that may stand for infinity, beside first ones that they absorb, nearly absorb, or keep.
void absorb_some(Problem& problem, Format input, Random& random) {
  const int most = traits(input).exponent_max - 1;
  if (most < 70) return;
  problem.attributes.scalar = 1;
  double *a = problem.inputs[0].data(), *b = problem.inputs[1].data();
  for (std::int64_t i = 0; i < problem.inputs[1].count(); ++i) {
    if (coin(random)) continue;
    const double sign = coin(random) ? -1 : 1;
    b[i] = round_to(input, sign * std::ldexp(uniform(random, 1, 2), static_cast<int>(pick(random, 62, most))));
    if (coin(random))
      a[i] = round_to(input, b[i] * std::ldexp(uniform(random, -2, 2), -static_cast<int>(pick(random, 20, 78))));
  }
}

}  // namespace

PrimitiveClass class_of(Primitive primitive) {
  switch (primitive) {
    case kSum:
    case kAmax:
    case kAmin:
    case kArgmax:
    case kArgsort:
    case kNorm:
    case kCumsum:
    case kScatterAdd:
      return PrimitiveClass::kReduction;
    case kMatmul:
      return PrimitiveClass::kContraction;
    case kVarianceRsqrt:
    case kSoftmax:
    case kLogSoftmax:
      return PrimitiveClass::kFused;
    case kLeaf:
    case kConstant:
    case kIota:
    case kCast:
    case kWindow:
    case kAssemble:
    case kGatherRows:
      return PrimitiveClass::kMovement;
    default:
      if (is_elementwise(primitive)) return PrimitiveClass::kElementwise;
      throw std::logic_error("no class of " + std::string(traits(primitive).name));
  }
}

std::string_view name_of(PrimitiveClass primitive_class) {
  constexpr std::string_view kNames[] = {"elementwise", "reduction", "contraction", "fused", "movement"};
  return kNames[static_cast<std::size_t>(primitive_class)];
}

Problem random_problem(Primitive p, Format input, Random& random, std::int64_t size, std::int64_t terms) {
  Problem problem{p, {}, {}, {}, {}};
  const auto regime = static_cast<Regime>(pick(random, 0, static_cast<int>(Regime::kCount) - 1));
  problem.regime = kRegimes[static_cast<std::size_t>(regime)];
  Values values(regime, input, is_exponential(p), random);
  const Format compute = input == Format::kFloat64 ? Format::kFloat64 : Format::kFloat32;
  const bool stagnates = regime == Regime::kStagnating;
  const std::int64_t n = coin(random) ? pick(random, 1, 8) : pick(random, 1, terms);
  const std::int64_t lanes = std::max<std::int64_t>(1, size);
  switch (p) {
    case kLeaf:
      problem.shape = {lanes};
      problem.inputs = {values.array({lanes})};  // Its content.
      return problem;
    case kConstant:
      problem.shape = {3};
      problem.attributes.scalar = values.next() * (1 + 1e-9 * uniform(random, -1, 1));
      return problem;
    case kIota:
      problem.shape = {n};
      problem.attributes.scalar = uniform(random, -1, 1);
      problem.attributes.scalar2 = uniform(random, -1, 1);
      return problem;
    case kSum:
    case kCumsum:
      reduce_over(
          problem,
          stagnates ? stagnating(n, lanes, compute, input, 1, false, random) : transposed(values.array({lanes, n})),
          p == kCumsum, random);
      return problem;
    case kAmax:
    case kAmin:
    case kArgmax:
      reduce_over(problem, transposed(values.array({lanes, n})), false, random);
      return problem;
    case kArgsort:
      reduce_over(problem, transposed(values.array({lanes, n})), true, random);
      problem.attributes.size = n;
      return problem;
    case kNorm:
      reduce_over(
          problem,
          stagnates ? stagnating(n, lanes, compute, input, 2, false, random) : transposed(values.array({lanes, n})),
          false, random);
      return problem;
    case kVarianceRsqrt: {
      Array x = stagnates && coin(random) ? drifting(n, lanes, compute, input, random)
                : stagnates               ? stagnating(n, lanes, compute, input, 2, true, random)
                                          : transposed(values.array({lanes, n}));
      if (!stagnates && coin(random)) {  // A mean far from 0, with a spread of some units of its last place or more.
        const double shift = std::ldexp(1.0, static_cast<int>(pick(random, 0, 10)));
        const double spread = coin(random) ? 1 : std::ldexp(1.0, -static_cast<int>(pick(random, 8, 24)));
        for (std::int64_t i = 0; i < x.count(); ++i) x.data()[i] = round_to(input, x.data()[i] * spread + shift);
      }
      reduce_over(problem, std::move(x), false, random);
      problem.attributes.scalar = std::ldexp(1.0, static_cast<int>(pick(random, -40, 0)));
      return problem;
    }
    case kSoftmax:
    case kLogSoftmax: {
      const std::int64_t rows = std::max<std::int64_t>(1, lanes / n);
      problem.shape = {rows, n};
      problem.inputs = {values.array({rows, n})};
      if (stagnates) {  // The exponentials stagnate: the first is 1, the others u.
        for (std::int64_t i = 0; i < rows * n; ++i) {
          const double far = std::log(unit_roundoff(compute)) * uniform(random, 1, 1.02);
          problem.inputs[0].data()[i] = round_to(input, i % n == 0 ? 0.0 : far);
        }
      }
      return problem;
    }
    case kMatmul: {
      const std::int64_t rows = pick(random, 1, 3), columns = std::max<std::int64_t>(1, lanes / rows);
      problem.shape = {rows, columns};
      if (stagnates) {
        problem.inputs = {transposed(stagnating(n, rows, compute, input, 2, false, random)),
                          stagnating(n, columns, compute, input, 2, false, random)};
      } else {
        problem.inputs = {values.array({rows, n}), transposed(values.array({columns, n}))};
      }
      if (coin(random)) {  // Something that the sum may begin with, and a factor whose products with fp64 are exact.
        problem.inputs.push_back(values.array(problem.shape));
        const double factor = input == Format::kFloat64 ? std::ldexp(1.0, static_cast<int>(pick(random, 0, 3)))
                                                        : round_to(Format::kBFloat16, uniform(random, -4, 4));
        if (coin(random)) problem.inputs.push_back(Array::scalar(round_to(input, factor)));
      }
      return problem;
    }
    case kScatterAdd: {
      const std::int64_t d = std::max<std::int64_t>(1, lanes / 4);
      problem.shape = {4, d};
      problem.attributes.size = 4;
      problem.inputs = {
          stagnates ? stagnating(n, d, compute, input, 1, false, random) : transposed(values.array({d, n})),
          stagnates ? Array::zeros({n}) : random_index(n, -1, 3, random)};
      return problem;
    }
    case kWindow:
      window_problem(problem, values, random);
      return problem;
    case kAssemble:
      assemble_problem(problem, values, random);
      return problem;
    case kGatherRows: {
      const std::int64_t rows = pick(random, 1, 9), d = pick(random, 1, 9);
      problem.inputs = {values.array({rows, d}), random_index(n, 0, rows - 1, random)};
      problem.shape = {n, d};
      return problem;
    }
    case kLog:
    case kSqrt:
    case kRsqrt:
    case kLog1p:
      problem.inputs = {absolute(values.array({lanes}))};
      break;
    case kExp:
      problem.attributes.scalar = coin(random) ? 1 : 0;
      problem.inputs = {values.array({lanes})};
      break;
    case kDiv:
      problem.attributes.scalar = coin(random) ? 1 : 0;
      problem.inputs = {values.array({lanes}), values.array({lanes})};
      break;
    case kPow:
      problem.inputs = {absolute(values.array({lanes})), values.array({lanes})};
      break;
    default:
      if (!is_elementwise(p)) throw std::logic_error("no problems of " + std::string(traits(p).name));
      for (int i = 0; i < traits(p).arity; ++i) problem.inputs.push_back(values.array({lanes}));
      if ((p == kAdd || p == kSub) && coin(random)) {
        if (coin(random)) absorb_some(problem, input, random);
      } else if (p == kAdd || p == kSub) {  // The second nearly cancels the first.
        const double *a = problem.inputs[0].data(), sign = p == kAdd ? -1 : 1;
        for (std::int64_t i = 0; i < lanes; ++i) {
          const double moved = 1 + std::ldexp(uniform(random, -1, 1), -static_cast<int>(pick(random, 0, 24)));
          problem.inputs[1].data()[i] = round_to(input, sign * a[i] * moved);
        }
      }
      if (p == kSelect || p == kLogicalAnd || p == kLogicalOr) {
        for (std::int64_t i = 0; i < lanes; ++i) problem.inputs[0].data()[i] = static_cast<double>(i % 2);
      }
  }
  problem.shape = {lanes};
  return problem;
}

}  // namespace plumbline::soundness
