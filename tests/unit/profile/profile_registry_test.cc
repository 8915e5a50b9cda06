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
  EXPECT_EQ(registry.names(),
            (std::vector<std::string>{"ascend-910", "cuda-fastmath", "cuda-sm80", "cuda-sm90", "ieee", "pytorch-cpu",
                                      "pytorch-cpu-amx", "pytorch-cpu-avx2", "pytorch-cpu-avx512", "unknown"}));
  for (const std::string& name : registry.names()) {
    const Profile* profile = registry.find(name);
    ASSERT_NE(profile, nullptr) << name;
    EXPECT_EQ(profile->widened.empty(), name != "ascend-910" && name != "unknown") << name;
  }
  EXPECT_EQ(registry.find("no-such"), nullptr);
}

// The kernels' tests measure against the same figures without reading files.
TEST(Profiles, ShippedFiguresAreThoseThatTheKernelsAreTestedWith) {
  const ProfileRegistry registry = ProfileRegistry::load(PLUMBLINE_PROFILES);
  for (const Profile& tested : {ieee(), pytorch_cpu()}) {
    const Profile* shipped = registry.find(tested.name);
    ASSERT_NE(shipped, nullptr);
    for (int f = 0; f < static_cast<int>(Function::kCount); ++f)
      EXPECT_EQ(shipped->functions[f], tested.functions[f]) << tested.name << " function " << f;
    for (int p = 0; p < static_cast<int>(ProductClass::kCount); ++p)
      EXPECT_EQ(shipped->products[p], tested.products[p]) << tested.name << " product " << p;
    EXPECT_EQ(shipped->sum, tested.sum);
    EXPECT_EQ(shipped->split_k, tested.split_k);
    EXPECT_EQ(shipped->tf32_allowed, tested.tf32_allowed);
    EXPECT_EQ(shipped->tf32_convolutions, tested.tf32_convolutions);
    EXPECT_EQ(shipped->rounding, tested.rounding);
    EXPECT_EQ(shipped->flush_subnormals, tested.flush_subnormals);
    EXPECT_EQ(shipped->variance, tested.variance);
    EXPECT_EQ(shipped->casts_elided, tested.casts_elided);
    EXPECT_EQ(shipped->narrow_numbers, tested.narrow_numbers);
  }
}

TEST(Profiles, MatrixUnitsHaveTheirFigures) {
  const ProfileRegistry registry = ProfileRegistry::load(PLUMBLINE_PROFILES);
  const auto product = [&](const char* name, ProductClass kind) {
    return registry.find(name)->products[static_cast<int>(kind)];
  };
  EXPECT_EQ(product("cuda-sm90", ProductClass::kBf16), (Product{.k = 16, .c = 0.625}));
  EXPECT_EQ(product("cuda-sm90", ProductClass::kTf32), (Product{.k = 8, .c = 0.75, .inputs_truncated = true}));
  EXPECT_EQ(product("cuda-sm90", ProductClass::kFp8), (Product{.k = 32, .c = 1.0625, .accumulator_bits = 13}));
  EXPECT_EQ(product("cuda-sm80", ProductClass::kFp16), (Product{.k = 8, .c = 1.25}));
  EXPECT_EQ(product("ascend-910", ProductClass::kBf16).k, 16);
  EXPECT_EQ(product("ascend-910", ProductClass::kBf16).c, 4);
  const FunctionError cos = registry.find("ascend-910")->functions[static_cast<int>(Function::kCos)];
  EXPECT_LE(cos.low, -1.000004);
  EXPECT_GE(69 * unit_roundoff(Format::kFloat32), 4e-6);
  EXPECT_EQ(registry.find("ieee")->functions[static_cast<int>(Function::kCos)].low, -1);
}

TEST(Profiles, OptionsWidenAndComeInAnyOrder) {
  const ProfileRegistry registry = ProfileRegistry::load(PLUMBLINE_PROFILES);
  EXPECT_FALSE(registry.find("cuda-sm90")->tf32_allowed);
  const Profile* both = registry.find("cuda-sm90+tf32+reduced");
  ASSERT_NE(both, nullptr);
  EXPECT_EQ(both, registry.find("cuda-sm90+reduced+tf32"));
  EXPECT_TRUE(both->tf32_allowed && both->tf32_convolutions && both->split_k.reduced);
  const Profile* convolutions = registry.find("cuda-sm90+tf32-convolutions");
  EXPECT_TRUE(convolutions->tf32_convolutions && !convolutions->tf32_allowed);
  EXPECT_FALSE(both->casts_elided);
  EXPECT_TRUE(both->narrow_numbers);
  EXPECT_FALSE(registry.find("pytorch-cpu-avx2")->narrow_numbers);
  EXPECT_TRUE(registry.find("pytorch-cpu+elided")->casts_elided);
  EXPECT_EQ(
      registry.find("cuda-sm90+fp16-accumulation")->products[static_cast<int>(ProductClass::kFp16)].accumulator_bits,
      11);
  EXPECT_TRUE(registry.find("pytorch-cpu-avx2+flush")->flush_subnormals);
  const auto exp_ulp = [&](const std::string& name) {
    return registry.find(name)->functions[static_cast<int>(Function::kExp)].ulp;
  };
  EXPECT_EQ(exp_ulp("pytorch-cpu-avx2+exp=7.5"), 7.5);
  EXPECT_EQ(exp_ulp("pytorch-cpu-avx2+exp=0.5"), exp_ulp("pytorch-cpu-avx2"));  // Never narrower.
  EXPECT_EQ(registry.find("pytorch-cpu-avx2+flush+exp=7.5")->name, "pytorch-cpu-avx2+exp=7.5+flush");
  for (const char* wrong : {"+exp", "+exp=", "+exp=-1", "+exp=nan", "+exp=1e9", "+expo=2", "+=2", "+flush=1"})
    EXPECT_EQ(registry.find(std::string("pytorch-cpu-avx2") + wrong), nullptr) << wrong;
  EXPECT_EQ(registry.find("cuda-sm90+tf33"), nullptr);
  EXPECT_EQ(registry.find("+tf32"), nullptr);
  EXPECT_EQ(registry.find(""), nullptr);
}

TEST_F(ProfileFiles, WhatIsLeftOutIsWidenedAndNamed) {
  ASSERT_EQ(error_of("name: \"p\" functions { function: \"exp\" ulp: 1 } sum { k: 1 factor: 1 }"), "");
  const ProfileRegistry registry = ProfileRegistry::load(directory_);
  const Profile* profile = registry.find("p");
  EXPECT_EQ(profile->functions[static_cast<int>(Function::kExp)].ulp, 1);
  EXPECT_GE(profile->functions[static_cast<int>(Function::kErf)].ulp, 4);
  for (const std::string field : {"functions.cos", "products.bf16", "split_k", "tf32_allowed", "rounding",
                                  "flush_subnormals", "variance", "casts_elided", "narrow_numbers"})
    EXPECT_EQ(std::count(profile->widened.begin(), profile->widened.end(), field), 1) << field;
  for (const std::string field : {"functions.exp", "sum"})
    EXPECT_EQ(std::count(profile->widened.begin(), profile->widened.end(), field), 0) << field;
}

// Whatever a file may state, the widest is no narrower.
TEST_F(ProfileFiles, WidestIsNoNarrowerThanWhatIsShipped) {
  ASSERT_EQ(error_of("name: \"p\""), "");
  const Profile widest = *ProfileRegistry::load(directory_).find("p");
  const ProfileRegistry shipped = ProfileRegistry::load(PLUMBLINE_PROFILES);
  for (const std::string& name : shipped.names()) {
    const Profile* profile = shipped.find(name);
    for (int f = 0; f < static_cast<int>(Function::kCount); ++f) {
      EXPECT_GE(widest.functions[f].ulp, profile->functions[f].ulp) << name << " function " << f;
      EXPECT_LE(widest.functions[f].low, profile->functions[f].low) << name << " function " << f;
    }
    for (int p = 0; p < static_cast<int>(ProductClass::kCount); ++p)
      EXPECT_GE(widest.products[p].c, profile->products[p].c) << name << " product " << p;
    EXPECT_GE(widest.split_k.parts, profile->split_k.parts) << name;
  }
}

TEST_F(ProfileFiles, ErrorsNameFileLineAndField) {
  const auto expect = [&](const std::string& text, const std::vector<std::string>& parts) {
    const std::string error = error_of(text);
    for (const std::string& part : parts) EXPECT_NE(error.find(part), std::string::npos) << text << ": " << error;
    EXPECT_NE(error.find("p.textproto"), std::string::npos) << error;
  };
  expect("name: \"p\"\nno_such_field: 1", {"line 2", "no_such_field"});
  expect("name: \"p\"\nname: \"q\"", {"line 2", "name"});
  expect("name: \"p\"\nrounding: UP", {"line 2", "UP"});
  expect("", {"'name'", "found none"});
  expect("\nname: \"p+tf32\"", {"line 2", "'p+tf32'"});
  expect("name: \"p\"\n\nfunctions { function: \"sinc\" ulp: 1 }", {"line 3", "'functions'", "'sinc'"});
  expect("name: \"p\"\nfunctions { function: \"exp\" ulp: -1 }", {"line 2", "'exp'"});
  expect("name: \"p\"\nfunctions { function: \"exp\" ulp: nan }", {"line 2", "'exp'"});
  expect("name: \"p\"\nfunctions { function: \"exp\" }\nfunctions { function: \"exp\" }", {"line 3", "twice"});
  expect("name: \"p\"\nsum { k: 0 factor: 1 }", {"line 2", "'sum'", "found k = 0"});
  expect("name: \"p\"\nfunctions { function: \"cos\" low: 1 high: -1 }", {"line 2", "low <= high"});
  expect("name: \"p\"\nfunctions { function: \"cos\" argument_max: 3 }", {"line 2", "argument_max"});
  expect("name: \"p\"\nfunctions { function: \"pow\" ulp_slope: 3 }", {"line 2", "'pow'"});
  expect("name: \"p\"\nproducts { inputs: \"fp12\" k: 1 factor: 1 }", {"line 2", "'fp12'"});
  expect("name: \"p\"\nproducts { inputs: \"bf16\" k: 1 factor: 1 }\nproducts { inputs: \"bf16\" k: 1 factor: 1 }",
         {"line 3", "twice"});
  expect("name: \"p\"\nproducts { inputs: \"bf16\" k: 1 factor: 1 inputs_truncated: true }", {"line 2", "tf32 alone"});
  expect("name: \"p\"\nproducts { inputs: \"fp8\" k: 32 factor: 1 promote_every: 16 }", {"line 2", "promote_every"});
  expect("name: \"p\"\nproducts { inputs: \"fp8\" k: 32 factor: 1 accumulator_bits: 60 }", {"line 2", "found 60"});
  expect("name: \"p\"\nsplit_k { parts: 1 reduced: true }", {"line 2", "'split_k'"});
  expect("name: \"p\"\nsplit_k { }", {"line 2", "found 0"});
  EXPECT_THROW(ProfileRegistry::load(directory_ + "/none"), std::runtime_error);
}

}  // namespace
}  // namespace plumbline
