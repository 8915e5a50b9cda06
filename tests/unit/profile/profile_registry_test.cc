#include "server/profile/profile_registry.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace plumbline {
namespace {

class ProfileFiles : public testing::Test {
 protected:
  ProfileFiles() : directory_(testing::TempDir() + "profiles-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(directory_);
  }
  ~ProfileFiles() override { std::filesystem::remove_all(directory_); }

  // Message of the error that loading this text gives; empty if it loads.
  std::string error_of(const std::string& text) {
    std::ofstream(directory_ + "/p.textproto") << text;
    try {
      ProfileRegistry::load(directory_);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }
  std::string directory_;
};

TEST(Profiles, ShippedOnesLoadAndLeaveNothingOut) {
  const ProfileRegistry registry = ProfileRegistry::load(PLUMBLINE_PROFILES);
  for (const std::string name : {"ieee", "pytorch-cpu"}) {
    const Profile* profile = registry.find(name);
    ASSERT_NE(profile, nullptr) << name;
    EXPECT_TRUE(profile->widened.empty()) << name;
  }
  EXPECT_EQ(registry.find("no-such"), nullptr);
}

// The kernels' tests measure against the same figures without reading files.
TEST(Profiles, ShippedFiguresAreThoseThatTheKernelsAreTestedWith) {
  const ProfileRegistry registry = ProfileRegistry::load(PLUMBLINE_PROFILES);
  for (const Profile& tested : {ieee(), pytorch_cpu()}) {
    const Profile* shipped = registry.find(tested.name);
    ASSERT_NE(shipped, nullptr);
    for (int f = 0; f < static_cast<int>(Function::kCount); ++f) {
      EXPECT_EQ(shipped->functions[f].ulp, tested.functions[f].ulp) << tested.name << " function " << f;
      EXPECT_EQ(shipped->functions[f].absolute, tested.functions[f].absolute) << tested.name << " function " << f;
    }
    EXPECT_EQ(shipped->sum.k, tested.sum.k);
    EXPECT_EQ(shipped->sum.c, tested.sum.c);
    EXPECT_EQ(shipped->product.k, tested.product.k);
    EXPECT_EQ(shipped->product.c, tested.product.c);
    EXPECT_EQ(shipped->flush_subnormals, tested.flush_subnormals);
  }
}

TEST_F(ProfileFiles, WhatIsLeftOutIsWidenedAndNamed) {
  ASSERT_EQ(error_of("name: \"p\" functions { function: \"exp\" ulp: 1 } sum { k: 1 factor: 1 }"), "");
  const ProfileRegistry registry = ProfileRegistry::load(directory_);
  const Profile* profile = registry.find("p");
  EXPECT_EQ(profile->functions[static_cast<int>(Function::kExp)].ulp, 1);
  EXPECT_GE(profile->functions[static_cast<int>(Function::kErf)].ulp, 4);
  EXPECT_NE(std::find(profile->widened.begin(), profile->widened.end(), "product"), profile->widened.end());
  EXPECT_EQ(std::find(profile->widened.begin(), profile->widened.end(), "sum"), profile->widened.end());
}

TEST_F(ProfileFiles, ErrorsNameFileLineAndField) {
  EXPECT_NE(error_of("name: \"p\"\nno_such_field: 1").find("line 2"), std::string::npos);
  EXPECT_NE(error_of("name: \"p\" functions { function: \"sinc\" ulp: 1 }").find("'sinc'"), std::string::npos);
  EXPECT_NE(error_of("name: \"p\" functions { function: \"exp\" ulp: -1 }").find("'exp'"), std::string::npos);
  EXPECT_NE(error_of("name: \"p\" functions { function: \"exp\" ulp: nan }").find("'exp'"), std::string::npos);
  EXPECT_NE(error_of("name: \"p\" functions { function: \"exp\" } functions { function: \"exp\" }").find("twice"),
            std::string::npos);
  EXPECT_NE(error_of("name: \"p\" sum { k: 0 factor: 1 }").find("'sum'"), std::string::npos);
  EXPECT_NE(error_of("").find("'name'"), std::string::npos);
  EXPECT_THROW(ProfileRegistry::load(directory_ + "/none"), std::runtime_error);
}

}  // namespace
}  // namespace plumbline
