#include "ml/image/resize.h"

#include "ATen/ATen.h"
#include "c10/util/Exception.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::ml {
namespace {

using ::testing::ElementsAre;

TEST(ResizeTest, AnImageOfTheSizeStaysAsItIs) {
  const at::Tensor image = at::randint(0, 256, {3, 8, 8}).to(at::kByte);
  EXPECT_TRUE(at::equal(ResizeAndCrop(image, 8), image));
}

TEST(ResizeTest, TakesTheMiddleOfTheLongerSide) {
  const at::Tensor image = at::arange(4 * 10).view({1, 4, 10}).to(at::kByte);
  EXPECT_TRUE(at::equal(ResizeAndCrop(image, 4), image.slice(2, 3, 7)));
  const at::Tensor tall = image.transpose(1, 2).contiguous();
  EXPECT_TRUE(at::equal(ResizeAndCrop(tall, 4), tall.slice(1, 3, 7)));
}

TEST(ResizeTest, WhatBecomesSmallerIsAveraged) {
  // Stripes of one pixel: without antialiasing they would be black or white.
  at::Tensor stripes = at::zeros({1, 64, 64}, at::kByte);
  stripes.slice(2, 0, 64, 2).fill_(200);
  const at::Tensor small = ResizeAndCrop(stripes, 8);
  EXPECT_THAT(small.sizes(), ElementsAre(1, 8, 8));
  const at::Tensor middle = small.slice(2, 1, 7).to(at::kInt);
  EXPECT_GE(middle.min().item<int>(), 90);
  EXPECT_LE(middle.max().item<int>(), 110);
}

TEST(ResizeTest, ScalesWithoutDistortion) {
  // White but for a black square in the middle.
  at::Tensor image = at::full({3, 20, 40}, 255, at::kByte);
  image.slice(1, 4, 16).slice(2, 14, 26).fill_(0);
  for (const int64_t size : {10, 20, 40}) {
    const at::Tensor scaled = ResizeAndCrop(image, size);
    EXPECT_THAT(scaled.sizes(), ElementsAre(3, size, size));
    const at::Tensor black = scaled[0].lt(128).to(at::kInt);
    const int64_t rows = black.amax(1).sum().item<int64_t>();
    const int64_t columns = black.amax(0).sum().item<int64_t>();
    EXPECT_EQ(rows, columns);
    EXPECT_NEAR(rows, 0.6 * size, 1);
  }
}

TEST(ResizeTest, OnePixelBecomesAny) {
  const at::Tensor image = at::full({1, 1, 1}, 77, at::kByte);
  EXPECT_TRUE(
      at::equal(ResizeAndCrop(image, 3), at::full({1, 3, 3}, 77, at::kByte)));
  EXPECT_TRUE(at::equal(ResizeAndCrop(at::full({1, 1, 500}, 9, at::kByte), 2),
                        at::full({1, 2, 2}, 9, at::kByte)));
}

TEST(ResizeTest, AStripTakesNoMoreMemoryThanItsMiddle) {
  // As a whole it would have 256 x 2^30 pixels.
  at::Tensor strip = at::full({1, 1, int64_t{1} << 22}, 200, at::kByte);
  strip.narrow(2, (int64_t{1} << 21) - 2, 4).fill_(9);
  const at::Tensor expected = at::full({1, 256, 256}, 9, at::kByte);
  EXPECT_TRUE(at::equal(ResizeAndCrop(strip, 256), expected));
  EXPECT_TRUE(at::equal(ResizeAndCrop(strip.transpose(1, 2).contiguous(), 256),
                        expected));
}

TEST(ResizeTest, RefusesWhatIsNoImage) {
  EXPECT_THROW(ResizeAndCrop(at::zeros({8, 8}, at::kByte), 4), c10::Error);
  EXPECT_THROW(ResizeAndCrop(at::zeros({1, 8, 8}), 4), c10::Error);
  EXPECT_THROW(ResizeAndCrop(at::zeros({1, 0, 8}, at::kByte), 4), c10::Error);
  EXPECT_THROW(ResizeAndCrop(at::zeros({1, 8, 8}, at::kByte), 0), c10::Error);
}

TEST(WithChannelsTest, GreyAndColour) {
  const at::Tensor red = at::tensor({255, 0, 0}, at::kByte).view({3, 1, 1});
  EXPECT_EQ(WithChannels(red, 1).item<int>(), 76);  // 0.299 * 255 = 76.2.
  const at::Tensor white = at::full({3, 1, 1}, 255, at::kByte);
  EXPECT_EQ(WithChannels(white, 1).item<int>(), 255);
  const at::Tensor grey = at::full({1, 2, 2}, 9, at::kByte);
  EXPECT_TRUE(
      at::equal(WithChannels(grey, 3), at::full({3, 2, 2}, 9, at::kByte)));
  EXPECT_TRUE(at::equal(WithChannels(red, 3), red));
}

}  // namespace
}  // namespace miniray::ml
