// The arithmetics that soundness is shown in: compute and result formats under the shipped profiles, and under variants
// of the IEEE one that no shipped profile has.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "kernels/primitive/primitive.h"

namespace plumbline::soundness {

struct Case {
  Format compute, result;
  Profile profile;

  Arithmetic arithmetic() const { return {compute, result, &profile}; }
  std::string name() const;  // "cuda_sm90_fp32_bf16"
};

void PrintTo(const Case& c, std::ostream* to);

// A shipped profile, by name ("cuda-sm90+tf32"). Throws std::runtime_error if there is none.
Profile shipped_profile(const std::string& name);

std::vector<Profile> all_profiles();
std::vector<Case> all_cases();

}  // namespace plumbline::soundness
