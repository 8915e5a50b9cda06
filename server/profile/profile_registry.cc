#include "server/profile/profile_registry.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "plumbline/v1/profile.pb.h"

namespace plumbline {
namespace {

constexpr std::pair<const char*, Function> kFunctions[] = {
    {"exp", Function::kExp},        {"log", Function::kLog},   {"tanh", Function::kTanh},   {"erf", Function::kErf},
    {"sin", Function::kSin},        {"cos", Function::kCos},   {"pow", Function::kPow},     {"rsqrt", Function::kRsqrt},
    {"divide", Function::kDivide},  {"sqrt", Function::kSqrt}, {"expm1", Function::kExpm1}, {"log1p", Function::kLog1p},
    {"sigmoid", Function::kSigmoid}};
static_assert(std::size(kFunctions) == static_cast<std::size_t>(Function::kCount));

// Widest that any profile of ours has stated: what an unknown field is taken for.
constexpr FunctionError kWidestFunction{16, 1e-6};
constexpr Accumulation kWidestAccumulation{16, 4};

class ErrorText : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    text << " line " << line + 1 << ", column " << column + 1 << ": " << message << ";";
  }
  std::ostringstream text;
};

Accumulation accumulation_of(const v1::DeviceProfile::Accumulation& message, const std::string& field,
                             const std::string& file) {
  if (message.k() < 1 || !(message.factor() > 0) || !std::isfinite(message.factor()))
    throw std::runtime_error(file + ": field '" + field + "': expected k >= 1 and a positive factor, found k = " +
                             std::to_string(message.k()) + ", factor = " + std::to_string(message.factor()));
  return {message.k(), message.factor()};
}

Profile read(const std::string& file) {
  std::ifstream stream(file);
  const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream) throw std::runtime_error(file + ": cannot be read");
  v1::DeviceProfile message;
  google::protobuf::TextFormat::Parser parser;
  ErrorText errors;
  parser.RecordErrorsTo(&errors);
  if (!parser.ParseFromString(text, &message)) throw std::runtime_error(file + ":" + errors.text.str());
  if (message.name().empty()) throw std::runtime_error(file + ": field 'name': expected a name, found none");

  Profile profile;
  profile.name = message.name();
  bool known[std::size(kFunctions)] = {};
  for (FunctionError& function : profile.functions) function = kWidestFunction;
  for (const auto& entry : message.functions()) {
    const auto* row = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                   [&](const auto& candidate) { return entry.function() == candidate.first; });
    if (row == std::end(kFunctions))
      throw std::runtime_error(file + ": field 'functions': unknown function '" + entry.function() + "'");
    if (!(entry.ulp() >= 0) || !(entry.absolute() >= 0) || std::isinf(entry.ulp()) || std::isinf(entry.absolute()))
      throw std::runtime_error(file + ": function '" + entry.function() + "': expected finite errors >= 0");
    const auto index = static_cast<std::size_t>(row->second);
    if (known[index]) throw std::runtime_error(file + ": function '" + entry.function() + "' is stated twice");
    known[index] = true;
    profile.functions[index] = {entry.ulp(), entry.absolute()};
  }
  for (const auto& [name, function] : kFunctions)
    if (!known[static_cast<std::size_t>(function)]) profile.widened.push_back(std::string("functions.") + name);
  if (message.has_sum()) {
    profile.sum = accumulation_of(message.sum(), "sum", file);
  } else {
    profile.sum = kWidestAccumulation;
    profile.widened.push_back("sum");
  }
  if (message.has_product()) {
    profile.product = accumulation_of(message.product(), "product", file);
  } else {
    profile.product = kWidestAccumulation;
    profile.widened.push_back("product");
  }
  profile.flush_subnormals = !message.has_flush_subnormals() || message.flush_subnormals();
  if (!message.has_flush_subnormals()) profile.widened.push_back("flush_subnormals");
  return profile;
}

}  // namespace

ProfileRegistry ProfileRegistry::load(const std::string& directory) {
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  if (error) throw std::runtime_error("profiles directory '" + directory + "': " + error.message());
  ProfileRegistry registry;
  for (const auto& entry : entries) {
    if (entry.path().extension() != ".textproto") continue;
    Profile profile = read(entry.path().string());
    const std::string name = profile.name;
    if (!registry.profiles_.emplace(name, std::move(profile)).second)
      throw std::runtime_error(entry.path().string() + ": profile '" + name + "' is defined twice");
  }
  if (registry.profiles_.empty())
    throw std::runtime_error("profiles directory '" + directory + "': expected *.textproto files, found none");
  return registry;
}

const Profile* ProfileRegistry::find(const std::string& name) const {
  const auto found = profiles_.find(name);
  return found == profiles_.end() ? nullptr : &found->second;
}

std::vector<std::string> ProfileRegistry::names() const {
  std::vector<std::string> result;
  for (const auto& [name, profile] : profiles_) result.push_back(name);
  return result;
}

}  // namespace plumbline
