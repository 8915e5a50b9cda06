// Softmax and its logarithm, row by row: the exponentials of x - max within their ULPs, their sum in any order, or
// online in blocks that rescale what came before whenever the maximum grows.
#include "tests/soundness/lanes.h"
#include "tests/soundness/legal.h"
#include "tests/soundness/ulps.h"

namespace plumbline::soundness {
namespace {

template <class T>
using Wide = std::conditional_t<std::is_same_v<T, float>, double, long double>;

template <class W>
Exact exact_of(W t) {
  const auto value = static_cast<double>(t);
  return {value, std::isfinite(value) ? static_cast<double>(t - static_cast<W>(value)) : 0.0};
}

template <class T>
class Softmax final : public Execution {
 public:
  Softmax(const Problem& p, const Profile& profile)
      : x_(Lanes<T>::of(p.inputs[0], true)),
        logarithm_(p.primitive == Primitive::kLogSoftmax),
        exp_(Function::kExp, profile),
        log_(Function::kLog, profile),
        divide_(Function::kDivide, profile),
        sum_(profile.sum) {
    const std::size_t n = static_cast<std::size_t>(x_.slots()), rows = static_cast<std::size_t>(x_.width());
    max_.assign(x_[0], x_[0] + rows);
    for (std::size_t i = 1; i < n; ++i) {
      for (std::size_t r = 0; r < rows; ++r) max_[r] = std::max(max_[r], x_[i][r]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t r = 0; r < rows; ++r) {
        const T d = x_[i][r] - max_[r];
        const Exact t = exact_of(std::exp(static_cast<Wide<T>>(d)));
        exponentials_.push_back(t);
        reach_.push_back(exp_.reach(t.value, d));
        ulp_.push_back(ulp_of<T>(t.value));
      }
    }
  }

  void run(Random& random, double* out) override {
    const std::int64_t n = x_.slots(), rows = x_.width();
    stream_ = static_cast<std::uint32_t>(random());
    const bool online = n > kBlock && pick(random, 0, 7) == 0;
    e_ = Lanes<T>(n, rows);
    const bool recomputed = coin(random);  // The numerators of an online softmax: anew, or rescaled with the sum.
    if (!online || recomputed) {
      // All up but the first, all down but the first, or as it comes.
      const std::int64_t tilt = pick(random, 0, 3);
      T* const e = e_[0];
      for (std::int64_t i = 0; i < n * rows; ++i) {
        float choice = sharpened(noise(stream_, static_cast<std::uint32_t>(i)));
        if (tilt < 2) choice = (i < rows) == (tilt == 0) ? -1 : 1;
        e[i] = within<T>(exponentials_[i], reach_[i], ulp_[i], choice);
      }
    }
    std::vector<T> total(static_cast<std::size_t>(rows));
    if (online) {
      sum_online(random, total.data(), recomputed);
    } else {
      work_ = e_;
      legal_order(sum_, n, random, order_);
      work_.merge(order_);
      std::copy(work_[order_.result], work_[order_.result] + rows, total.begin());
    }
    finish(random, total, out);
  }

 private:
  static constexpr std::int64_t kBlock = 64;

  T exponential(T x) {
    const Exact t = exact_of(std::exp(static_cast<Wide<T>>(x)));
    return within<T>(t, exp_.reach(t.value, x), ulp_of<T>(t.value), sharpened(noise(++stream_, 0)));
  }

  void sum_online(Random& random, T* total, bool recomputed) {
    const std::int64_t n = x_.slots();
    for (std::int64_t r = 0; r < x_.width(); ++r) {
      T max = 0;
      for (std::int64_t begin = 0; begin < n; begin += kBlock) {
        const std::int64_t end = std::min(n, begin + kBlock);
        T next = begin == 0 ? x_[0][r] : max;
        for (std::int64_t i = begin; i < end; ++i) next = std::max(next, x_[i][r]);
        Lanes<T> block(end - begin, 1);
        for (std::int64_t i = begin; i < end; ++i) block[i - begin][0] = exponential(x_[i][r] - next);
        const T scale = begin == 0 ? T{0} : exponential(max - next);
        if (!recomputed) {
          for (std::int64_t i = 0; i < begin; ++i) e_[i][r] *= scale;
          for (std::int64_t i = begin; i < end; ++i) e_[i][r] = block[i - begin][0];
        }
        legal_order(sum_, end - begin, random, order_);
        block.merge(order_);
        total[r] = (begin == 0 ? T{0} : total[r] * scale) + block[order_.result][0];
        max = next;
      }
    }
  }

  void finish(Random& random, const std::vector<T>& total, double* out) {
    const std::int64_t n = x_.slots(), rows = x_.width();
    const bool form = coin(random);
    for (std::int64_t r = 0; r < rows; ++r) {
      if (!logarithm_) {
        const T inverse = quotient(T{1}, total[r]);
        for (std::int64_t i = 0; i < n; ++i) {
          out[r * n + i] = form ? quotient(e_[i][r], total[r]) : e_[i][r] * inverse;
        }
        continue;
      }
      const Exact t = exact_of(std::log(static_cast<Wide<T>>(total[r])));
      const T log = within<T>(t, log_.reach(t.value), ulp_of<T>(t.value), sharpened(noise(++stream_, 1)));
      for (std::int64_t i = 0; i < n; ++i) {
        out[r * n + i] = form ? (x_[i][r] - max_[r]) - log : x_[i][r] - (max_[r] + log);
      }
    }
  }

  T quotient(T a, T b) {
    if (divide_.error.ulp == 0) return a / b;
    const Exact t = exact_of(static_cast<Wide<T>>(a) / static_cast<Wide<T>>(b));
    return within<T>(t, divide_.reach(t.value), ulp_of<T>(t.value), sharpened(noise(++stream_, 2)));
  }

  Lanes<T> x_, e_, work_;
  bool logarithm_;
  Promise<T> exp_, log_, divide_;
  Accumulation sum_;
  std::vector<T> max_;
  std::vector<Exact> exponentials_;
  std::vector<double> reach_, ulp_;
  std::uint32_t stream_ = 0;
  Order order_;
};

}  // namespace

std::unique_ptr<Execution> legal_softmax(const Problem& p, const Arithmetic& arithmetic) {
  if (p.primitive != Primitive::kSoftmax && p.primitive != Primitive::kLogSoftmax) return nullptr;
  if (arithmetic.compute == Format::kFloat64) return std::make_unique<Softmax<double>>(p, *arithmetic.profile);
  return std::make_unique<Softmax<float>>(p, *arithmetic.profile);
}

}  // namespace plumbline::soundness
