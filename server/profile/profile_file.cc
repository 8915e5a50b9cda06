#include "server/profile/profile_file.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "plumbline/v1/profile.pb.h"

namespace plumbline {
namespace {

using google::protobuf::TextFormat;

constexpr std::pair<const char*, Function> kFunctions[] = {{"exp", Function::kExp},
                                                           {"log", Function::kLog},
                                                           {"tanh", Function::kTanh},
                                                           {"erf", Function::kErf},
                                                           {"sin", Function::kSin},
                                                           {"cos", Function::kCos},
                                                           {"pow", Function::kPow},
                                                           {"rsqrt", Function::kRsqrt},
                                                           {"divide", Function::kDivide},
                                                           {"sqrt", Function::kSqrt},
                                                           {"expm1", Function::kExpm1},
                                                           {"log1p", Function::kLog1p},
                                                           {"sigmoid", Function::kSigmoid},
                                                           {"atan2", Function::kAtan2},
                                                           {"fused_exp", Function::kFusedExp},
                                                           {"divide_by_number", Function::kDivideByNumber}};
static_assert(std::size(kFunctions) == static_cast<std::size_t>(Function::kCount));

constexpr std::pair<const char*, ProductClass> kClasses[] = {
    {"fp64", ProductClass::kFp64}, {"fp32", ProductClass::kFp32}, {"tf32", ProductClass::kTf32},
    {"fp16", ProductClass::kFp16}, {"bf16", ProductClass::kBf16}, {"fp8", ProductClass::kFp8}};
static_assert(std::size(kClasses) == static_cast<std::size_t>(ProductClass::kCount));

// An unknown field is taken for the widest that is legal. A function has the crudest documented approximation in
// hardware (2^-11 relative, tanh.approx) and the largest absolute error measured in a library; division and root are as
// under fast flags. A product is that of a unit that nobody describes (kernels/README.md, "Local errors"), one of fp8
// has Hopper's 13 bits and is never promoted, and a split sum has partial sums in the result's format.
constexpr FunctionError kWidestFunction{.ulp = 4096, .absolute = 1e-6};
constexpr FunctionError kWidestDivide{.ulp = 2}, kWidestSqrt{.ulp = 1};
constexpr Accumulation kWidestSum{16, 4};
constexpr Product kWidestProduct{.k = 16, .c = 4, .flushes = true, .inputs_truncated = true};
constexpr Product kWidestFp8{.k = 32, .c = 4, .accumulator_bits = 13, .flushes = true};
constexpr SplitK kWidestSplit{32, true};

class ErrorText : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    text << " line " << line + 1 << ", column " << column + 1 << ": " << message << ";";
  }
  std::ostringstream text;
};

// The checks of one file; messages name its line.
class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {
    std::ifstream stream(file);
    const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
    if (!stream) throw std::runtime_error(file + ": cannot be read");
    TextFormat::Parser parser;
    ErrorText errors;
    parser.RecordErrorsTo(&errors);
    parser.WriteLocationsTo(&lines_);
    if (!parser.ParseFromString(text, &message_)) throw std::runtime_error(file + ":" + errors.text.str());
  }

  Profile profile() {
    if (message_.name().empty()) fail("name", -1, "expected a name, found none");
    if (message_.name().find('+') != std::string::npos)
      fail("name", -1, "expected a name without '+', found '" + message_.name() + "'");
    profile_.name = message_.name();
    read_functions();
    read_products();
    read_rest();
    return std::move(profile_);
  }

 private:
  [[noreturn]] void fail(const std::string& field, int index, const std::string& what) const {
    const auto* descriptor = message_.GetDescriptor()->FindFieldByName(field);
    const int line = lines_.GetLocation(descriptor, index).line;
    throw std::runtime_error(file_ + ": " + (line >= 0 ? "line " + std::to_string(line + 1) + ": " : "") + "field '" +
                             field + "': " + what);
  }

  void widen(const std::string& field) { profile_.widened.push_back(field); }

  void read_functions() {
    bool known[std::size(kFunctions)] = {};
    for (FunctionError& function : profile_.functions) function = kWidestFunction;
    for (const Function function : {Function::kDivide, Function::kDivideByNumber})
      profile_.functions[static_cast<int>(function)] = kWidestDivide;
    profile_.functions[static_cast<int>(Function::kSqrt)] = kWidestSqrt;
    for (int i = 0; i < message_.functions_size(); ++i) {
      const auto& entry = message_.functions(i);
      const auto check = [&](bool right, const std::string& what) {
        if (!right) fail("functions", i, "'" + entry.function() + "': " + what);
      };
      const std::optional<Function> function = function_named(entry.function());
      check(function.has_value(), "a function's name was expected");
      const auto index = static_cast<std::size_t>(*function);
      check(!known[index], "is stated twice");
      known[index] = true;
      for (const double error : {entry.ulp(), entry.absolute(), entry.ulp_slope()})
        check(error >= 0 && std::isfinite(error), "expected finite errors >= 0, found " + std::to_string(error));
      const bool unary = *function != Function::kPow && *function != Function::kAtan2 &&
                         *function != Function::kDivide && *function != Function::kDivideByNumber;
      check(unary || (entry.ulp_slope() == 0 && !entry.has_argument_max()), "has no single argument to depend on");
      FunctionError& to = profile_.functions[index];
      to = {.ulp = entry.ulp(), .absolute = entry.absolute(), .slope = entry.ulp_slope()};
      if (entry.has_low()) to.low = entry.low();
      if (entry.has_high()) to.high = entry.high();
      check(to.low <= to.high,
            "expected low <= high, found " + std::to_string(to.low) + " and " + std::to_string(to.high));
      if (!entry.has_argument_max()) continue;
      to.argument_max = entry.argument_max();
      check(to.argument_max > 0, "expected argument_max > 0, found " + std::to_string(to.argument_max));
      check(std::isfinite(to.high - to.low), "argument_max promises a range: expected finite low and high, found none");
    }
    // The common ones, unless others are told.
    for (const auto& [own, common] :
         {std::pair{Function::kFusedExp, Function::kExp}, std::pair{Function::kDivideByNumber, Function::kDivide}}) {
      if (!std::exchange(known[static_cast<int>(own)], true))
        profile_.functions[static_cast<int>(own)] = profile_.functions[static_cast<int>(common)];
    }
    for (const auto& [name, function] : kFunctions)
      if (!known[static_cast<std::size_t>(function)]) widen(std::string("functions.") + name);
  }

  void read_products() {
    bool known[std::size(kClasses)] = {};
    for (Product& product : profile_.products) product = kWidestProduct;
    profile_.products[static_cast<int>(ProductClass::kFp8)] = kWidestFp8;
    for (int i = 0; i < message_.products_size(); ++i) {
      const auto& entry = message_.products(i);
      const auto check = [&](bool right, const std::string& what) {
        if (!right) fail("products", i, "'" + entry.inputs() + "': " + what);
      };
      const auto* row = std::find_if(std::begin(kClasses), std::end(kClasses),
                                     [&](const auto& candidate) { return entry.inputs() == candidate.first; });
      check(row != std::end(kClasses), "expected one of fp64 fp32 tf32 fp16 bf16 fp8");
      const auto index = static_cast<std::size_t>(row->second);
      check(!known[index], "is stated twice");
      known[index] = true;
      check_accumulation("products", i, entry.k(), entry.factor());
      check(!entry.inputs_truncated() || row->second == ProductClass::kTf32, "inputs_truncated belongs to tf32 alone");
      check(entry.promote_every() == 0 || entry.promote_every() >= entry.k(),
            "expected promote_every of at least k = " + std::to_string(entry.k()) + ", found " +
                std::to_string(entry.promote_every()));
      check(!entry.has_accumulator_bits() || (entry.accumulator_bits() >= 2 && entry.accumulator_bits() <= 53),
            "expected accumulator_bits in [2, 53], found " + std::to_string(entry.accumulator_bits()));
      profile_.products[index] = {.k = entry.k(),
                                  .c = entry.factor(),
                                  .accumulator_bits = entry.accumulator_bits(),
                                  .promote_every = entry.promote_every(),
                                  .flushes = entry.flushes(),
                                  .inputs_truncated = entry.inputs_truncated()};
    }
    profile_.tf32_allowed = profile_.tf32_convolutions = !message_.has_tf32_allowed() || message_.tf32_allowed();
    if (!message_.has_tf32_allowed()) widen("tf32_allowed");
    for (const auto& [name, kind] : kClasses)
      if (!known[static_cast<std::size_t>(kind)]) widen(std::string("products.") + name);
  }

  void check_accumulation(const std::string& field, int index, int k, double factor) const {
    if (k < 1 || !(factor > 0) || !std::isfinite(factor))
      fail(field, index,
           "expected k >= 1 and a positive factor, found k = " + std::to_string(k) +
               ", factor = " + std::to_string(factor));
  }

  void read_rest() {
    profile_.sum = kWidestSum;
    if (message_.has_sum()) {
      check_accumulation("sum", -1, message_.sum().k(), message_.sum().factor());
      profile_.sum = {message_.sum().k(), message_.sum().factor()};
    } else {
      widen("sum");
    }
    profile_.split_k = kWidestSplit;
    if (message_.has_split_k()) {
      const auto& split = message_.split_k();
      if (split.parts() < 1) fail("split_k", -1, "expected parts >= 1, found " + std::to_string(split.parts()));
      if (split.parts() == 1 && split.reduced()) fail("split_k", -1, "expected parts > 1 where reduced, found 1");
      profile_.split_k = {split.parts(), split.reduced()};
    } else {
      widen("split_k");
    }
    profile_.flush_subnormals = !message_.has_flush_subnormals() || message_.flush_subnormals();
    if (!message_.has_flush_subnormals()) widen("flush_subnormals");
    profile_.narrow_numbers = !message_.has_narrow_numbers() || message_.narrow_numbers();
    if (!message_.has_narrow_numbers()) widen("narrow_numbers");
    profile_.casts_elided = !message_.has_casts_elided() || message_.casts_elided();
    if (!message_.has_casts_elided()) widen("casts_elided");
    switch (message_.rounding()) {
      case v1::DeviceProfile::NEAREST:
        profile_.rounding = Rounding::kNearest;
        break;
      case v1::DeviceProfile::TOWARD_ZERO:
        profile_.rounding = Rounding::kTowardZero;
        break;
      case v1::DeviceProfile::STOCHASTIC:
        profile_.rounding = Rounding::kStochastic;
        break;
      default:  // Either neighbour: stochastic.
        profile_.rounding = Rounding::kStochastic;
        widen("rounding");
    }
    switch (message_.variance()) {
      case v1::DeviceProfile::TWO_PASS:
        profile_.variance = Variance::kTwoPass;
        break;
      case v1::DeviceProfile::WELFORD:
        profile_.variance = Variance::kWelford;
        break;
      case v1::DeviceProfile::CHAN:
        profile_.variance = Variance::kChan;
        break;
      case v1::DeviceProfile::ONE_PASS:
        profile_.variance = Variance::kOnePass;
        break;
      case v1::DeviceProfile::STABLE:
        profile_.variance = Variance::kStable;
        break;
      default:
        profile_.variance = Variance::kStable;
        widen("variance");
    }
  }

  const std::string file_;
  v1::DeviceProfile message_;
  TextFormat::ParseInfoTree lines_;
  Profile profile_;
};

}  // namespace

std::optional<Function> function_named(std::string_view name) {
  for (const auto& [known, function] : kFunctions)
    if (name == known) return function;
  return std::nullopt;
}

Profile read_profile(const std::string& file) { return Reader(file).profile(); }

}  // namespace plumbline
