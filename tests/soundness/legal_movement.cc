// Sources, casts, selection and data movement.
#include <algorithm>
#include <cmath>

#include "tests/soundness/legal.h"

namespace plumbline::soundness {
namespace {

using enum Primitive;

// What is moved is not changed.
class Fixed final : public Execution {
 public:
  explicit Fixed(std::vector<double> values) : values_(std::move(values)) {}
  void run(Random&, double* out) override { std::copy(values_.begin(), values_.end(), out); }

 private:
  std::vector<double> values_;
};

// A range by products or FMAs, from the start; or from the nearer end, the step formed from both (linspace).
template <class T>
class Range final : public Execution {
 public:
  explicit Range(const Problem& p) : start_(p.attributes.scalar), step_(p.attributes.scalar2), n_(p.shape[0]) {}
  void run(Random& random, double* out) override {
    const std::int64_t form = pick(random, 0, 2);
    const T start = static_cast<T>(start_);
    const T end = static_cast<T>(start_ + static_cast<double>(n_ - 1) * step_);
    const T step = form == 2 && n_ > 1 ? (end - start) / static_cast<T>(n_ - 1) : static_cast<T>(step_);
    for (std::int64_t i = 0; i < n_; ++i) {
      if (form == 0) {
        out[i] = std::fma(static_cast<T>(i), step, start);
      } else if (form == 1 || i < n_ / 2) {
        out[i] = start + static_cast<T>(i) * step;
      } else {
        out[i] = end - static_cast<T>(n_ - 1 - i) * step;
      }
    }
  }

 private:
  double start_, step_;
  std::int64_t n_;
};

}  // namespace

std::unique_ptr<Execution> legal_movement(const Problem& p, const Arithmetic& arithmetic) {
  const bool twice = arithmetic.compute == Format::kFloat64;
  switch (p.primitive) {
    case kIota:
      if (twice) return std::make_unique<Range<double>>(p);
      return std::make_unique<Range<float>>(p);
    case kConstant:
      return std::make_unique<Fixed>(std::vector<double>(static_cast<std::size_t>(count(p.shape)),
                                                         round_to(arithmetic.compute, p.attributes.scalar)));
    case kLeaf:
    case kSelect:
    case kRound:  // To nearest whatever the processor's mode.
    case kCast:
    case kWindow:
    case kAssemble:
    case kGatherRows: {
      std::vector<double> values;
      for (const Exact& e : exact(p)) values.push_back(e.value);
      return std::make_unique<Fixed>(std::move(values));
    }
    default:
      return nullptr;
  }
}

}  // namespace plumbline::soundness
