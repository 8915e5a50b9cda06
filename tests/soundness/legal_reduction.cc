// Reductions over the lanes of a matrix: sums, norms, statistics, scans, extremes, scattered sums.
#include <algorithm>
#include <numeric>

#include "tests/soundness/lanes.h"
#include "tests/soundness/legal.h"
#include "tests/soundness/ulps.h"

namespace plumbline::soundness {
namespace {

using enum Primitive;

template <class T>
void store(const T* from, std::int64_t n, double* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = from[i];
}

template <class T>
class Sum final : public Execution {
 public:
  Sum(const Problem& p, const Profile& profile) : terms_(Lanes<T>::of(p)), kind_(profile.sum) {}
  void run(Random& random, double* out) override {
    work_ = terms_;
    legal_order(kind_, terms_.slots(), random, order_);
    work_.merge(order_);
    store(work_[order_.result], work_.width(), out);
  }

 private:
  Lanes<T> terms_, work_;
  Accumulation kind_;
  Order order_;
};

// Roots of lanes, each off by up to the profile's ULPs.
template <class T>
void root(T* x, std::int64_t n, const Promise<T>& promise, Random& random) {
  const auto stream = static_cast<std::uint32_t>(random());
  for (std::int64_t i = 0; i < n; ++i) {
    const T r = std::sqrt(x[i]);
    const double value = r;
    if (!promise.correctly_rounded() && r > 0 && r <= std::numeric_limits<T>::max()) {
      const Exact t{value, std::fma(-value, value, static_cast<double>(x[i])) / (2 * value)};
      x[i] =
          within<T>(t, promise.reach(value), ulp_of<T>(value), sharpened(noise(stream, static_cast<std::uint32_t>(i))));
    } else {
      x[i] = r;
    }
  }
}

// Squares rounded or fused into a chain.
template <class T>
class Norm final : public Execution {
 public:
  Norm(const Problem& p, const Profile& profile) : terms_(Lanes<T>::of(p)), profile_(profile) {}
  void run(Random& random, double* out) override {
    const std::int64_t n = terms_.slots(), width = terms_.width();
    std::int64_t result = 0;
    work_ = terms_;
    if (profile_.sum.tree || coin(random)) {
      for (std::int64_t i = 0; i < n; ++i) {
        T* const x = work_[i];
        for (std::int64_t j = 0; j < width; ++j) x[j] = x[j] * x[j];
      }
      legal_order(profile_.sum, n, random, order_);
      work_.merge(order_);
      result = order_.result;
    } else {
      T* const total = work_[0];
      for (std::int64_t j = 0; j < width; ++j) total[j] = total[j] * total[j];
      for (std::int64_t i = 1; i < n; ++i) {
        const T* const x = work_[i];
        for (std::int64_t j = 0; j < width; ++j) total[j] = std::fma(x[j], x[j], total[j]);
      }
    }
    root(work_[result], width, Promise<T>(Function::kSqrt, profile_), random);
    store(work_[result], width, out);
  }

 private:
  Lanes<T> terms_, work_;
  const Profile& profile_;
  Order order_;
};

// 1 / sqrt(variance + eps): the variance by two passes, by Welford's recurrence, or by Chan's tree of chunks.
template <class T>
class VarianceRsqrt final : public Execution {
 public:
  VarianceRsqrt(const Problem& p, const Profile& profile)
      : x_(Lanes<T>::of(p)), eps_(p.attributes.scalar), profile_(profile) {}

  void run(Random& random, double* out) override {
    const std::int64_t n = x_.slots(), width = x_.width();
    std::vector<T> v(static_cast<std::size_t>(width));
    const Variance algorithm = profile_.variance;
    if (algorithm == Variance::kOnePass) {
      one_pass(random, v.data());
    } else if (algorithm == Variance::kTwoPass || (algorithm == Variance::kStable && pick(random, 0, 2) == 0)) {
      two_pass(random, v.data());
    } else {
      tree(algorithm == Variance::kWelford || coin(random) ? n : pick(random, 1, 16), v.data());
    }
    const auto eps = static_cast<T>(eps_);
    for (T& each : v) each += eps;
    if (coin(random)) {
      root(v.data(), width, Promise<T>(Function::kSqrt, profile_), random);
      for (std::int64_t j = 0; j < width; ++j) out[j] = T{1} / v[j];
      return;
    }
    const Promise<T> promise(Function::kRsqrt, profile_);
    const auto stream = static_cast<std::uint32_t>(random());
    for (std::int64_t j = 0; j < width; ++j) {
      const long double t = 1 / std::sqrt(static_cast<long double>(v[j]));
      const Exact e{static_cast<double>(t), static_cast<double>(t - static_cast<double>(t))};
      out[j] = within<T>(e, promise.reach(e.value), ulp_of<T>(e.value),
                         sharpened(noise(stream, static_cast<std::uint32_t>(j))));
    }
  }

 private:
  // The sum of squared deviations, in any order.
  void two_pass(Random& random, T* v) {
    const std::int64_t n = x_.slots(), width = x_.width();
    work_ = x_;
    legal_order(profile_.sum, n, random, order_);
    work_.merge(order_);
    std::vector<T> mean(work_[order_.result], work_[order_.result] + width);
    for (T& each : mean) each /= static_cast<T>(n);
    for (std::int64_t i = 0; i < n; ++i) {
      T* const to = work_[i];
      const T* const x = x_[i];
      for (std::int64_t j = 0; j < width; ++j) to[j] = (x[j] - mean[j]) * (x[j] - mean[j]);
    }
    legal_order(profile_.sum, n, random, order_);
    work_.merge(order_);
    for (std::int64_t j = 0; j < width; ++j) v[j] = work_[order_.result][j] / static_cast<T>(n);
  }

  // E[x^2] - E[x]^2.
  void one_pass(Random& random, T* v) {
    const std::int64_t n = x_.slots(), width = x_.width();
    std::vector<T> mean(static_cast<std::size_t>(width));
    for (const bool squares : {false, true}) {
      work_ = x_;
      for (std::int64_t i = 0; squares && i < n; ++i) {
        T* const x = work_[i];
        for (std::int64_t j = 0; j < width; ++j) x[j] = x[j] * x[j];
      }
      legal_order(profile_.sum, n, random, order_);
      work_.merge(order_);
      const T* const total = work_[order_.result];
      for (std::int64_t j = 0; j < width; ++j) {
        if (squares) {
          v[j] = total[j] / static_cast<T>(n) - mean[j] * mean[j];
        } else {
          mean[j] = total[j] / static_cast<T>(n);
        }
      }
    }
  }

  // Welford in chunks, the chunks combined pairwise. One chunk: Welford alone.
  void tree(std::int64_t chunk, T* v) {
    const std::int64_t n = x_.slots(), width = x_.width(), parts = (n + chunk - 1) / chunk;
    means_ = Lanes<T>(parts, width);
    squares_ = Lanes<T>(parts, width);
    std::vector<T> counts(static_cast<std::size_t>(parts));
    for (std::int64_t part = 0; part < parts; ++part) {
      T *const mean = means_[part], *const square = squares_[part];
      T seen = 0;
      for (std::int64_t i = part * chunk; i < std::min(n, (part + 1) * chunk); ++i) {
        const T* const x = x_[i];
        seen += 1;
        for (std::int64_t j = 0; j < width; ++j) {
          const T d = x[j] - mean[j];
          mean[j] += d / seen;
          square[j] += d * (x[j] - mean[j]);
        }
      }
      counts[part] = seen;
    }
    for (std::int64_t step = 1; step < parts; step *= 2) {
      for (std::int64_t a = 0; a + step < parts; a += 2 * step) {
        const T total = counts[a] + counts[a + step], share = counts[a + step] / total;
        T *const mean = means_[a], *const square = squares_[a];
        const T *const mean_b = means_[a + step], *const square_b = squares_[a + step];
        for (std::int64_t j = 0; j < width; ++j) {
          const T d = mean_b[j] - mean[j];
          mean[j] += d * share;
          square[j] += square_b[j] + d * d * counts[a] * share;
        }
        counts[a] = total;
      }
    }
    for (std::int64_t j = 0; j < width; ++j) v[j] = squares_[0][j] / static_cast<T>(n);
  }

  Lanes<T> x_, work_, means_, squares_;
  double eps_;
  const Profile& profile_;
  Order order_;
};

// A chain, chunks of a scan and then their offsets, or Kogge and Stone's tree.
template <class T>
class Cumsum final : public Execution {
 public:
  explicit Cumsum(const Problem& p) : x_(Lanes<T>::of(p)), last_(p.attributes.dims[0] == 1) {}
  void run(Random& random, double* out) override {
    const std::int64_t n = x_.slots(), width = x_.width();
    work_ = x_;
    if (pick(random, 0, 2) == 0) {
      for (std::int64_t step = 1; step < n; step *= 2) {
        for (std::int64_t i = n - 1; i >= step; --i) Lanes<T>::add(work_[i], work_[i - step], width);
      }
    } else {
      const std::int64_t chunk = pick(random, 1, n);
      for (std::int64_t begin = 0; begin < n; begin += chunk) {
        const std::int64_t end = std::min(n, begin + chunk);
        for (std::int64_t i = begin + 1; i < end; ++i) Lanes<T>::add(work_[i], work_[i - 1], width);
        for (std::int64_t i = begin; begin > 0 && i < end; ++i) Lanes<T>::add(work_[i], work_[begin - 1], width);
      }
    }
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < width; ++j) out[last_ ? j * n + i : i * width + j] = work_[i][j];
    }
  }

 private:
  Lanes<T> x_, work_;
  bool last_;
};

template <class T>
class Sorted final : public Execution {
 public:
  explicit Sorted(const Problem& p) : x_(Lanes<T>::of(p)), last_(p.attributes.dims[0] == 1) {}
  void run(Random&, double* out) override {
    const std::int64_t n = x_.slots(), width = x_.width();
    std::vector<std::int64_t> order(static_cast<std::size_t>(n));
    for (std::int64_t j = 0; j < width; ++j) {
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return x_[a][j] > x_[b][j]; });
      for (std::int64_t i = 0; i < n; ++i)
        out[last_ ? j * n + i : i * width + j] = static_cast<double>(order[static_cast<std::size_t>(i)]);
    }
  }

 private:
  Lanes<T> x_;
  bool last_;
};

template <class T>
class ScatterAdd final : public Execution {
 public:
  explicit ScatterAdd(const Problem& p) : source_(Lanes<T>::of(p.inputs[0], false)), members_(p.shape[0]) {
    for (std::int64_t i = 0; i < source_.slots(); ++i) {
      const auto row = static_cast<std::int64_t>(p.inputs[1].data()[i]);
      if (row >= 0) members_[static_cast<std::size_t>(row)].push_back(i);
    }
  }
  void run(Random& random, double* out) override {
    const std::int64_t width = source_.width();
    for (const auto& members : members_) {
      std::fill(out, out + width, 0.0);
      if (!members.empty()) {
        const auto n = static_cast<std::int64_t>(members.size());
        work_ = Lanes<T>(n, width);
        for (std::int64_t i = 0; i < n; ++i) std::copy(source_[members[i]], source_[members[i]] + width, work_[i]);
        random_order(static_cast<int>(n), random, order_);
        work_.merge(order_);
        store(work_[order_.result], width, out);
      }
      out += width;
    }
  }

 private:
  Lanes<T> source_, work_;
  std::vector<std::vector<std::int64_t>> members_;
  Order order_;
};

template <class T>
class Extreme final : public Execution {
 public:
  explicit Extreme(const Problem& p) : x_(Lanes<T>::of(p)), primitive_(p.primitive) {}
  void run(Random&, double* out) override {
    std::vector<T> best(x_[0], x_[0] + x_.width());
    std::vector<double> at(best.size(), 0.0);
    for (std::int64_t i = 1; i < x_.slots(); ++i) {
      for (std::size_t j = 0; j < best.size(); ++j) {
        const T v = x_[i][j];
        if (primitive_ == kAmin ? v < best[j] : v > best[j]) {
          best[j] = v;
          at[j] = static_cast<double>(i);
        }
      }
    }
    for (std::size_t j = 0; j < best.size(); ++j) out[j] = primitive_ == kArgmax ? at[j] : best[j];
  }

 private:
  Lanes<T> x_;
  Primitive primitive_;
};

template <class T>
std::unique_ptr<Execution> of(const Problem& p, const Profile& profile) {
  switch (p.primitive) {
    case kSum:
      return std::make_unique<Sum<T>>(p, profile);
    case kNorm:
      return std::make_unique<Norm<T>>(p, profile);
    case kVarianceRsqrt:
      return std::make_unique<VarianceRsqrt<T>>(p, profile);
    case kCumsum:
      return std::make_unique<Cumsum<T>>(p);
    case kArgsort:
      return std::make_unique<Sorted<T>>(p);
    case kScatterAdd:
      return std::make_unique<ScatterAdd<T>>(p);
    case kAmax:
    case kAmin:
    case kArgmax:
      return std::make_unique<Extreme<T>>(p);
    default:
      return nullptr;
  }
}

}  // namespace

std::unique_ptr<Execution> legal_reduction(const Problem& p, const Arithmetic& arithmetic) {
  return arithmetic.compute == Format::kFloat64 ? of<double>(p, *arithmetic.profile)
                                                : of<float>(p, *arithmetic.profile);
}

}  // namespace plumbline::soundness
