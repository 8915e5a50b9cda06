// Device profiles, in text.
#include <cmath>
#include <stdexcept>

#include "server/profile/profile_file.h"
#include "tests/fuzz/memory_file.h"

namespace plumbline::fuzz {

PLUMBLINE_FUZZ_TARGET(profile) {
  const MemoryFile file(input);
  Profile profile;
  try {
    profile = read_profile(file.path());
  } catch (const std::runtime_error& refused) {
    return require(*refused.what() != '\0', "a refusal says what was expected");
  }
  require(!profile.name.empty(), "a profile has a name");
  require(profile.sum.k >= 1 && profile.sum.c > 0, "a sum's bound is positive");
  for (const auto& product : profile.products) {
    require(product.k >= 1 && product.c > 0 && std::isfinite(product.c), "a product's bound is positive");
  }
  for (const auto& function : profile.functions) require(function.ulp >= 0, "no function is better than exact");
}

}  // namespace plumbline::fuzz
