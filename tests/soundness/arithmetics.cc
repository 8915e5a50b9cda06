#include "tests/soundness/arithmetics.h"

#include <algorithm>
#include <stdexcept>

#include "server/profile/profile_registry.h"

namespace plumbline::soundness {
namespace {

const ProfileRegistry& shipped() {
  static const ProfileRegistry registry = ProfileRegistry::load(PLUMBLINE_PROFILES);
  return registry;
}

}  // namespace

std::string Case::name() const {
  std::string text = profile.name + "_" + std::string(traits(compute).name) + "_" + std::string(traits(result).name);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '-' || c == '+'; }, '_');
  return text;
}

void PrintTo(const Case& c, std::ostream* to) { *to << c.name(); }

Profile shipped_profile(const std::string& name) {
  const Profile* const profile = shipped().find(name);
  if (profile == nullptr) throw std::runtime_error("no profile '" + name + "'");
  return *profile;
}

std::vector<Profile> all_profiles() {
  std::vector<Profile> profiles;
  for (const std::string& name : shipped().names()) profiles.push_back(shipped_profile(name));
  profiles.push_back(shipped_profile("cuda-sm90+tf32"));
  const auto variant = [&](const char* name, const auto& change) {
    Profile profile = ieee();
    profile.name = name;
    change(profile);
    profiles.push_back(profile);
  };
  variant("flushing", [](Profile& p) { p.flush_subnormals = true; });
  variant("toward-zero", [](Profile& p) { p.rounding = Rounding::kTowardZero; });
  variant("stochastic", [](Profile& p) { p.rounding = Rounding::kStochastic; });
  variant("two-pass", [](Profile& p) { p.variance = Variance::kTwoPass; });
  variant("one-pass", [](Profile& p) { p.variance = Variance::kOnePass; });
  variant("correctly-rounded", [](Profile& p) {
    for (FunctionError& error : p.functions) error.ulp = error.absolute = 0;
  });
  variant("tree", [](Profile& p) { p.sum.tree = true; });
  variant("volta", [](Profile& p) {
    for (Product& product : p.products) product.k = 4, product.c = 2.5;
  });
  return profiles;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Profile& profile : all_profiles()) {
    cases.push_back({Format::kFloat32, Format::kFloat32, profile});
    cases.push_back({Format::kFloat32, Format::kBFloat16, profile});
    cases.push_back({Format::kFloat32, Format::kFloat16, profile});
    if (profile.name.starts_with("cuda") || profile.name == "volta") continue;
    cases.push_back({Format::kFloat64, Format::kFloat64, profile});
    cases.push_back({Format::kFloat64, Format::kFloat32, profile});
  }
  return cases;
}

}  // namespace plumbline::soundness
