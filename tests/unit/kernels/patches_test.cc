// Products with patches that stay in their image, against the same products with copies of them.
#include "kernels/cpu/patches.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/ball/round.h"
#include "kernels/operations.h"
#include "kernels/primitive/primitive.h"

namespace plumbline {
namespace {

using enum Primitive;

constexpr double kInf = std::numeric_limits<double>::infinity();

// A depthwise convolution: samples, channels, and of each spatial dimension positions, taps, stride and dilation.
struct Geometry {
  std::int64_t samples, channels, height, width, taps, stride, dilation = 1;
  bool together = false;      // All samples are columns of one product.
  bool of_positions = false;  // Positions are the terms of the product, as in the weight's gradient.

  std::int64_t side(std::int64_t positions) const { return (positions - 1) * stride + (taps - 1) * dilation + 1; }
  std::int64_t tap_count() const { return taps * taps; }
  std::int64_t position_count() const { return height * width * (together ? samples : 1); }
  Shape image() const { return {samples, channels, side(height), side(width)}; }
  std::string text() const {
    std::string text;
    for (const std::int64_t x : {samples, channels, height, width, taps, stride, dilation})
      text += std::to_string(x) + " ";
    return text + (together ? "together " : "") + (of_positions ? "of positions" : "");
  }

  Shape lead() const { return together ? Shape{channels} : Shape{samples, channels}; }
  std::int64_t terms() const { return of_positions ? position_count() : tap_count(); }
  std::int64_t columns() const { return of_positions ? tap_count() : position_count(); }

  View patches() const {
    const Shape at = row_major_strides(image());
    View view = together ? View{{channels}, {at[1]}, 0} : View{{samples, channels}, {at[0], at[1]}, 0};
    const auto add = [&](const Shape& sizes, const Shape& strides) {
      view.sizes.insert(view.sizes.end(), sizes.begin(), sizes.end());
      view.strides.insert(view.strides.end(), strides.begin(), strides.end());
    };
    const auto add_positions = [&] {
      if (together) add({samples}, {at[0]});
      add({height, width}, {stride * at[2], stride * at[3]});
    };
    if (of_positions) add_positions();
    add({taps, taps}, {dilation * at[2], dilation * at[3]});
    if (!of_positions) add_positions();
    return view;
  }

  Shape with(std::int64_t rows, std::int64_t columns) const {
    Shape shape = lead();
    shape.insert(shape.end(), {rows, columns});
    return shape;
  }
};

class Patches : public ::testing::TestWithParam<Geometry> {
 protected:
  Array normal(const Shape& shape) {
    Array x = Array::uninitialized(shape);
    for (std::int64_t i = 0; i < x.count(); ++i) x.data()[i] = normal_(rng_);
    return x;
  }

  void SetUp() override {
    image_ = normal(g_.image());
    // A kernel is shared by all samples.
    rows_ = normal(g_.of_positions ? g_.with(1, g_.terms()) : Shape{g_.channels, 1, g_.terms()});
    product_ = g_.with(1, g_.columns());
    given_ = normal(product_);
  }

  Array window() const { return image_.window(g_.patches()); }
  Array copies() const { return window().reshape(g_.with(g_.terms(), g_.columns())); }

  Array evaluate(const Array& patches) const {
    const std::vector<Array> in = {rows_, patches};
    return traits(kMatmul).evaluate({}, product_, in);
  }
  // What goes back to the rows.
  Array to_rows(const Array& patches) const {
    const std::vector<Array> in = {rows_, patches};
    Array found;
    std::vector<Array*> into = {&found, nullptr};
    traits(kMatmul).pull_back({}, in, evaluate(patches), given_, into);
    return found;
  }
  Array to_image_by_copies() const {
    const std::vector<Array> in = {rows_, copies()};
    Array of_copies, found;
    std::vector<Array*> into = {nullptr, &of_copies};
    traits(kMatmul).pull_back({}, in, evaluate(copies()), given_, into);
    Attributes window;
    window.view = g_.patches();
    std::vector<Array*> back = {&found};
    const std::vector<Array> from = {image_};
    traits(kWindow).pull_back(window, from, {}, of_copies.reshape(window.view.sizes), back);
    return found;
  }
  Array to_image() const {
    Array found = Array::zeros(g_.image());
    cpu::add_at_patches(rows_, given_, g_.patches(), found);
    return found;
  }

  static void expect_near(const Array& found, const Array& expected) {
    ASSERT_EQ(found.shape(), expected.shape());
    for (std::int64_t i = 0; i < found.count(); ++i) {
      const double x = found.data()[i], y = expected.data()[i];
      if (std::isfinite(y)) {
        ASSERT_NEAR(x, y, 1e-11) << i;
      } else {
        ASSERT_TRUE(x == y || (std::isnan(x) && std::isnan(y))) << i << ": " << x << ", " << y;
      }
    }
  }

  void expect_all_alike() {
    expect_near(evaluate(window()), evaluate(copies()));
    expect_near(to_rows(window()), to_rows(copies()));
    expect_near(to_image(), to_image_by_copies());
  }

  const Geometry g_ = GetParam();
  std::mt19937_64 rng_{1};
  std::normal_distribution<double> normal_;
  Array image_, rows_, given_;
  Shape product_;
};

TEST_P(Patches, AreReadWhereTheyLieAsTheirCopiesAre) {
  ASSERT_TRUE(cpu::reads_patches(g_.patches(), g_.lead().size(), g_.terms())) << g_.text();
  SCOPED_TRACE(g_.text());
  expect_all_alike();
}

// Loops walk over what lies between the positions, and multiply by zero there.
TEST_P(Patches, WhatIsNotFiniteReachesWhomItMeetsAlone) {
  SCOPED_TRACE(g_.text());
  image_.data()[image_.count() / 2] = kInf;
  image_.data()[image_.count() - 1] = std::nan("");
  expect_all_alike();
  rows_.data()[rows_.count() / 3] = -kInf;
  given_.data()[given_.count() / 3] = kInf;
  expect_all_alike();
}

TEST_P(Patches, TheirBoundHoldsTheSumOfMagnitudesAndNotMuchMore) {
  SCOPED_TRACE(g_.text());
  const Profile& profile = *host_operations().arithmetic.profile;
  const Arithmetic arithmetic{Format::kFloat32, Format::kFloat32, &profile};
  const std::vector<Array> in = {rows_, window()}, copied = {rows_, copies()};
  const Array out = evaluate(copies());
  const Array found = traits(kMatmul).local_error({}, arithmetic, in, out).values;
  const Array above = traits(kMatmul).local_error({}, arithmetic, copied, out).values;
  const auto magnitudes = [](const Array& x) {
    Array result = Array::uninitialized(x.shape());
    const Array from = x.materialize();
    for (std::int64_t i = 0; i < x.count(); ++i) result.data()[i] = std::fabs(from.data()[i]);
    return result;
  };
  const std::vector<Array> absolute = {magnitudes(rows_), magnitudes(copies())};
  const Array sums = traits(kMatmul).evaluate({}, product_, absolute);
  double factor = kInf;  // The bound is one factor times these.
  for (std::int64_t i = 0; i < sums.count(); ++i) factor = std::min(factor, found.data()[i] / sums.data()[i]);
  EXPECT_GE(factor, static_cast<double>(g_.terms() - 1) * 0x1p-24);
  for (std::int64_t i = 0; i < sums.count(); ++i) {
    EXPECT_LE(found.data()[i], factor * sums.data()[i] * (1 + 1e-6)) << i;
    EXPECT_LE(found.data()[i], above.data()[i] * (1 + 1e-6)) << i;
  }
}

TEST_P(Patches, ColumnsAreTheCopies) {
  const std::vector<std::int64_t> drawn = {0, count(product_) - 1, count(product_) / 2};
  const Array found = cpu::columns_of_patches(window(), product_, g_.terms(), drawn), all = copies();
  for (std::size_t d = 0; d < drawn.size(); ++d)
    for (std::int64_t l = 0; l < g_.terms(); ++l)
      EXPECT_EQ(found.data()[static_cast<std::int64_t>(d) * g_.terms() + l],
                all.data()[(drawn[d] / g_.columns() * g_.terms() + l) * g_.columns() + drawn[d] % g_.columns()]);
}

std::vector<Geometry> geometries() {
  std::vector<Geometry> all;
  for (const Geometry& g : {Geometry{2, 3, 9, 11, 3, 1}, Geometry{2, 40, 3, 3, 5, 1}, Geometry{3, 5, 6, 6, 5, 2},
                            Geometry{1, 4, 3, 3, 3, 2}, Geometry{2, 2, 30, 31, 7, 1}, Geometry{2, 2, 9, 8, 3, 1, 3},
                            Geometry{1, 2, 4, 900, 3, 1}, Geometry{2, 1, 48, 48, 3, 1}, Geometry{1, 70, 12, 12, 5, 2}})
    for (const bool together : {false, true})
      for (const bool of_positions : {false, true}) {
        Geometry next = g;
        next.together = together;
        next.of_positions = of_positions;
        all.push_back(next);
      }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Geometries, Patches, ::testing::ValuesIn(geometries()));

// Their sums are split as others are: an element gathers a rounding for each block, not for each term.
TEST(PatchesSum, NoLongerThanABlock) {
  const Geometry g{1, 1, 64, 64, 3, 1, 1, true, true};
  Array image = Array::full(g.image(), 1), rows = Array::full({1, 1, g.terms()}, 1 + 0x1p-50);
  rows.data()[0] = 0x1p52;  // Beside this nothing of what is added to it stays but whole numbers.
  Array out = Array::uninitialized({1, 1, g.columns()});
  cpu::multiply_patches(rows, image.window(g.patches()), out);
  const double exact = 0x1p52 + static_cast<double>(g.terms() - 1);
  const double roundings = 32 + static_cast<double>(g.terms()) / 32;
  for (std::int64_t i = 0; i < out.count(); ++i) EXPECT_NEAR(out.data()[i], exact, roundings);
}

TEST(PatchesTaken, AreThoseThatOverlapAndLieApart) {
  const Geometry g{2, 3, 8, 8, 3, 1};
  const View good = g.patches();
  EXPECT_TRUE(cpu::reads_patches(good, 2, 9));
  EXPECT_FALSE(cpu::reads_patches(good, 2, 8)) << "terms that end within a dimension";
  EXPECT_TRUE(cpu::reads_patches(good, 1, 27)) << "channels that are added up";
  View view = good;
  view.strides[1] = 5;
  EXPECT_FALSE(cpu::reads_patches(view, 2, 9)) << "channels that run into each other";
  view = good;
  view.strides[5] = 0;
  EXPECT_FALSE(cpu::reads_patches(view, 2, 9)) << "one element over and over";
  EXPECT_FALSE(cpu::reads_patches(Geometry{2, 3, 8, 8, 1, 1}.patches(), 2, 1)) << "no taps";
  EXPECT_FALSE(cpu::reads_patches(Geometry{2, 3, 8, 8, 3, 3}.patches(), 2, 9)) << "positions far apart";
  EXPECT_FALSE(cpu::reads_patches(Geometry{2, 3, 1, 2, 3, 1}.patches(), 2, 9)) << "rows of two";
  EXPECT_FALSE(cpu::reads_patches(Geometry{2, 3, 20, 20, 9, 1}.patches(), 2, 81)) << "too many taps on either side";
}

}  // namespace
}  // namespace plumbline
