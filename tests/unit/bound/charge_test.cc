#include "server/bound/envelope/charge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/primitive/error_model.h"
#include "server/bound/replay/arithmetic.h"
#include "tests/unit/bound/graph_builder.h"

namespace plumbline {
namespace {

using test::GraphBuilder;
using test::normal;

constexpr std::int64_t kRows = 300, kColumns = 257;

Array array(const Shape& shape, const std::vector<double>& values) {
  Array result = Array::uninitialized(shape);
  std::ranges::copy(values, result.data());
  return result;
}

// One node of a graph, and what it is charged.
struct OneNode {
  OneNode(Primitive primitive, const std::vector<Array>& operands) : inputs(operands) {
    std::vector<NodeId> leaves;
    for (const Array& operand : inputs) leaves.push_back(builder.leaf(operand.shape(), {}));
    id = builder.op(primitive, leaves, {kRows, kColumns});
    value = traits(primitive).evaluate({}, {kRows, kColumns}, inputs);
  }
  Charge charge(const Array& cotangent, double squares) const {
    const Arithmetic target = arithmetic_of(builder.graph, builder.graph.nodes[id], profile);
    const NodeRounding rounding(builder.graph, id, {inputs, value}, &target, nullptr);
    return rounding.charges({{0, cotangent, true, false}})({&squares, 1}).front().target;
  }
  Bound error() const { return traits_of().local_error({}, arithmetic(), inputs, value); }
  Noise noise(const Array& cotangent) const {
    return traits_of().charges({}, arithmetic(), inputs, value, error(), {&cotangent, 1}).get().front().noise;
  }
  const PrimitiveTraits& traits_of() const { return traits(builder.graph.nodes[id].primitive); }
  Arithmetic arithmetic() const { return arithmetic_of(builder.graph, builder.graph.nodes[id], profile); }

  GraphBuilder builder;
  Profile profile = pytorch_cpu();
  NodeId id = 0;
  std::vector<Array> inputs;
  Array value;
};

// A device in the host's memory, which counts what is copied from it.
class CountingDevice : public Device, public MemoryResource {
 public:
  std::string name() const override { return "counting"; }
  std::int64_t total_bytes() const override { return limit(); }
  std::int64_t limit() const override { return std::int64_t{1} << 30; }
  void* allocate(std::size_t bytes) override { return ::operator new (bytes, std::align_val_t{256}); }
  void free(void* memory, std::size_t) noexcept override { ::operator delete (memory, std::align_val_t{256}); }
  void fetch(const void* from, std::size_t bytes, void* to) override {
    fetched += bytes;
    Device::fetch(from, bytes, to);
  }
  std::optional<DeviceError> take_error() override { return {}; }
  const Operations& operations() const override { return host_operations(); }

  std::size_t fetched = 0;

 protected:
  void synchronise() override { idle(); }
};

// Elements with equal operands err alike. However little the node matters beside others, its squares are no smaller
// than those of the events, and what they have more matters as little.
TEST(NodeRounding, ChargesNoLessThanSharedEvents) {
  std::mt19937 rng(2);
  const std::int64_t n = kRows * kColumns;
  for (const std::int64_t distinct : {std::int64_t{1}, std::int64_t{40}, std::int64_t{5000}, n}) {
    std::vector<double> x = normal(rng, distinct);
    for (std::int64_t i = distinct; i < n; ++i) x.push_back(x[rng() % static_cast<std::uint64_t>(distinct)]);
    const OneNode node(Primitive::kSigmoid, {array({kRows, kColumns}, x)});
    std::vector<double> a = normal(rng, n);
    for (double& one : a) one = std::fabs(one);
    const Array cotangent = array({kRows, kColumns}, a);
    const SharedEvents shared = shared_events({node.builder.graph, node.id, node.inputs, node.value});
    const double squares = node.noise(merge_shared(cotangent, shared)).squares;
    for (const double others : {0.0, 1e3, 1e6, 1e12, 1e20}) {
      const double charged = node.charge(cotangent, others * squares).noise.squares;
      EXPECT_GE(charged, squares * (1 - 1e-9)) << distinct << " values beside " << others;
      EXPECT_LE(charged, squares * std::max(4.0, others)) << distinct << " values beside " << others;
    }
  }
}

// What shared events may add to our own replay's roundings is of their size, not of the target's.
TEST(NodeRounding, OwnRoundingsStayTheirOwnSize) {
  std::mt19937 rng(3);
  const std::int64_t n = kRows * kColumns;
  const OneNode node(Primitive::kSigmoid, {array({kRows, kColumns}, normal(rng, n))});
  const Array cotangent = array({kRows, kColumns}, normal(rng, n));
  const Arithmetic target = node.arithmetic(), own = replay_arithmetic();
  const NodeRounding rounding(node.builder.graph, node.id, {node.inputs, node.value}, &target, &own);
  for (const double others : {0.0, 1e-3, 1e9}) {
    const Charges charges = rounding.charges({{0, cotangent, true, true}})({&others, 1}).front();
    EXPECT_GT(charges.own.noise.squares, 0);
    EXPECT_LE(charges.own.noise.squares, charges.own.whole * charges.own.whole * (1 + 1e-9)) << others;
    EXPECT_LT(charges.own.whole, 1e-7 * charges.target.whole);
  }
}

// A product's error by one arithmetic as a share of that by another is no less than what it is by itself, whatever the
// elements are, and where they are ordinary no more.
TEST(NodeRounding, AShareOfAProductsErrorHoldsTheErrorItself) {
  std::mt19937 rng(5);
  Profile tf32 = pytorch_cpu(), flushed = pytorch_cpu();
  tf32.tf32_allowed = true;
  flushed.flush_subnormals = true;
  const Profile profiles[] = {ieee(), pytorch_cpu(), tf32, flushed};
  const std::vector<double> special = {0, -0.0, 1e-320, 1e-45, 1e-39, 1e-300, 1e30, 1e160, 1e300};
  for (const Profile& profile : profiles)
    for (const std::int64_t k : {1, 3, 64, 65, 300})
      for (const bool begun : {false, true})
        for (const double rare : {0.0, 0.2}) {
          const auto drawn = [&](const Shape& shape) {
            std::vector<double> x = normal(rng, count(shape));
            for (double& one : x)
              if (std::uniform_real_distribution<double>()(rng) < rare) one = special[rng() % special.size()];
            return array(shape, x);
          };
          std::vector<Array> in = {drawn({7, k}), drawn({k, 9})};
          if (begun) in.insert(in.end(), {drawn({7, 9}), Array::scalar(0.5)});
          const Arithmetic target{Format::kFloat32, Format::kFloat32, &profile}, &own = replay_arithmetic();
          const PrimitiveTraits& product = traits(Primitive::kMatmul);
          const Array value = product.evaluate({}, {7, 9}, in);
          const std::optional<double> share = primitive::share_of_product_error({}, own, target, in);
          ASSERT_TRUE(share);
          const Array wide = product.local_error({}, target, in, value).values,
                      error = product.local_error({}, own, in, value).values;
          for (std::int64_t i = 0; i < error.count(); ++i) {
            EXPECT_GE(wide.data()[i] * *share, error.data()[i]);
            if (rare == 0 && !profile.flush_subnormals) {
              EXPECT_LE(wide.data()[i] * *share, error.data()[i] * (1 + 1e-5));
            }
          }
        }
  const Arithmetic narrow{Format::kFloat32, Format::kBFloat16, &profiles[0]};
  const std::vector<Array> in = {Array::full({2, 3}, 1), Array::full({3, 2}, 1)};
  EXPECT_FALSE(primitive::share_of_product_error({}, replay_arithmetic(), narrow, in));
}

// So what we are charged of a product beside the target is what we are charged alone, asked in whatever way.
TEST(NodeRounding, ProductsOfBothAreChargedAsOfEach) {
  std::mt19937 rng(6);
  const OneNode node(Primitive::kMatmul,
                     {array({kRows, 70}, normal(rng, kRows * 70)), array({70, kColumns}, normal(rng, 70 * kColumns))});
  const Array cotangent = array({kRows, kColumns}, normal(rng, kRows * kColumns));
  const Arithmetic target = node.arithmetic(), own = replay_arithmetic();
  const auto rounding = [&](const Arithmetic* of_target) {
    return NodeRounding(node.builder.graph, node.id, {node.inputs, node.value}, of_target, &own);
  };
  const NodeRounding both = rounding(&target), alone = rounding(nullptr);
  ASSERT_TRUE(both.of_target() && both.of_own() && alone.of_own());
  const double squares[] = {0, 0, 0};
  for (const bool by_chance : {false, true})
    for (const bool of_target : {false, true}) {
      const auto charged = [&](const NodeRounding& by, bool asks_target) {
        return by.charges({{0, cotangent, asks_target, by_chance}})(std::span(squares, 1)).front().own;
      };
      const Charge beside = charged(both, of_target), by_itself = charged(alone, false);
      EXPECT_GE(beside.whole, by_itself.whole * (1 - 1e-12));
      EXPECT_NEAR(beside.whole, by_itself.whole, 1e-5 * by_itself.whole);
      if (!by_chance) continue;
      EXPECT_NEAR(beside.noise.squares, by_itself.noise.squares, 1e-5 * by_itself.noise.squares);
    }
  // Different functionals of one node do not mix.
  const std::vector<Charges> mixed = both.charges(
      {{0, cotangent, true, false}, {1, cotangent, false, false}, {2, cotangent, true, true}})(std::span(squares, 3));
  for (const Charges& one : mixed) EXPECT_NEAR(one.own.whole, mixed[0].own.whole, 1e-5 * mixed[0].own.whole);
  EXPECT_GT(mixed[0].own.whole, 0);
}

// What a device computed is charged as on the host, and no array leaves it for that.
TEST(NodeRounding, OfADeviceIsChargedAsOnTheHost) {
  CountingDevice device;
  for (const std::int64_t distinct : {std::int64_t{40}, kRows * kColumns}) {
    const auto charged = [&] {
      std::mt19937 rng(4);
      std::vector<double> x = normal(rng, distinct);
      while (std::ssize(x) < kRows * kColumns) x.push_back(x[rng() % static_cast<std::uint64_t>(distinct)]);
      const OneNode node(Primitive::kMul, {array({kRows, kColumns}, x), array({kColumns}, normal(rng, kColumns))});
      return node.charge(array({kRows, kColumns}, normal(rng, kRows * kColumns)), 0);
    };
    const Charge host = charged();
    const DeviceScope scope(device, device);
    const Charge found = charged();
    EXPECT_NEAR(found.whole, host.whole, 1e-5 * host.whole);
    EXPECT_NEAR(found.noise.bias, host.noise.bias, 1e-9 * host.whole);
    EXPECT_NEAR(found.noise.squares, host.noise.squares, 0.3 * host.noise.squares);  // Drawn there, found here.
    EXPECT_EQ(device.fetched, 0U);
  }
}

}  // namespace
}  // namespace plumbline
