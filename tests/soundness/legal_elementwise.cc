// Elementwise executions: + - * / sqrt and the exact operations by the processor, functions from their exact value.
#include <optional>

#include "tests/soundness/legal.h"
#include "tests/soundness/ulps.h"

namespace plumbline::soundness {
namespace {

using enum Primitive;

std::optional<Function> documented(const Problem& problem) {
  switch (problem.primitive) {
    case kExp:
      return problem.attributes.scalar != 0 ? Function::kFusedExp : Function::kExp;
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
    case kSqrt:
      return Function::kSqrt;
    case kPow:
      return Function::kPow;
    case kAtan2:
      return Function::kAtan2;
    case kDiv:
      return problem.attributes.scalar != 0 ? Function::kDivideByNumber : Function::kDivide;
    case kReciprocal:
      return Function::kDivide;
    default:
      return std::nullopt;
  }
}

template <class T>
T flushed(T x) {  // What is zero already keeps its sign: the angle of a point left of the origin depends on it.
  return x != 0 && std::fabs(x) < std::numeric_limits<T>::min() ? T{0} : x;
}

template <class T>
class FunctionExecution final : public Execution {
 public:
  FunctionExecution(const Problem& p, std::span<const Exact> truth, const Promise<T>& promise, bool may_flush)
      : kept_(points(p, truth, promise)), may_flush_(may_flush) {
    if (!may_flush) return;
    std::vector<Exact> moved;
    for (std::size_t i = 0; i < truth.size(); ++i) {
      const T x = flushed(static_cast<T>(p.inputs[0].data()[i]));
      const T y = p.inputs.size() > 1 ? flushed(static_cast<T>(p.inputs[1].data()[i])) : T{0};
      moved.push_back(exact_function(p.primitive, x, y));
    }
    flushed_ = points(p, moved, promise);
  }

  void run(Random& random, double* out) override {
    const bool flush = may_flush_ && coin(random);
    const Points& points = flush ? flushed_ : kept_;
    const auto stream = static_cast<std::uint32_t>(random());
    const bool ends = coin(random);
    for (std::size_t i = 0; i < points.value.size(); ++i) {
      const float choice = noise(stream, static_cast<std::uint32_t>(i));
      out[i] = within<T>({points.value[i], points.rest[i]}, points.reach[i], points.ulp[i],
                         ends ? sharpened(choice) : choice);
    }
    if (!flush) return;
    for (std::size_t i = 0; i < points.value.size(); ++i) out[i] = flushed(static_cast<T>(out[i]));
  }

 private:
  struct Points {
    std::vector<double> value, rest, reach, ulp;
  };
  static Points points(const Problem& p, std::span<const Exact> truth, const Promise<T>& promise) {
    Points points;
    for (std::size_t i = 0; i < truth.size(); ++i) {
      const double t = truth[i].value;
      points.value.push_back(t);
      points.rest.push_back(truth[i].rest);
      points.reach.push_back(promise.reach(t, p.inputs[0].data()[i]));
      points.ulp.push_back(ulp_of<T>(t));
    }
    return points;
  }
  Points kept_, flushed_;
  bool may_flush_;
};

// f(a[i], b[i]) by the processor.
template <class T, class F>
class Direct final : public Execution {
 public:
  Direct(const Problem& p, F f) : f_(f) {
    for (const Array& input : p.inputs) in_.emplace_back(input.data(), input.data() + input.count());
    count_ = static_cast<std::size_t>(count(p.shape));
    in_.resize(2, std::vector<T>(count_));
  }
  void run(Random&, double* out) override {
    const T *a = in_[0].data(), *b = in_[1].data();
    for (std::size_t i = 0; i < count_; ++i) out[i] = f_(a[i], b[i]);
  }

 private:
  std::vector<std::vector<T>> in_;
  std::size_t count_;
  F f_;
};

template <class T>
std::unique_ptr<Execution> of(const Problem& p, std::span<const Exact> truth, const Arithmetic& arithmetic) {
  const auto direct = [&](auto f) -> std::unique_ptr<Execution> {
    return std::make_unique<Direct<T, decltype(f)>>(p, f);
  };
  const Profile& profile = *arithmetic.profile;
  const auto function = documented(p);
  const bool hardware = p.primitive == kDiv || p.primitive == kSqrt || p.primitive == kReciprocal;
  if (function && !(hardware && profile.functions[static_cast<int>(*function)].ulp == 0)) {
    return std::make_unique<FunctionExecution<T>>(p, truth, Promise<T>(*function, profile), profile.flush_subnormals);
  }
  const auto truth_value = [](bool b) { return b ? T{1} : T{0}; };
  switch (p.primitive) {
    case kSqrt:
      return direct([](T a, T) { return std::sqrt(a); });
    case kReciprocal:
      return direct([](T a, T) { return T{1} / a; });
    case kAdd:
      return direct([](T a, T b) { return a + b; });
    case kSub:
      return direct([](T a, T b) { return a - b; });
    case kMul:
      return direct([](T a, T b) { return a * b; });
    case kDiv:
      return direct([](T a, T b) { return a / b; });
    case kNeg:
      return direct([](T a, T) { return -a; });
    case kAbs:
      return direct([](T a, T) { return std::fabs(a); });
    case kSign:
      return direct([](T a, T) { return static_cast<T>((a > 0) - (a < 0)); });
    case kFloor:
      return direct([](T a, T) { return std::floor(a); });
    case kCeil:
      return direct([](T a, T) { return std::ceil(a); });
    case kTrunc:
      return direct([](T a, T) { return std::trunc(a); });
    case kIsFinite:
      return direct([=](T a, T) { return truth_value(std::isfinite(a)); });
    case kLogicalNot:
      return direct([=](T a, T) { return truth_value(a == 0); });
    case kMax:
      return direct([](T a, T b) { return a != a || b != b ? a + b : std::max(a, b); });
    case kMin:
      return direct([](T a, T b) { return a != a || b != b ? a + b : std::min(a, b); });
    case kFmod:
      return direct([](T a, T b) { return std::fmod(a, b); });
    case kLess:
      return direct([=](T a, T b) { return truth_value(a < b); });
    case kLessEqual:
      return direct([=](T a, T b) { return truth_value(a <= b); });
    case kGreater:
      return direct([=](T a, T b) { return truth_value(a > b); });
    case kGreaterEqual:
      return direct([=](T a, T b) { return truth_value(a >= b); });
    case kEqual:
      return direct([=](T a, T b) { return truth_value(a == b); });
    case kNotEqual:
      return direct([=](T a, T b) { return truth_value(a != b); });
    case kLogicalAnd:
      return direct([=](T a, T b) { return truth_value(a != 0 && b != 0); });
    case kLogicalOr:
      return direct([=](T a, T b) { return truth_value(a != 0 || b != 0); });
    default:
      return nullptr;
  }
}

}  // namespace

std::unique_ptr<Execution> legal_elementwise(const Problem& p, std::span<const Exact> truth,
                                             const Arithmetic& arithmetic) {
  return arithmetic.compute == Format::kFloat64 ? of<double>(p, truth, arithmetic) : of<float>(p, truth, arithmetic);
}

}  // namespace plumbline::soundness
