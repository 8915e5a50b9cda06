// The primitives that nvcc compiles against those of the host's compiler: on the host, where no device is needed, bit
// by bit; on a device (label gpu) within what each is bounded by. Device tests are skipped where there is none, and run
// once more with products in slices (cuda_fixture.h).
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <new>
#include <optional>
#include <set>

#include "kernels/cuda/device.h"
#include "kernels/cuda/measure.h"
#include "kernels/sums.h"
#include "tests/unit/kernels/checks_cases.h"
#include "tests/unit/kernels/comparison_cases.h"
#include "tests/unit/kernels/cuda_cases.h"
#include "tests/unit/kernels/cuda_fixture.h"
#include "tests/unit/kernels/product_above_cases.h"
#include "tests/unit/kernels/projection_cases.h"
#include "tests/unit/kernels/pullback_cases.h"
#include "tests/unit/kernels/sharing_cases.h"

namespace plumbline {
namespace {

using testing::Answer;
using testing::Case;
using testing::Kept;
using testing::Unpooled;

std::vector<Case> all_cases() {
  std::vector<Case> result = testing::cases(21);
  for (const auto& more : {testing::large_cases(22), testing::random_cases(23, 8)})
    result.insert(result.end(), more.begin(), more.end());
  std::erase_if(result, [](const Case& c) { return c.primitive == Primitive::kLeaf; });
  return result;
}

// The host's memory, and nvcc's table: what it compiled for the host runs.
class HostDevice : public Device {
 public:
  std::string name() const override { return "host"; }
  std::int64_t total_bytes() const override { return 0; }
  void* allocate(std::size_t bytes) override { return ::operator new (bytes, std::align_val_t{256}); }
  void free(void* memory, std::size_t) noexcept override { ::operator delete (memory, std::align_val_t{256}); }
  std::optional<DeviceError> take_error() override { return {}; }
  const Operations& operations() const override { return cuda::operations(); }

 protected:
  void synchronise() override { idle(); }
};

bool equal(double a, double b) { return a == b || (a != a && b != b); }

::testing::AssertionResult same(const Array& a, const Array& b) {
  if (!a || !b) {
    if (!a && !b) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "one of the two is empty";
  }
  if (a.shape() != b.shape()) return ::testing::AssertionFailure() << "shapes differ";
  const Array x = a.materialize(), y = b.materialize();
  for (std::int64_t i = 0; i < x.count(); ++i) {
    if (!equal(x.data()[i], y.data()[i]))
      return ::testing::AssertionFailure() << i << ": " << x.data()[i] << " against " << y.data()[i];
  }
  return ::testing::AssertionSuccess();
}

void expect_identical(const Answer& a, const Answer& b) {
  EXPECT_TRUE(same(a.value, b.value)) << "value";
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (std::size_t i = 0; i < a.gradients.size(); ++i)
    EXPECT_TRUE(same(a.gradients[i], b.gradients[i])) << "gradient " << i;
  EXPECT_TRUE(same(a.error.values, b.error.values)) << "error";
  EXPECT_TRUE(same(a.radius.values, b.radius.values)) << "radius";
  EXPECT_TRUE(equal(a.noise.bias, b.noise.bias)) << a.noise.bias << " against " << b.noise.bias;
  EXPECT_TRUE(equal(a.noise.squares, b.noise.squares)) << a.noise.squares << " against " << b.noise.squares;
  ASSERT_EQ(a.chained.values.size(), b.chained.values.size());
  for (std::size_t e = 0; e < a.chained.values.size(); ++e) {
    EXPECT_TRUE(same(a.chained.values[e], b.chained.values[e])) << "end of a chain";
    EXPECT_TRUE(same(a.chained.radii[e].values, b.chained.radii[e].values)) << "radius of a chain's end";
    EXPECT_EQ(a.chained.largest.get()[e].radius, b.chained.largest.get()[e].radius);
    EXPECT_EQ(a.chained.largest.get()[e].value, b.chained.largest.get()[e].value);
  }
}

TEST(CudaSource, ServesEveryPrimitive) {
  std::set<Primitive> applied;
  for (const Case& c : all_cases()) applied.insert(c.primitive);
  for (const PrimitiveTraits& row : cuda::operations().primitives) {
    const PrimitiveTraits& host = traits(row.primitive);
    EXPECT_EQ(row.name, host.name);
    EXPECT_NE(row.evaluate, host.evaluate) << row.name << " is the host's own";
    EXPECT_TRUE(row.primitive == Primitive::kLeaf || applied.contains(row.primitive)) << row.name;
  }
}

// Functions, sums and their order are the same; so are the results.
TEST(CudaSource, CompiledForTheHostIsTheHostsOwnBitByBit) {
  HostDevice device;
  Unpooled memory(device);
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    const Answer host = testing::answer(c);
    const DeviceScope scope(device, memory);
    expect_identical(testing::answer(c), host);
  }
}

TEST(CudaSource, SumsAreTheHostsOwnBitByBit) {
  std::mt19937_64 rng(5);
  const Array x = testing::random_array(rng, {123, 457}, -1, 1), y = testing::random_array(rng, {123, 457}, -1, 1);
  const Operations &host = host_operations(), &cuda = cuda::operations();
  EXPECT_EQ(cuda.dot(x, y).get(), host.dot(x, y).get());
  EXPECT_EQ(cuda.dot_difference(x, y, x).get(), host.dot_difference(x, y, x).get());
  EXPECT_EQ(cuda.norm2(x).get(), host.norm2(x).get());
  EXPECT_EQ(cuda.norm_max(x).get(), host.norm_max(x).get());
  EXPECT_EQ(cuda.weighted_bounds({x, y}, {y}).get(), host.weighted_bounds({x, y}, {y}).get());
}

bool same(const Comparison& a, const Comparison& b, double tolerance) {
  const auto near = [tolerance](double x, double y) { return std::fabs(x - y) <= tolerance * std::fabs(y); };
  return a.finite == b.finite && near(a.radius_squares, b.radius_squares) && near(a.centre_squares, b.centre_squares) &&
         near(a.excess_squares, b.excess_squares) && near(a.worst, b.worst) && a.element == b.element &&
         a.centre == b.centre && a.value == b.value && near(a.radius, b.radius) &&
         std::fabs(a.least_chance - b.least_chance) <= tolerance;
}

// Up to the order of sums, which hangs on the width of the processor's vectors.
TEST(CudaSource, ComparisonsAreTheHostsOwn) {
  const testing::Compared c = testing::compared(9, 30000, 12345);
  const auto& [host, cuda] = std::pair(host_operations().compare, cuda::operations().compare);
  EXPECT_TRUE(same(cuda(c.centres, c.values, c.count, c.slack), host(c.centres, c.values, c.count, c.slack), 0x1p-36));
}

TEST(CudaSource, ADeviceThatIsNotThereIsNamed) {
  std::string error;
  EXPECT_EQ(cuda::open(4711, &error), nullptr);
  EXPECT_FALSE(error.empty());
}

// Elements that differ by more than both backends together may be off by: of the value, and of all else.
struct Differences {
  int values = 0, others = 0;
};

// |a - b| <= absolute + relative |b|, infinities and NaN alike.
int differing(const Array& a, const Array& b, double relative, double absolute) {
  if (!a || !b) return static_cast<bool>(a) != static_cast<bool>(b) ? 1 : 0;
  if (a.count() != b.count()) return 1;
  const Array x = a.materialize(), y = b.materialize();
  const double *const xp = x.data(), *const yp = y.data();
  int found = 0;
  for (std::int64_t i = 0; i < x.count(); ++i)
    if (!equal(xp[i], yp[i]) && !(std::fabs(xp[i] - yp[i]) <= absolute + relative * std::fabs(yp[i]))) ++found;
  return found;
}

Differences differences(const Case& c, const Answer& device, const Answer& host) {
  Differences comparison;
  // Each value may be off by its own backend's bound.
  const PrimitiveTraits& row = traits(c.primitive);
  const Array x = device.value, y = host.value;
  const Bound of_host = row.local_error(c.attributes, host_operations().arithmetic, c.inputs, y);
  const Bound of_device = row.local_error(c.attributes, cuda::operations().arithmetic, c.inputs, y);
  const Array h = of_host ? of_host.values.expand(y.shape()).materialize() : Array();
  const Array d = of_device ? of_device.values.expand(y.shape()).materialize() : Array();
  for (std::int64_t i = 0; i < y.count(); ++i) {
    const double limit = (h ? h.data()[i] : 0) + (d ? d.data()[i] : 0);
    if (!equal(x.data()[i], y.data()[i]) && !(std::fabs(x.data()[i] - y.data()[i]) <= limit)) ++comparison.values;
  }
  // Adjoints carry no bound: roundings of what their sums are made of. Bounds are inflated by 2^-40 and more; an
  // enclosure is a difference of values, each off by some ULP.
  for (std::size_t i = 0; i < host.gradients.size(); ++i) {
    const double largest = host.gradients[i] ? norm_max(host.gradients[i]).get() : 0;
    comparison.others +=
        differing(device.gradients[i], host.gradients[i], 0x1p-30, largest < HUGE_VAL ? largest * 0x1p-36 : 0);
  }
  const double scale = norm_max(y);
  const double bound = c.primitive == Primitive::kMatmul ? 0x1p-5 : 0x1p-24;  // In bf16 there.
  comparison.others += differing(device.error.values, host.error.values, bound, 0);
  comparison.others +=
      differing(device.radius.values, host.radius.values, bound, scale < HUGE_VAL ? scale * 0x1p-44 : 0);
  for (std::size_t e = 0; e < host.chained.values.size(); ++e) {
    // Either backend's functions: the arrays' and the chain's are the same, but for small powers.
    const Array sign = Array::scalar(e == 0 ? 1 : -1);
    const std::vector<Array> factors = {device.value.reshape({count(c.shape)}), sign};
    const Array expected = traits(Primitive::kMul).evaluate({}, {count(c.shape)}, factors);
    comparison.others += differing(device.chained.values[e], expected, 0x1p-50, 0);
    comparison.others += differing(device.chained.radii[e].values, host.chained.radii[e].values, 0x1p-24,
                                   scale < HUGE_VAL ? scale * 0x1p-44 : 0);
    const auto size = [](std::int64_t bits) { return Array::scalar(std::bit_cast<double>(bits)); };
    comparison.others +=
        differing(size(device.chained.largest.get()[e].value), size(host.chained.largest.get()[e].value), 0x1p-50, 0);
  }
  comparison.others += differing(Array::scalar(device.noise.bias), Array::scalar(host.noise.bias), 0x1p-20, 1e-300);
  comparison.others +=
      differing(Array::scalar(device.noise.squares), Array::scalar(host.noise.squares), 0x1p-20, 1e-300);
  return comparison;
}

class Cuda : public testing::OnDevice {};

// What tests/report gpu reads.
TEST_F(Cuda, AgreesWithTheHost) {
  std::set<Primitive> primitives, differing;
  int violations = 0;
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    const Answer host = testing::answer(c);
    Answer device;
    {
      const DeviceScope scope(*device_, *memory_);
      device = testing::answer(c);
      expect_identical(testing::answer(c), device);  // From run to run.
    }
    const Differences found = differences(c, device, host);
    primitives.insert(c.primitive);
    violations += found.values;
    if (found.values == 0 && found.others == 0) continue;
    differing.insert(c.primitive);
    ADD_FAILURE() << found.values << " values and " << found.others << " bounds or adjoints differ";
  }
  EXPECT_FALSE(device_->take_error().has_value());
  RecordProperty("primitives", static_cast<int>(primitives.size()));
  RecordProperty("agree", static_cast<int>(primitives.size() - differing.size()));
  RecordProperty("violations", violations);
}

// All that is stored, in more parts than there are buffers for, and in one element.
TEST_F(Cuda, DecodesAsTheHost) {
  std::mt19937_64 rng(11);
  std::vector<std::uint64_t> bytes(5 << 18);
  for (std::uint64_t& word : bytes) word = rng();
  for (int f = 0; f <= static_cast<int>(Format::kTf32); ++f) {
    const auto format = static_cast<Format>(f);
    if (traits(format).bytes == 0 || format == Format::kTf32) continue;
    SCOPED_TRACE(traits(format).name);
    for (const std::size_t used : {bytes.size() * sizeof(bytes[0]), static_cast<std::size_t>(traits(format).bytes)}) {
      const auto count = static_cast<std::int64_t>(used) / traits(format).bytes;
      Array host = Array::uninitialized({count});
      host_operations().decode(host, format, bytes.data());
      const DeviceScope scope(*device_, *memory_);
      Array device = Array::uninitialized({count});
      current_operations().decode(device, format, bytes.data());
      EXPECT_TRUE(same(device, host));
    }
  }
  EXPECT_FALSE(device_->take_error().has_value());
}

TEST_F(Cuda, ComparisonsAgreeWithTheHost) {
  for (const std::int64_t count : {1, 255, 1001, 3000000})
    for (const std::int64_t broken : {std::int64_t{-2}, count / 2}) {
      SCOPED_TRACE(count);
      const testing::Compared c = testing::compared(10, count, broken);
      const Comparison host = compare(c.centres, c.values, c.count, c.slack);
      const DeviceScope scope(*device_, *memory_);
      EXPECT_TRUE(same(compare(c.centres, c.values, c.count, c.slack), host, 0x1p-36));
    }
  EXPECT_FALSE(device_->take_error().has_value());
}

TEST_F(Cuda, PullsChainsBackAsTheHost) {
  testing::for_each_chain(33, [&](const testing::PulledChain& chain) {
    const testing::Pulled host = testing::pulled_in_one_pass(chain, 1);
    const DeviceScope scope(*device_, *memory_);
    testing::expect_near(testing::pulled_in_one_pass(chain, 1), host);
  });
  EXPECT_FALSE(device_->take_error().has_value());
}

TEST_F(Cuda, ChecksAsTheHost) {
  for (const Format format : testing::kChecked) {
    SCOPED_TRACE(traits(format).name);
    const testing::CheckedArrays arrays(format, 4);
    const testing::Checked host = testing::checked(arrays);
    const DeviceScope scope(*device_, *memory_);
    testing::expect_near(testing::checked(arrays), host);
  }
  EXPECT_FALSE(device_->take_error().has_value());
}

TEST_F(Cuda, MergesSharedEventsAsTheHost) {
  for (const testing::Sharing& of : testing::sharings(12)) {
    const Array host = testing::merged_by_operations(of);
    const DeviceScope scope(*device_, *memory_);
    EXPECT_EQ(differing(testing::merged_by_operations(of), host, 0x1p-40, 0x1p-40), 0)
        << of.operands.size() << " operands, rows of " << of.row;
  }
  EXPECT_FALSE(device_->take_error().has_value());
}

// How cuBLAS sums is not told; that its calls keep the bound of any order of kPiece terms is asked here, where half of
// the terms lie just below what an accumulator in a narrower format would keep.
TEST_F(Cuda, ProductsKeepTheirBound) {
  constexpr std::int64_t kTerms = 4096;
  std::vector<double> left(kTerms), right(kTerms, 1.0);
  for (std::int64_t i = 0; i < kTerms; ++i) left[static_cast<std::size_t>(i)] = i == 0 ? 1.0 : 0x1p-53 * (1 + 0x1p-20);
  const std::vector<Array> in = {testing::array_of({1, kTerms}, left), testing::array_of({kTerms, 1}, right)};
  const DeviceScope scope(*device_, *memory_);
  const Array out = traits(Primitive::kMatmul).evaluate({}, {1, 1}, in);
  const Bound bound = traits(Primitive::kMatmul).local_error({}, device_->operations().arithmetic, in, out);
  const double exact = 1 + (kTerms - 1) * (0x1p-53 * (1 + 0x1p-20));
  EXPECT_LE(std::fabs(out.item() - exact), bound.values.item() + 0x1p-53);
}

TEST_F(Cuda, ProductsOfBoundsAreAboveAndNear) {
  const DeviceScope scope(*device_, *memory_);
  testing::expect_products_above();
  EXPECT_FALSE(device_->take_error().has_value());
}

TEST_F(Cuda, TellsRowsThatRoundingDoesNotExplain) {
  const DeviceScope scope(*device_, *memory_);
  testing::expect_outlying_rows_told();
  EXPECT_FALSE(device_->take_error().has_value());
}

TEST_F(Cuda, OutOfMemoryIsNoCrash) {
  const DeviceScope scope(*device_, *memory_);
  EXPECT_THROW(Array::uninitialized({device_->total_bytes()}), std::bad_alloc);
  EXPECT_EQ(Array::full({4}, 2.0).item(), 2.0);  // It goes on.
}

double seconds_of(Device& device, const std::function<void()>& work) {
  double least = HUGE_VAL;
  for (int i = 0; i < 5; ++i) {
    device.wait();
    const auto begin = std::chrono::steady_clock::now();
    work();
    device.wait();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return least;
}

TEST_F(Cuda, Speed) {
  const DeviceScope scope(*device_, *memory_);
  const auto figure = [&](const char* name, double value) { RecordProperty(name, std::to_string(value)); };
  {
    constexpr std::int64_t kCount = std::int64_t{1} << 26;
    const std::vector<Array> in = {Array::full({kCount}, 1.5), Array::full({kCount}, 2.5)};
    const double seconds = seconds_of(*device_, [&] { traits(Primitive::kMul).evaluate({}, {kCount}, in); });
    figure("elementwise_bw_fraction", 3 * 8.0 * kCount / seconds / cuda::copy_bandwidth(*device_));
  }
  {
    // An update's centre and radius, as a chain: it reads three arrays and writes two, whatever it computes between.
    constexpr std::int64_t kElements = std::int64_t{1} << 25;
    using enum Primitive;
    Chain chain({{false, false}, {false, false}, {false, false}, {true, false}, {true, false}}, true);
    const Profile profile = ieee();
    const auto add = [&](Primitive primitive, std::vector<std::size_t> read) {
      chain.add(primitive, {}, read, {Format::kFloat32, Format::kFloat32, &profile});
      return 4 + chain.steps().size();
    };
    const std::size_t weight = 0, first = 1, second = 2, rate = 3, tiny = 4;
    const std::size_t root = add(kAdd, {add(kSqrt, {add(kMul, {second, rate})}), tiny});
    chain.ask({add(kSub, {add(kMul, {weight, rate}), add(kMul, {add(kDiv, {first, root}), rate})})});
    std::vector<ChainInput> inputs;
    for (const double value : {1.0, 0.5, 0.25}) inputs.push_back({Array::full({kElements}, value).materialize()});
    for (const double value : {0.99, 1e-8}) inputs.push_back({Array::scalar(value)});
    const double seconds = seconds_of(*device_, [&] { run(chain, inputs, kElements); });
    figure("chain_bw_fraction", 5 * 8.0 * kElements / seconds / cuda::copy_bandwidth(*device_));
  }
  constexpr std::int64_t kSide = 4096;
  {
    // An fp64 product in slices, of the native one: below 1 on devices with few fp64 units.
    const auto product_seconds = [&](std::int64_t sliced_work) {
      std::string reason;
      const std::unique_ptr<Device> device = cuda::open(0, &reason, sliced_work);
      if (!device) return 0.0;
      Kept memory(*device);
      const DeviceScope there(*device, memory);
      const std::vector<Array> in = {Array::full({kSide, kSide}, 1.5), Array::full({kSide, kSide}, 0.5)};
      return seconds_of(*device, [&] { traits(Primitive::kMatmul).evaluate({}, {kSide, kSide}, in); });
    };
    figure("sliced_product_ratio", product_seconds(1) / product_seconds(0));
  }
  // A product's audit, element by element, its exact centre and its bound; by rows, its projections.
  const std::vector<Array> in = {Array::full({kSide, kSide}, 1.5), Array::full({kSide, kSide}, 0.5)};
  const Profile profile = ieee();
  const Array out = traits(Primitive::kMatmul).evaluate({}, {kSide, kSide}, in);
  for (const auto& [audit, checksum, format] :
       {std::tuple{"fp32_matmul_audit_ratio", "checksum_ratio", Format::kFloat32},
        std::tuple{"bf16_matmul_audit_ratio", "bf16_checksum_ratio", Format::kBFloat16}}) {
    const Arithmetic arithmetic{Format::kFloat32, format, &profile, format};
    const double product = cuda::product_seconds(*device_, format, kSide);
    const double elements = seconds_of(*device_, [&] {
      const Array centre = traits(Primitive::kMatmul).evaluate({}, {kSide, kSide}, in);
      traits(Primitive::kMatmul).local_error({}, arithmetic, in, centre);
    });
    const double rows = seconds_of(*device_, [&] { EXPECT_EQ(outlying_rows(arithmetic, in, out, 1), 0); });
    figure(audit, elements / product);
    figure(checksum, rows / product);
  }
  EXPECT_FALSE(device_->take_error().has_value());
}

}  // namespace
}  // namespace plumbline
