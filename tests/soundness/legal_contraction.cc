// Matrix products: products and sums in any order, FMA chains, split along k; and matrix units that align k products
// and the accumulator to the largest of them and truncate. What is added to the product may begin the sum, join it
// anywhere or end it; a factor scales one operand, every partial sum or the whole.
#include <bit>
#include <numeric>

#include "tests/soundness/lanes.h"
#include "tests/soundness/legal.h"

namespace plumbline::soundness {
namespace {

// What a product's sum takes besides: c, row by row, and the factor alpha.
template <class T>
struct Besides {
  explicit Besides(const Problem& p) : begun(p.inputs.size() > 2), scaled(p.inputs.size() > 3) {
    if (begun) c = Lanes<T>::of(p.inputs[2], false);
    if (scaled) alpha = static_cast<T>(p.inputs[3].item());
  }
  bool begun, scaled;
  Lanes<T> c;
  T alpha = 1;
};

template <class T>
class Plain final : public Execution {
 public:
  explicit Plain(const Problem& p)
      : a_(Lanes<T>::of(p.inputs[0], false)), b_(Lanes<T>::of(p.inputs[1], false)), besides_(p) {}

  void run(Random& random, double* out) override {
    const std::int64_t k = b_.slots(), width = b_.width();
    const bool fused = coin(random), factor_first = coin(random);
    const std::int64_t slots = fused ? pick(random, 1, std::min<std::int64_t>(4, k)) : k;
    const bool first = besides_.begun && fused && (factor_first || !besides_.scaled) && coin(random);
    const bool last = besides_.begun && !first && coin(random), between = besides_.begun && !first && !last;
    std::vector<int> order(static_cast<std::size_t>(k));
    std::iota(order.begin(), order.end(), 0);
    if (coin(random)) std::shuffle(order.begin(), order.end(), random);
    random_order(static_cast<int>(slots + (between ? 1 : 0)), random, merges_);
    for (std::int64_t i = 0; i < a_.slots(); ++i) {
      work_ = Lanes<T>(slots + 1, width);
      const T* const c = besides_.begun ? besides_.c[i] : nullptr;
      if (first) std::copy(c, c + width, work_[0]);
      if (between) std::copy(c, c + width, work_[slots]);
      for (std::int64_t l = 0; l < k; ++l) {
        const T a = factor_first ? besides_.alpha * a_[i][order[l]] : a_[i][order[l]];
        const T* const b = b_[order[l]];
        T* const to = work_[fused ? l * slots / k : l];
        if (fused) {
          for (std::int64_t j = 0; j < width; ++j) to[j] = std::fma(a, b[j], to[j]);
        } else {
          for (std::int64_t j = 0; j < width; ++j) to[j] = a * b[j];
        }
      }
      const bool each = !factor_first && (between || (slots > 1 && coin(random)));
      if (each) {
        for (std::int64_t l = 0; l < slots; ++l) scale(work_[l], width);
      }
      work_.merge(merges_);
      T* const total = work_[merges_.result];
      if (!factor_first && !each) scale(total, width);
      for (std::int64_t j = 0; j < width; ++j) *out++ = last ? total[j] + c[j] : total[j];
    }
  }

 private:
  void scale(T* x, std::int64_t n) const {
    for (std::int64_t j = 0; j < n; ++j) x[j] *= besides_.alpha;
  }

  Lanes<T> a_, b_, work_;
  Besides<T> besides_;
  Order merges_;
};

// A matrix unit: each of k products and the accumulator is cut to a multiple of 2^-p of the largest one's power of two,
// their sum to the accumulator's bits: k 2^-p + 2 u relative to sum|a b| for each block, so c k u = k 2^-p + 2 u, which
// says p. Products are exact in double. K may be split into partial sums; tf32 units cut or round their inputs first.
class MatrixUnit final : public Execution {
 public:
  MatrixUnit(const Problem& p, const Product& unit, const SplitK& split, bool tf32, Format result)
      : a_(Lanes<double>::of(p.inputs[0], false)),
        b_(Lanes<double>::of(p.inputs[1], false)),
        besides_(p),
        unit_(unit),
        split_(split),
        result_(result),
        u_(std::ldexp(1.0, -(unit.accumulator_bits > 0 ? unit.accumulator_bits : 24))),
        grid_(power(unit.c - 2.0 / unit.k) * u_) {
    if (!tf32) return;
    for (Lanes<double>* const operand : {&a_, &b_}) {
      for (std::int64_t i = 0; i < operand->slots(); ++i) {
        for (std::int64_t j = 0; j < operand->width(); ++j) to_tf32((*operand)[i][j]);
      }
    }
  }

  void run(Random& random, double* out) override {
    const std::int64_t n = b_.slots(), width = b_.width();
    std::vector<int> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    if (coin(random)) std::shuffle(order.begin(), order.end(), random);
    const bool first = besides_.begun && !besides_.scaled && coin(random);
    const std::int64_t parts = coin(random) ? 1 : pick(random, 1, std::min<std::int64_t>(split_.parts, n));
    terms_ = Lanes<double>(unit_.k + 1, width);
    double* const total = terms_[unit_.k];
    for (std::int64_t i = 0; i < a_.slots(); ++i) {
      std::fill(out, out + width, 0.0);
      for (std::int64_t part = 0; part < parts; ++part) {
        const std::int64_t end = (part + 1) * n / parts;
        std::fill(total, total + width, 0.0);
        if (first && part == 0) std::copy(besides_.c[i], besides_.c[i] + width, total);
        for (std::int64_t begin = part * n / parts; begin < end; begin += unit_.k) {
          const std::int64_t terms = std::min<std::int64_t>(unit_.k, end - begin);
          for (std::int64_t l = 0; l < terms; ++l) {
            const double a = a_[i][order[begin + l]];
            const double* const b = b_[order[begin + l]];
            double* const to = terms_[l];
            for (std::int64_t j = 0; j < width; ++j) to[j] = a * b[j];
          }
          add_block(terms, total);
        }
        for (std::int64_t j = 0; j < width; ++j) {
          const double partial = split_.reduced && parts > 1 ? round_to(result_, total[j]) : total[j];
          out[j] = static_cast<float>(out[j]) + static_cast<float>(partial);
          if (split_.reduced && parts > 1) out[j] = round_to(result_, out[j]);
        }
      }
      if (besides_.begun && !first) {
        const auto alpha = static_cast<float>(besides_.alpha);
        for (std::int64_t j = 0; j < width; ++j)
          out[j] = alpha * static_cast<float>(out[j]) + static_cast<float>(besides_.c[i][j]);
      }
      out += width;
    }
  }

 private:
  static double power(double x) { return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & 0x7ff0000000000000U); }

  void to_tf32(double& x) const {
    const double step = std::max(power(x), 0x1p-126) * 0x1p-10;
    x = (unit_.inputs_truncated ? std::trunc(x / step) : std::nearbyint(x / step)) * step;
  }

  void add_block(std::int64_t terms, double* total) {
    for (std::int64_t j = 0; j < terms_.width(); ++j) {
      double largest = std::fabs(total[j]);
      for (std::int64_t l = 0; l < terms; ++l) largest = std::max(largest, std::fabs(terms_[l][j]));
      if (largest == 0) continue;
      const double step = power(largest) * grid_;
      double sum = std::trunc(total[j] / step) * step;
      for (std::int64_t l = 0; l < terms; ++l) sum += std::trunc(terms_[l][j] / step) * step;
      const double last = std::max(power(sum) * 2 * u_, 0x1p-149);
      total[j] = sum == 0 ? 0 : std::trunc(sum / last) * last;
    }
  }

  Lanes<double> a_, b_, terms_;
  Besides<double> besides_;
  Product unit_;
  SplitK split_;
  Format result_;
  double u_, grid_;
};

ProductClass class_of_elements(Format input) {
  switch (input) {
    case Format::kFloat64:
      return ProductClass::kFp64;
    case Format::kFloat16:
      return ProductClass::kFp16;
    case Format::kBFloat16:
      return ProductClass::kBf16;
    default:
      return ProductClass::kFp32;
  }
}

}  // namespace

std::unique_ptr<Execution> legal_contraction(const Problem& p, const Arithmetic& arithmetic) {
  if (p.primitive != Primitive::kMatmul) return nullptr;
  if (arithmetic.compute == Format::kFloat64) return std::make_unique<Plain<double>>(p);
  const Profile& profile = *arithmetic.profile;
  const ProductClass own = class_of_elements(arithmetic.input);
  const bool tf32 = own == ProductClass::kFp32 && profile.tf32_allowed;
  const Product& unit = profile.products[static_cast<int>(tf32 ? ProductClass::kTf32 : own)];
  if (unit.k > 1) return std::make_unique<MatrixUnit>(p, unit, profile.split_k, tf32, arithmetic.result);
  return std::make_unique<Plain<float>>(p);
}

}  // namespace plumbline::soundness
