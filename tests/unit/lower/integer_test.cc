// Integers wrap around at the width of their format, and are exact beyond what fp64 holds: against C++ arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>

#include "tests/unit/lower/trace_builder.h"

namespace plumbline {
namespace {

using testing::run;
using testing::TraceBuilder;
using Integers = std::vector<std::int64_t>;
constexpr auto kInt64 = Format::kInt64;

// A leaf of 64-bit integers of any size.
TensorRef integers(TraceBuilder* b, const Integers& values) {
  const TensorRef x = b->leaf({static_cast<std::int64_t>(values.size())}, std::vector<double>(values.size()), kInt64);
  auto bytes = std::make_shared<std::vector<std::uint8_t>>(values.size() * sizeof(std::int64_t));
  std::memcpy(bytes->data(), values.data(), bytes->size());
  b->trace.payloads[b->trace.leaves.back().payload] = std::move(bytes);
  return x;
}

// What a chain of operations with one scalar each gives, modulo 2^32, so that no digit is lost on the way out.
struct Step {
  const char* op;
  std::int64_t by;
};

std::vector<double> chained(const Integers& values, const std::vector<Step>& steps, std::int64_t modulus) {
  TraceBuilder b;
  const Shape shape{static_cast<std::int64_t>(values.size())};
  TensorRef x = integers(&b, values);
  for (const Step& step : steps)
    x = b.op1(std::string("aten::") + step.op, {{"self", x}, {"other", step.by}}, shape, kInt64);
  b.tap("y", b.op1("aten::remainder.Scalar", {{"self", x}, {"other", modulus}}, shape, kInt64));
  EXPECT_EQ(lower(b.trace).coverage.opaque, 0u);
  return run(b.trace, "y");
}

std::int64_t applied(std::int64_t x, const Step& step) {
  const auto a = static_cast<std::uint64_t>(x), b = static_cast<std::uint64_t>(step.by);
  const std::string op = step.op;
  if (op == "add.Tensor") return static_cast<std::int64_t>(a + b);
  if (op == "sub.Tensor") return static_cast<std::int64_t>(a - b);
  if (op == "mul.Tensor") return static_cast<std::int64_t>(a * b);
  if (op == "bitwise_xor.Scalar") return static_cast<std::int64_t>(a ^ b);
  if (op == "bitwise_and.Scalar") return static_cast<std::int64_t>(a & b);
  if (op == "bitwise_or.Scalar") return static_cast<std::int64_t>(a | b);
  if (op == "__lshift__.Scalar") return static_cast<std::int64_t>(a << step.by);
  return x >> step.by;
}

std::int64_t modulo(std::int64_t x, std::int64_t by) { return ((x % by) + by) % by; }

Integers many() {
  std::mt19937_64 draw(16);
  Integers values{0,
                  1,
                  -1,
                  1LL << 53,
                  (1LL << 53) + 1,
                  -(1LL << 53) - 1,
                  std::numeric_limits<std::int64_t>::max(),
                  std::numeric_limits<std::int64_t>::min()};
  for (int i = 0; i < 40; ++i) values.push_back(static_cast<std::int64_t>(draw()) >> (i % 50));
  return values;
}

void expect_chain(const Integers& values, const std::vector<Step>& steps) {
  for (const std::int64_t modulus : {1LL << 32, 10007LL, (1LL << 31) - 1}) {
    const std::vector<double> found = chained(values, steps, modulus);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::int64_t x = values[i];
      for (const Step& step : steps) x = applied(x, step);
      EXPECT_EQ(found[i], static_cast<double>(modulo(x, modulus))) << values[i] << " modulo " << modulus;
    }
  }
}

TEST(Integer, SumsAndProductsWrapAround) {
  expect_chain(many(), {{"mul.Tensor", 6364136223846793005}, {"add.Tensor", 1442695040888963407}});
  expect_chain(many(), {{"mul.Tensor", -7046029254386353131}, {"sub.Tensor", 3}, {"mul.Tensor", 31}});
  expect_chain({5, -7, 123456789}, {{"mul.Tensor", 2654435761}, {"mul.Tensor", 2654435761}, {"add.Tensor", -1}});
}

TEST(Integer, BitsAndShifts) {
  expect_chain(many(), {{"__rshift__.Scalar", 33}, {"mul.Tensor", -49064778989728563}});
  expect_chain(many(), {{"__rshift__.Scalar", 7}, {"bitwise_xor.Scalar", 0x5bd1e995}});
  expect_chain(many(), {{"__lshift__.Scalar", 13}, {"bitwise_or.Scalar", -65536}});
  expect_chain(many(), {{"bitwise_and.Scalar", 0x0f0f0f0f0f0f0f0f}, {"mul.Tensor", 0x0101010101010101}});
}

TEST(Integer, AWordThatTakesItselfBack) {  // x ^= x >> 33
  TraceBuilder b;
  const Integers values = many();
  const Shape shape{static_cast<std::int64_t>(values.size())};
  const TensorRef x = integers(&b, values);
  const TensorRef shifted = b.op1("aten::__rshift__.Scalar", {{"self", x}, {"other", std::int64_t{33}}}, shape, kInt64);
  const TensorRef mixed = b.op1("aten::bitwise_xor.Tensor", {{"self", x}, {"other", shifted}}, shape, kInt64);
  const TensorRef same = b.op1("aten::eq.Tensor", {{"self", mixed}, {"other", x}}, shape, Format::kBool);
  b.tap("y", b.op1("aten::remainder.Scalar", {{"self", mixed}, {"other", std::int64_t{1000003}}}, shape, kInt64));
  b.tap("same", same);
  EXPECT_EQ(lower(b.trace).coverage.opaque, 0u);
  const std::vector<double> found = run(b.trace, "y"), equal = run(b.trace, "same");
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t expected = values[i] ^ (values[i] >> 33);
    EXPECT_EQ(found[i], static_cast<double>(modulo(expected, 1000003))) << values[i];
    EXPECT_EQ(equal[i] != 0, expected == values[i]);
  }
}

// Comparisons are exact for neighbours that are one number to fp64, too.
TEST(Integer, ComparisonsAreExact) {
  Integers values = many(), others = values;
  for (const std::int64_t x : many()) {
    values.push_back(x);
    others.push_back(static_cast<std::int64_t>(static_cast<std::uint64_t>(x) + 1));
  }
  const std::size_t half = values.size();
  for (std::size_t i = 0; i < half; ++i) {
    values.push_back(others[i]);
    others.push_back(values[(7 * i) % half]);
  }
  const auto found = [&](const char* name, Format format) {
    TraceBuilder b;
    const TensorRef x = integers(&b, values), y = integers(&b, others);
    const Shape shape{static_cast<std::int64_t>(values.size())};
    TensorRef made = b.op1(std::string("aten::") + name, {{"self", x}, {"other", y}}, shape, format);
    if (format != Format::kBool)
      made = b.op1("aten::remainder.Scalar", {{"self", made}, {"other", std::int64_t{1000003}}}, shape, format);
    b.tap("y", made);
    EXPECT_EQ(lower(b.trace).coverage.opaque, 0u) << name;
    return run(b.trace, "y");
  };
  const auto lt = found("lt.Tensor", Format::kBool), le = found("le.Tensor", Format::kBool),
             gt = found("gt.Tensor", Format::kBool), ge = found("ge.Tensor", Format::kBool),
             eq = found("eq.Tensor", Format::kBool), ne = found("ne.Tensor", Format::kBool),
             most = found("maximum.default", kInt64), least = found("minimum.default", kInt64);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t x = values[i], y = others[i];
    EXPECT_EQ(lt[i] != 0, x < y) << x << " " << y;
    EXPECT_EQ(le[i] != 0, x <= y) << x << " " << y;
    EXPECT_EQ(gt[i] != 0, x > y) << x << " " << y;
    EXPECT_EQ(ge[i] != 0, x >= y) << x << " " << y;
    EXPECT_EQ(eq[i] != 0, x == y) << x << " " << y;
    EXPECT_EQ(ne[i] != 0, x != y) << x << " " << y;
    EXPECT_EQ(most[i], static_cast<double>(modulo(std::max(x, y), 1000003)));
    EXPECT_EQ(least[i], static_cast<double>(modulo(std::min(x, y), 1000003)));
  }
}

TEST(Integer, SumsOfManyAreExact) {
  const Integers values = many();
  const auto elements = static_cast<std::int64_t>(values.size());
  TraceBuilder b;
  const TensorRef x = integers(&b, values);
  const auto rest = [&](const TensorRef& of, const Shape& shape) {
    return b.op1("aten::remainder.Scalar", {{"self", of}, {"other", std::int64_t{1000003}}}, shape, kInt64);
  };
  b.tap("sum", rest(b.op1("aten::sum.default", {{"self", x}}, {}, kInt64), {}));
  const std::vector<TraceArgument> along{{"self", x}, {"dim", std::int64_t{0}}};
  b.tap("running", rest(b.op1("aten::cumsum.default", along, {elements}, kInt64), {elements}));
  EXPECT_EQ(lower(b.trace).coverage.opaque, 0u);
  const std::vector<double> running = run(b.trace, "running");
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    total += static_cast<std::uint64_t>(values[i]);
    EXPECT_EQ(running[i], static_cast<double>(modulo(static_cast<std::int64_t>(total), 1000003)));
  }
  EXPECT_EQ(run(b.trace, "sum")[0], running.back());
}

TEST(Integer, SignsBeyondWhatFp64Holds) {
  const Integers values = many();
  const Shape shape{static_cast<std::int64_t>(values.size())};
  for (const char* name : {"aten::neg.default", "aten::abs.default"}) {
    TraceBuilder b;
    const TensorRef made = b.op1(name, {{"self", integers(&b, values)}}, shape, kInt64);
    b.tap("y", b.op1("aten::remainder.Scalar", {{"self", made}, {"other", std::int64_t{1000003}}}, shape, kInt64));
    const std::vector<double> found = run(b.trace, "y");
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool kept = std::string_view(name) == "aten::abs.default" && values[i] >= 0;
      const auto expected = kept ? values[i] : static_cast<std::int64_t>(-static_cast<std::uint64_t>(values[i]));
      EXPECT_EQ(found[i], static_cast<double>(modulo(expected, 1000003))) << name << " " << values[i];
    }
  }
}

std::vector<double> in_format(Format format, const char* op, const std::vector<double>& x, std::int64_t by) {
  TraceBuilder b;
  const TensorRef self = b.leaf({static_cast<std::int64_t>(x.size())}, x, format);
  b.tap("y", b.op1(op, {{"self", self}, {"other", by}}, {static_cast<std::int64_t>(x.size())}, format));
  EXPECT_EQ(lower(b.trace).coverage.opaque, 0u);
  return run(b.trace, "y");
}

TEST(Integer, NarrowFormatsWrapAtTheirWidth) {
  using V = std::vector<double>;
  EXPECT_EQ(in_format(Format::kUInt8, "aten::add.Tensor", {250, 5}, 10), (V{4, 15}));
  EXPECT_EQ(in_format(Format::kUInt8, "aten::sub.Tensor", {3, 200}, 10), (V{249, 190}));
  EXPECT_EQ(in_format(Format::kInt8, "aten::mul.Tensor", {100, -100, 3}, 3), (V{44, -44, 9}));
  EXPECT_EQ(in_format(Format::kInt32, "aten::mul.Tensor", {2147483647, -2147483648.0, 65537}, 2147483647),
            (V{1, -2147483648.0, 2147418111}));
  EXPECT_EQ(in_format(Format::kInt32, "aten::add.Tensor", {2147483647}, 1), (V{-2147483648.0}));
  EXPECT_EQ(in_format(Format::kUInt8, "aten::bitwise_xor.Scalar", {0xf0}, 0xff), (V{0x0f}));
  EXPECT_EQ(in_format(Format::kInt8, "aten::bitwise_and.Scalar", {-1, -128}, 0x7e), (V{0x7e, 0}));
}

TEST(Integer, ACopyIntoANarrowFormatWraps) {
  TraceBuilder b;
  b.tap("y", b.op1("aten::_to_copy.default", {{"self", b.leaf({3}, {256, -1, 70000}, kInt64)}}, {3}, Format::kUInt8));
  EXPECT_EQ(run(b.trace, "y"), (std::vector<double>{0, 255, 112}));
}

TEST(Integer, AProductBeyondWhatIsKnownIsOpaque) {
  TraceBuilder b;
  const TensorRef x = integers(&b, {1LL << 40, 3});
  b.tap("y", b.op1("aten::prod.default", {{"self", x}}, {}, kInt64));
  b.observe(0, {3298534883328});
  EXPECT_EQ(lower(b.trace).coverage.opaque, 0u);  // 3 * 2^40
  TraceBuilder c;
  const TensorRef z = integers(&c, {1LL << 40, 3});
  const TensorRef power = c.op1("aten::pow.Tensor_Scalar", {{"self", z}, {"exponent", std::int64_t{5}}}, {2}, kInt64);
  c.observe(0, {0, 243});
  c.tap("y", power);
  EXPECT_EQ(lower(c.trace).coverage.opaque, 1u);
}

// Whole numbers that a narrower format does not hold are rounded on their way into it.
TEST(Integer, LargeNumbersAreRoundedToFloats) {
  TraceBuilder b;
  const TensorRef x = b.leaf({1}, {16777217}, kInt64), y = b.leaf({1}, {5}, kInt64);
  b.tap("large", b.op1("aten::_to_copy.default", {{"self", x}}, {1}, Format::kFloat32));
  b.tap("small", b.op1("aten::_to_copy.default", {{"self", y}}, {1}, Format::kFloat32));
  const Graph graph = lower(b.trace);
  const auto compute = [&](std::size_t tap) { return graph.nodes[graph.taps[tap].terms[0].node].compute; };
  EXPECT_EQ(compute(0), Format::kFloat64);
  EXPECT_EQ(compute(1), Format::kFloat32);
}

TEST(Integer, NumbersThatAreStoredTakeTheFormat) {
  using V = std::vector<double>;
  TraceBuilder b;
  const auto full = [&](double value, Format format) {
    return b.op1("aten::full.default", {{"fill_value", value}}, {1}, format);
  };
  b.tap("int64", full(3.7, kInt64));
  b.tap("bool", full(0.5, Format::kBool));
  b.tap("uint8", full(-2.0, Format::kUInt8));
  const TensorRef x = b.leaf({2}, {1, 0}, Format::kBool);
  b.tap("filled", b.write("aten::fill_.Scalar", {{"self", x}, {"value", 2.0}}, {{"self", x}})[0]);
  EXPECT_EQ(run(b.trace, "int64"), V{3});
  EXPECT_EQ(run(b.trace, "bool"), V{1});
  EXPECT_EQ(run(b.trace, "uint8"), V{254});
  EXPECT_EQ(run(b.trace, "filled"), (V{1, 1}));
}

}  // namespace
}  // namespace plumbline
