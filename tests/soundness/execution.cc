#include "tests/soundness/execution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace plumbline::soundness {
namespace {

using enum Primitive;

std::int64_t pick(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

// Sums `terms` in one of the orders a kernel may use.
template <class T>
T sum(std::vector<T> terms, Random& random) {
  if (terms.empty()) return 0;
  const auto chain = [](const std::vector<T>& v) {
    T total = v[0];
    for (std::size_t i = 1; i < v.size(); ++i) total += v[i];
    return total;
  };
  switch (pick(random, 0, 4)) {
    case 0:
      return chain(terms);
    case 1:
      std::shuffle(terms.begin(), terms.end(), random);
      return chain(terms);
    case 2: {  // A random tree.
      while (terms.size() > 1) {
        const auto i = static_cast<std::size_t>(pick(random, 0, static_cast<std::int64_t>(terms.size()) - 2));
        const auto j = static_cast<std::size_t>(pick(random, i + 1, static_cast<std::int64_t>(terms.size()) - 1));
        terms[i] += terms[j];
        terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(j));
      }
      return terms[0];
    }
    case 3: {  // Lanes of a vector unit, then their sum.
      std::vector<T> lanes(std::min<std::size_t>(terms.size(), std::size_t{1} << pick(random, 1, 5)), T{0});
      for (std::size_t i = 0; i < terms.size(); ++i) lanes[i % lanes.size()] += terms[i];
      return chain(lanes);
    }
    default:  // Pairwise.
      for (std::size_t step = 1; step < terms.size(); step *= 2) {
        for (std::size_t i = 0; i + step < terms.size(); i += 2 * step) terms[i] += terms[i + step];
      }
      return terms[0];
  }
}

// A dot product: separate products or FMAs, in any order, possibly split along k.
template <class T>
T dot(const std::vector<T>& a, const std::vector<T>& b, Random& random) {
  std::vector<std::size_t> order(a.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (pick(random, 0, 1) == 0) std::shuffle(order.begin(), order.end(), random);
  if (pick(random, 0, 1) == 0) {
    std::vector<T> products;
    for (const std::size_t i : order) products.push_back(a[i] * b[i]);
    return sum(products, random);
  }
  std::vector<T> parts(static_cast<std::size_t>(pick(random, 1, 4)), T{0});
  for (const std::size_t i : order) {
    T& part = parts[i * parts.size() / a.size()];
    part = std::fma(a[i], b[i], part);
  }
  return sum(parts, random);
}

// A function's value, off by up to its documented ULPs.
template <class T>
T within_ulps(long double value, double ulps, Random& random) {
  if (!std::isfinite(value) || value == 0) return static_cast<T>(value);
  int exponent = 0;
  std::frexp(value, &exponent);
  const int lowest = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
  const long double ulp = std::ldexp(1.0L, std::max(exponent - std::numeric_limits<T>::digits, lowest));
  const double choice = pick(random, 0, 2) == 0 ? std::uniform_real_distribution<double>(-1, 1)(random)
                                                : static_cast<double>(pick(random, -1, 1));
  return static_cast<T>(value + choice * ulps * ulp);
}

long double function(Primitive p, long double x) {
  switch (p) {
    case kExp:
      return std::exp(x);
    case kExpm1:
      return std::expm1(x);
    case kLog:
      return std::log(x);
    case kLog1p:
      return std::log1p(x);
    case kSqrt:
      return std::sqrt(x);
    case kRsqrt:
      return 1 / std::sqrt(x);
    case kReciprocal:
      return 1 / x;
    case kSin:
      return std::sin(x);
    case kCos:
      return std::cos(x);
    case kTanh:
      return std::tanh(x);
    case kErf:
      return std::erf(x);
    case kSigmoid:
      return 1 / (1 + std::exp(-x));
    case kCast:
      return x;
    default:
      return std::numeric_limits<long double>::quiet_NaN();
  }
}

Function documented(Primitive p) {
  switch (p) {
    case kExp:
      return Function::kExp;
    case kExpm1:
      return Function::kExpm1;
    case kLog:
      return Function::kLog;
    case kLog1p:
      return Function::kLog1p;
    case kSin:
      return Function::kSin;
    case kCos:
      return Function::kCos;
    case kTanh:
      return Function::kTanh;
    case kErf:
      return Function::kErf;
    case kSigmoid:
      return Function::kSigmoid;
    case kRsqrt:
      return Function::kRsqrt;
    default:
      return Function::kPow;
  }
}

double ulps_of(Function f, const Profile& profile) { return profile.functions[static_cast<int>(f)].ulp; }

bool is_function(Primitive p) {
  return p == kExp || p == kExpm1 || p == kLog || p == kLog1p || p == kSin || p == kCos || p == kTanh || p == kErf ||
         p == kSigmoid || p == kRsqrt;
}

bool is_binary(Primitive p) { return p == kAdd || p == kSub || p == kMul || p == kDiv || p == kPow; }

// Rows of length n of the first input.
struct Rows {
  std::int64_t count, n;
};

Rows rows_of(const Problem& p) { return {p.inputs[0].shape()[0], p.inputs[0].shape()[1]}; }

template <class T>
std::vector<T> row(const Problem& p, std::int64_t r, std::int64_t n) {
  const double* const from = p.inputs[0].data() + r * n;
  return {from, from + n};
}

// The variance by two passes, by Welford's recurrence, or by Chan's combination of chunks.
template <class T>
T variance(const std::vector<T>& x, Random& random) {
  const auto n = static_cast<T>(x.size());
  struct Moments {
    T count, mean, m2;
  };
  const auto welford = [](const T* begin, const T* end) {
    Moments m{0, 0, 0};
    for (const T* v = begin; v != end; ++v) {
      m.count += 1;
      const T d = *v - m.mean;
      m.mean += d / m.count;
      m.m2 += d * (*v - m.mean);
    }
    return m;
  };
  switch (pick(random, 0, 2)) {
    case 0: {
      const T mean = sum(x, random) / n;
      std::vector<T> squares;
      for (const T v : x) squares.push_back((v - mean) * (v - mean));
      return sum(squares, random) / n;
    }
    case 1:
      return welford(x.data(), x.data() + x.size()).m2 / n;
    default: {
      const auto chunk = static_cast<std::size_t>(pick(random, 1, 16));
      std::vector<Moments> parts;
      for (std::size_t i = 0; i < x.size(); i += chunk) {
        parts.push_back(welford(x.data() + i, x.data() + std::min(i + chunk, x.size())));
      }
      for (std::size_t step = 1; step < parts.size(); step *= 2) {
        for (std::size_t i = 0; i + step < parts.size(); i += 2 * step) {
          Moments& a = parts[i];
          const Moments& b = parts[i + step];
          const T total = a.count + b.count;
          const T d = b.mean - a.mean;
          const T share = b.count / total;
          a.mean += d * share;
          a.m2 += b.m2 + d * d * a.count * share;
          a.count = total;
        }
      }
      return parts[0].m2 / n;
    }
  }
}

template <class T>
std::vector<T> softmax(const std::vector<T>& x, bool logarithm, const Profile& profile, Random& random) {
  const auto exp = [&](T v) {
    return within_ulps<T>(std::exp(static_cast<long double>(v)), ulps_of(Function::kExp, profile), random);
  };
  T max = *std::max_element(x.begin(), x.end());
  std::vector<T> e(x.size());
  T total = 0;
  if (x.size() > 64 && pick(random, 0, 2) == 0) {  // Online, in blocks: rescaled whenever the maximum grows.
    max = -std::numeric_limits<T>::infinity();
    for (std::size_t begin = 0; begin < x.size(); begin += 64) {
      const std::size_t end = std::min(begin + 64, x.size());
      const T next = std::max(max, *std::max_element(x.begin() + begin, x.begin() + end));
      const T scale = begin == 0 ? T{0} : exp(max - next);
      for (std::size_t i = 0; i < begin; ++i) e[i] *= scale;
      std::vector<T> block;
      for (std::size_t i = begin; i < end; ++i) block.push_back(e[i] = exp(x[i] - next));
      total = total * scale + sum(block, random);
      max = next;
    }
  } else {
    for (std::size_t i = 0; i < x.size(); ++i) e[i] = exp(x[i] - max);
    total = sum(e, random);
  }
  std::vector<T> out(x.size());
  const T log_total =
      within_ulps<T>(std::log(static_cast<long double>(total)), ulps_of(Function::kLog, profile), random);
  const std::int64_t form = pick(random, 0, 1);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (logarithm) {
      out[i] = form == 0 ? (x[i] - max) - log_total : x[i] - (max + log_total);
    } else {
      out[i] = form == 0 ? e[i] / total : e[i] * (T{1} / total);
    }
  }
  return out;
}

template <class T>
std::vector<T> run(const Problem& p, const Profile& profile, Random& random) {
  const std::int64_t n = count(p.shape);
  std::vector<T> out(static_cast<std::size_t>(n));
  const auto in = [&](int input, std::int64_t i) { return static_cast<T>(p.inputs[input].data()[i]); };
  if (is_function(p.primitive)) {
    for (std::int64_t i = 0; i < n; ++i) {
      out[i] = within_ulps<T>(function(p.primitive, in(0, i)), ulps_of(documented(p.primitive), profile), random);
    }
    return out;
  }
  switch (p.primitive) {
    case kConstant:
      std::fill(out.begin(), out.end(), static_cast<T>(p.attributes.scalar));
      return out;
    case kIota: {
      const T start = static_cast<T>(p.attributes.scalar), step = static_cast<T>(p.attributes.scalar2);
      const bool fused = pick(random, 0, 1) == 0;
      for (std::int64_t i = 0; i < n; ++i) {
        out[i] = fused ? std::fma(static_cast<T>(i), step, start) : start + static_cast<T>(i) * step;
      }
      return out;
    }
    case kCast:
      for (std::int64_t i = 0; i < n; ++i) out[i] = in(0, i);
      return out;
    case kSqrt:
      for (std::int64_t i = 0; i < n; ++i) out[i] = std::sqrt(in(0, i));
      return out;
    case kReciprocal:
      for (std::int64_t i = 0; i < n; ++i) out[i] = T{1} / in(0, i);
      return out;
    case kAdd:
      for (std::int64_t i = 0; i < n; ++i) out[i] = in(0, i) + in(1, i);
      return out;
    case kSub:
      for (std::int64_t i = 0; i < n; ++i) out[i] = in(0, i) - in(1, i);
      return out;
    case kMul:
      for (std::int64_t i = 0; i < n; ++i) out[i] = in(0, i) * in(1, i);
      return out;
    case kDiv:
      for (std::int64_t i = 0; i < n; ++i) out[i] = in(0, i) / in(1, i);
      return out;
    case kPow:
      for (std::int64_t i = 0; i < n; ++i) {
        const long double t = std::pow(static_cast<long double>(in(0, i)), static_cast<long double>(in(1, i)));
        out[i] = within_ulps<T>(t, ulps_of(Function::kPow, profile), random);
      }
      return out;
    case kScatterAdd: {
      const std::int64_t d = p.shape[1];
      std::vector<std::vector<T>> columns(static_cast<std::size_t>(n));
      for (std::int64_t i = 0; i < p.inputs[0].shape()[0]; ++i) {
        const auto r = static_cast<std::int64_t>(p.inputs[1].data()[i]);
        for (std::int64_t j = 0; r >= 0 && j < d; ++j) columns[r * d + j].push_back(in(0, i * d + j));
      }
      for (std::int64_t i = 0; i < n; ++i) out[i] = sum(columns[i], random);
      return out;
    }
    case kMatmul: {
      const std::int64_t m = p.shape[0], c = p.shape[1], k = p.inputs[0].shape()[1];
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < c; ++j) {
          std::vector<T> a, b;
          for (std::int64_t l = 0; l < k; ++l) {
            a.push_back(in(0, i * k + l));
            b.push_back(in(1, l * c + j));
          }
          out[i * c + j] = dot(a, b, random);
        }
      }
      return out;
    }
    default:
      break;
  }
  const Rows rows = rows_of(p);
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::vector<T> x = row<T>(p, r, rows.n);
    switch (p.primitive) {
      case kSum:
        out[r] = sum(x, random);
        break;
      case kNorm:
        out[r] = std::sqrt(dot(x, x, random));
        break;
      case kVarianceRsqrt: {
        const T v = variance(x, random) + static_cast<T>(p.attributes.scalar);
        out[r] = pick(random, 0, 1) == 0 ? T{1} / std::sqrt(v)
                                         : within_ulps<T>(1 / std::sqrt(static_cast<long double>(v)),
                                                          ulps_of(Function::kRsqrt, profile), random);
        break;
      }
      case kCumsum: {  // Chunks of a scan, then their offsets.
        const std::int64_t chunk = pick(random, 1, rows.n);
        T offset = 0;
        for (std::int64_t begin = 0; begin < rows.n; begin += chunk) {
          T local = 0;
          for (std::int64_t i = begin; i < std::min(begin + chunk, rows.n); ++i) {
            local += x[i];
            out[r * rows.n + i] = offset + local;
          }
          offset += local;
        }
        break;
      }
      default: {
        const std::vector<T> y = softmax(x, p.primitive == kLogSoftmax, profile, random);
        std::copy(y.begin(), y.end(), out.begin() + r * rows.n);
      }
    }
  }
  return out;
}

}  // namespace

bool has_executions(Primitive p) {
  return is_function(p) || is_binary(p) || p == kConstant || p == kIota || p == kCast || p == kSqrt ||
         p == kReciprocal || p == kSum || p == kNorm || p == kVarianceRsqrt || p == kCumsum || p == kMatmul ||
         p == kSoftmax || p == kLogSoftmax || p == kScatterAdd;
}

#if defined(__SSE2__)
// The processor's own flushing of subnormal operands and results.
class Flushing {
 public:
  explicit Flushing(bool on) : before_(_mm_getcsr()) {
    if (on) _mm_setcsr(before_ | 0x8040);  // Flush to zero, denormals are zero.
  }
  ~Flushing() { _mm_setcsr(before_); }

 private:
  unsigned before_;
};
#else
struct Flushing {
  explicit Flushing(bool) {}
};
#endif

std::vector<double> execute(const Problem& problem, Format compute, Format result, const Profile& profile,
                            Random& random) {
  std::vector<double> out;
  std::vector<float> single;
  std::vector<double> twice;
  {
    const Flushing flushing(profile.flush_subnormals);
    if (compute == Format::kFloat32) {
      single = run<float>(problem, profile, random);
    } else {
      twice = run<double>(problem, profile, random);
    }
  }
  for (const float v : single) out.push_back(round_to(result, v));
  for (const double v : twice) out.push_back(round_to(result, v));
  return out;
}

std::vector<long double> exact(const Problem& p) {
  const std::int64_t n = count(p.shape);
  std::vector<long double> out(static_cast<std::size_t>(n), 0.0L);
  const auto in = [&](int input, std::int64_t i) { return static_cast<long double>(p.inputs[input].data()[i]); };
  const auto each = [&](const auto& f) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = f(i);
    return out;
  };
  switch (p.primitive) {
    case kConstant:
      return each([&](std::int64_t) { return static_cast<long double>(p.attributes.scalar); });
    case kIota:
      return each(
          [&](std::int64_t i) { return p.attributes.scalar + static_cast<long double>(i) * p.attributes.scalar2; });
    case kAdd:
      return each([&](std::int64_t i) { return in(0, i) + in(1, i); });
    case kSub:
      return each([&](std::int64_t i) { return in(0, i) - in(1, i); });
    case kMul:
      return each([&](std::int64_t i) { return in(0, i) * in(1, i); });
    case kDiv:
      return each([&](std::int64_t i) { return in(0, i) / in(1, i); });
    case kPow:
      return each([&](std::int64_t i) { return std::pow(in(0, i), in(1, i)); });
    case kScatterAdd: {
      const std::int64_t d = p.shape[1];
      for (std::int64_t i = 0; i < p.inputs[0].shape()[0]; ++i) {
        const auto r = static_cast<std::int64_t>(p.inputs[1].data()[i]);
        for (std::int64_t j = 0; r >= 0 && j < d; ++j) out[r * d + j] += in(0, i * d + j);
      }
      return out;
    }
    case kMatmul: {
      const std::int64_t c = p.shape[1], k = p.inputs[0].shape()[1];
      return each([&](std::int64_t i) {
        long double total = 0;
        for (std::int64_t l = 0; l < k; ++l) total += in(0, i / c * k + l) * in(1, l * c + i % c);
        return total;
      });
    }
    case kSum:
    case kNorm:
    case kVarianceRsqrt:
    case kCumsum:
    case kSoftmax:
    case kLogSoftmax:
      break;
    default:
      return each([&](std::int64_t i) { return function(p.primitive, in(0, i)); });
  }
  const Rows rows = rows_of(p);
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::vector<long double> x = row<long double>(p, r, rows.n);
    const auto length = static_cast<long double>(rows.n);
    const long double total = std::accumulate(x.begin(), x.end(), 0.0L);
    if (p.primitive == kSum) {
      out[r] = total;
    } else if (p.primitive == kNorm) {
      for (const long double v : x) out[r] += v * v;
      out[r] = std::sqrt(out[r]);
    } else if (p.primitive == kVarianceRsqrt) {
      for (const long double v : x) out[r] += (v - total / length) * (v - total / length);
      out[r] = 1 / std::sqrt(out[r] / length + p.attributes.scalar);
    } else if (p.primitive == kCumsum) {
      std::partial_sum(x.begin(), x.end(), out.begin() + r * rows.n);
    } else {
      const long double max = *std::max_element(x.begin(), x.end());
      long double s = 0;
      for (const long double v : x) s += std::exp(v - max);
      for (std::int64_t i = 0; i < rows.n; ++i) {
        out[r * rows.n + i] = p.primitive == kLogSoftmax ? (x[i] - max) - std::log(s) : std::exp(x[i] - max) / s;
      }
    }
  }
  return out;
}

Problem random_problem(Primitive p, Format compute, Random& random) {
  Problem problem{p, {}, {}, {}, {}};
  const bool single = compute == Format::kFloat32;
  const int reach = single ? 30 : 300;
  const std::int64_t regime = pick(random, 0, 4);
  constexpr const char* kRegimes[] = {"ordinary", "wide", "cancelling", "subnormal", "few bits"};
  problem.regime = kRegimes[regime];
  std::uniform_real_distribution<double> unit(-1, 1);
  double last = 1;
  // Exponentials of softmax rows stay readable only for moderate inputs; tanh and the like likewise.
  const bool exponential = p == kExp || p == kExpm1 || p == kSoftmax || p == kLogSoftmax || p == kSigmoid;
  const auto next = [&]() {
    double x = unit(random);
    switch (regime) {
      case 1:
        x = exponential ? 40 * x : std::ldexp(x, static_cast<int>(pick(random, -reach, reach)));
        break;
      case 2:
        x = pick(random, 0, 1) == 0 ? -last * (1 + 1e-6 * unit(random)) : x;
        break;
      case 3:
        x = std::ldexp(x, static_cast<int>(single ? pick(random, -149, -60) : pick(random, -1074, -500)));
        break;
      case 4:
        x = std::ldexp(static_cast<double>(pick(random, -16, 16)), static_cast<int>(pick(random, -26, 0)));
        break;
      default:
        break;
    }
    last = x = round_to(compute, x);
    return x;
  };
  const auto array = [&](const Shape& shape) {
    Array a = Array::uninitialized(shape);
    for (std::int64_t i = 0; i < a.count(); ++i) a.data()[i] = next();
    return a;
  };
  const auto positive = [&](Array a) {
    for (std::int64_t i = 0; i < a.count(); ++i) a.data()[i] = std::fabs(a.data()[i]);
    return a;
  };
  const std::int64_t n = pick(random, 1, 200), rows = pick(random, 1, 3);
  switch (p) {
    case kConstant:
      problem.shape = {3};
      problem.attributes.scalar = next() * (1 + 1e-9 * unit(random));
      return problem;
    case kIota:
      problem.shape = {n};
      problem.attributes.scalar = unit(random);
      problem.attributes.scalar2 = unit(random);
      return problem;
    case kSum:
    case kNorm:
    case kVarianceRsqrt:
      problem.attributes.dims = {1};
      problem.attributes.scalar = p == kVarianceRsqrt ? std::ldexp(1.0, static_cast<int>(pick(random, -17, 0))) : 0;
      problem.shape = {rows, 1};
      problem.inputs = {array({rows, n})};
      if (p == kVarianceRsqrt && pick(random, 0, 1) == 0) {  // A mean far from 0.
        const double shift = std::ldexp(1.0, static_cast<int>(pick(random, 0, 10)));
        for (std::int64_t i = 0; i < rows * n; ++i) {
          problem.inputs[0].data()[i] = round_to(compute, problem.inputs[0].data()[i] + shift);
        }
      }
      return problem;
    case kCumsum:
      problem.attributes.dims = {1};
      [[fallthrough]];
    case kSoftmax:
    case kLogSoftmax:
      problem.shape = {rows, n};
      problem.inputs = {array({rows, n})};
      return problem;
    case kMatmul:
      problem.shape = {rows, 2};
      problem.inputs = {array({rows, n}), array({n, 2})};
      return problem;
    case kScatterAdd: {
      problem.shape = {4, 3};
      problem.attributes.size = 4;
      Array index = Array::uninitialized({n});
      for (std::int64_t i = 0; i < n; ++i) index.data()[i] = static_cast<double>(pick(random, -1, 3));
      problem.inputs = {array({n, 3}), index};
      return problem;
    }
    case kLog:
    case kSqrt:
    case kRsqrt:
    case kLog1p:
      problem.inputs = {positive(array({n}))};
      break;
    case kPow:
      problem.inputs = {positive(array({n})), array({n})};
      break;
    default:
      problem.inputs = {array({n})};
      if (is_binary(p)) problem.inputs.push_back(array({n}));
  }
  problem.shape = {n};
  return problem;
}

}  // namespace plumbline::soundness
