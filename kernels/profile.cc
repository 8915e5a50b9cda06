#include "kernels/profile.h"

namespace plumbline {

Profile ieee() {
  Profile profile;
  profile.name = "ieee";
  for (FunctionError& error : profile.functions) error = {1, 0};
  profile.functions[static_cast<int>(Function::kDivide)] = {0, 0};
  profile.functions[static_cast<int>(Function::kSqrt)] = {0, 0};
  profile.functions[static_cast<int>(Function::kRsqrt)] = {2, 0};
  profile.functions[static_cast<int>(Function::kSigmoid)] = {4, 0};
  return profile;
}

Profile pytorch_cpu() {
  Profile profile = ieee();
  profile.name = "pytorch-cpu";
  profile.functions[static_cast<int>(Function::kErf)] = {1, 5.6e-7};
  return profile;
}

}  // namespace plumbline
