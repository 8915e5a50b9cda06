#include "server/profile/profile_registry.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "server/profile/profile_file.h"

namespace plumbline {
namespace {

// What a framework's flags permit beyond a profile: each only widens it.
struct Option {
  const char* name;
  void (*permit)(Profile&);
};

// Sorted by name.
constexpr Option kOptions[] = {
    {"elided", [](Profile& profile) { profile.casts_elided = true; }},
    {"fp16-accumulation",
     [](Profile& profile) {
       Product& product = profile.products[static_cast<int>(ProductClass::kFp16)];
       product.accumulator_bits = traits(Format::kFloat16).precision;
       product.accumulator_exponent_min = traits(Format::kFloat16).exponent_min;
     }},
    {"reduced", [](Profile& profile) { profile.split_k.reduced = true; }},
    {"tf32", [](Profile& profile) { profile.tf32_allowed = true; }},
};

// NAME+B+A -> NAME+A+B, each option once.
std::string canonical(const std::string& name) {
  std::istringstream stream(name);
  std::string base, option;
  std::getline(stream, base, '+');
  std::vector<std::string> options;
  while (std::getline(stream, option, '+')) options.push_back(option);
  std::sort(options.begin(), options.end());
  options.erase(std::unique(options.begin(), options.end()), options.end());
  for (const std::string& item : options) base += "+" + item;
  return base;
}

}  // namespace

ProfileRegistry ProfileRegistry::load(const std::string& directory) {
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  if (error) throw std::runtime_error("profiles directory '" + directory + "': " + error.message());
  ProfileRegistry registry;
  for (const auto& entry : entries) {
    if (entry.path().extension() != ".textproto") continue;
    const Profile profile = read_profile(entry.path().string());
    if (std::find(registry.names_.begin(), registry.names_.end(), profile.name) != registry.names_.end())
      throw std::runtime_error(entry.path().string() + ": profile '" + profile.name + "' is defined twice");
    registry.names_.push_back(profile.name);
    for (unsigned set = 0; set < 1U << std::size(kOptions); ++set) {
      Profile permitted = profile;
      for (std::size_t i = 0; i < std::size(kOptions); ++i) {
        if ((set >> i & 1) == 0) continue;
        kOptions[i].permit(permitted);
        permitted.name += std::string("+") + kOptions[i].name;
      }
      std::string name = permitted.name;
      registry.profiles_.emplace(std::move(name), std::move(permitted));
    }
  }
  if (registry.names_.empty())
    throw std::runtime_error("profiles directory '" + directory + "': expected *.textproto files, found none");
  std::sort(registry.names_.begin(), registry.names_.end());
  return registry;
}

const Profile* ProfileRegistry::find(const std::string& name) const {
  const auto found = profiles_.find(canonical(name));
  return found == profiles_.end() ? nullptr : &found->second;
}

std::vector<std::string> ProfileRegistry::names() const { return names_; }

std::vector<std::string> ProfileRegistry::options() {
  std::vector<std::string> names;
  for (const Option& option : kOptions) names.emplace_back(option.name);
  return names;
}

}  // namespace plumbline
