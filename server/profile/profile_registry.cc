#include "server/profile/profile_registry.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "server/profile/profile_file.h"

namespace plumbline {
namespace {

// What a framework's flags permit beyond a profile, and what was measured beyond it: each only widens it.
struct Option {
  const char* name;
  void (*permit)(Profile&);
};

// Sorted by name.
constexpr Option kOptions[] = {
    {"elided", [](Profile& profile) { profile.casts_elided = true; }},
    {"flush",
     [](Profile& profile) {
       profile.flush_subnormals = true;
       for (Product& product : profile.products) product.flushes = true;
     }},
    {"fp16-accumulation",
     [](Profile& profile) {
       Product& product = profile.products[static_cast<int>(ProductClass::kFp16)];
       product.accumulator_bits = traits(Format::kFloat16).precision;
       product.accumulator_exponent_min = traits(Format::kFloat16).exponent_min;
     }},
    {"reduced", [](Profile& profile) { profile.split_k.reduced = true; }},
    {"tf32", [](Profile& profile) { profile.tf32_allowed = profile.tf32_convolutions = true; }},
    {"tf32-convolutions", [](Profile& profile) { profile.tf32_convolutions = true; }},
};

constexpr double kUlpMax = 4096;  // That of the widest profile.

// "exp=3.5": that function's ULPs are at least so many. False: no such option.
bool permit_function(const std::string& option, Profile* profile) {
  const auto equals = option.find('=');
  if (equals == std::string::npos) return false;
  const std::optional<Function> function = function_named(option.substr(0, equals));
  double ulp = 0;
  const char* const end = option.data() + option.size();
  const auto read = std::from_chars(option.data() + equals + 1, end, ulp);
  if (!function || read.ec != std::errc() || read.ptr != end || !(ulp > 0 && ulp <= kUlpMax)) return false;
  FunctionError& error = profile->functions[static_cast<int>(*function)];
  error.ulp = std::max(error.ulp, ulp);
  return true;
}

bool permit(const std::string& option, Profile* profile) {
  const auto* const known = std::find_if(std::begin(kOptions), std::end(kOptions),
                                         [&](const Option& candidate) { return option == candidate.name; });
  if (known == std::end(kOptions)) return permit_function(option, profile);
  known->permit(*profile);
  return true;
}

// NAME+B+A -> NAME, {A, B}, each option once.
std::pair<std::string, std::set<std::string>> parts_of(const std::string& name) {
  std::istringstream stream(name);
  std::string base, option;
  std::getline(stream, base, '+');
  std::set<std::string> options;
  while (std::getline(stream, option, '+')) options.insert(option);
  return {std::move(base), std::move(options)};
}

}  // namespace

ProfileRegistry ProfileRegistry::load(const std::string& directory) {
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  if (error) throw std::runtime_error("profiles directory '" + directory + "': " + error.message());
  ProfileRegistry registry;
  for (const auto& entry : entries) {
    if (entry.path().extension() != ".textproto") continue;
    Profile profile = read_profile(entry.path().string());
    std::string name = profile.name;
    if (!registry.profiles_.emplace(name, std::move(profile)).second)
      throw std::runtime_error(entry.path().string() + ": profile '" + name + "' is defined twice");
  }
  if (registry.profiles_.empty())
    throw std::runtime_error("profiles directory '" + directory + "': expected *.textproto files, found none");
  return registry;
}

const Profile* ProfileRegistry::find(const std::string& name) const {
  const auto [base_name, options] = parts_of(name);
  const auto base = profiles_.find(base_name);
  if (base == profiles_.end()) return nullptr;
  if (options.empty()) return &base->second;
  Profile permitted = base->second;
  for (const std::string& option : options) {
    if (!permit(option, &permitted)) return nullptr;
    permitted.name += "+" + option;
  }
  const std::lock_guard lock(made_->mutex);
  if (made_->profiles.size() >= kMadeMax && !made_->profiles.contains(permitted.name)) return nullptr;
  std::string key = permitted.name;
  return &made_->profiles.emplace(std::move(key), std::move(permitted)).first->second;
}

std::vector<std::string> ProfileRegistry::names() const {
  std::vector<std::string> names;
  for (const auto& [name, profile] : profiles_) names.push_back(name);
  return names;
}

std::vector<std::string> ProfileRegistry::options() {
  std::vector<std::string> names;
  for (const Option& option : kOptions) names.emplace_back(option.name);
  names.emplace_back("FUNCTION=ULP");
  return names;
}

}  // namespace plumbline
