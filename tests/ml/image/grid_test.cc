#include "ml/image/grid.h"

#include <cmath>
#include <limits>

#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/data/image_dataset.h"
#include "ml/image/png.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kInvalidArgument;
using absl::StatusCode::kNotFound;
using ::testing::ElementsAre;

TEST(ToUint8Test, UndoesToUnitRange) {
  const at::Tensor bytes = at::arange(256, at::kByte);
  EXPECT_TRUE(ToUint8(ToUnitRange(bytes)).equal(bytes));
}

TEST(ToUint8Test, ClampsAndKeepsTheInput) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float values[] = {-1.5f, -1.0f, 0.0f, 1.0f, 1.5f, kInfinity, -kInfinity, NAN};
  at::Tensor floats = at::zeros({8});
  std::copy(std::begin(values), std::end(values), floats.data_ptr<float>());
  // 0 is half-way between 127 and 128: to the even one.
  EXPECT_EQ(BytesOf(ToUint8(floats)),
            std::string("\x00\x00\x80\xff\xff\xff\x00\x00", 8));
  EXPECT_EQ(floats.data_ptr<float>()[0], -1.5f);
}

TEST(ToUint8Test, TakesOtherFloatingTypes) {
  for (at::ScalarType type : {at::kDouble, at::kHalf, at::kBFloat16}) {
    EXPECT_EQ(BytesOf(ToUint8(at::full({1, 2}, 1.0, type))), "\xff\xff");
  }
  EXPECT_THROW(ToUint8(at::zeros({2}, at::kByte)), c10::Error);
}

TEST(ToUint8Test, TakesATensorWithGradient) {
  const at::Tensor output = at::zeros({2}).requires_grad_(true);
  EXPECT_FALSE(ToUint8(output).requires_grad());
}

TEST(MakeGridTest, PlacesImagesRowByRow) {
  // Three images of 1 x 2 pixels in two columns.
  const at::Tensor images = at::arange(1, 7, at::kByte).view({3, 1, 1, 2});
  const at::Tensor grid = MakeGrid(images, 2, /*padding=*/1);
  ASSERT_THAT(grid.sizes(), ElementsAre(1, 5, 7));
  EXPECT_EQ(grid.scalar_type(), at::kByte);
  const char expected[] = {0, 0, 0, 0, 0, 0, 0,   //
                           0, 1, 2, 0, 3, 4, 0,   //
                           0, 0, 0, 0, 0, 0, 0,   //
                           0, 5, 6, 0, 0, 0, 0,   //
                           0, 0, 0, 0, 0, 0, 0};  //
  EXPECT_EQ(BytesOf(grid), std::string(expected, sizeof(expected)));
}

TEST(MakeGridTest, WorksWithoutPadding) {
  const at::Tensor images = at::arange(1, 5, at::kByte).view({4, 1, 1, 1});
  EXPECT_EQ(BytesOf(MakeGrid(images, 2, 0)), "\x01\x02\x03\x04");
}

TEST(MakeGridTest, PadsByTwoAndKeepsTheColours) {
  const at::Tensor images = at::arange(3 * 4, at::kByte).view({1, 3, 2, 2});
  const at::Tensor grid = MakeGrid(images, 8);
  ASSERT_THAT(grid.sizes(), ElementsAre(3, 6, 6));
  EXPECT_TRUE(grid.narrow(1, 2, 2).narrow(2, 2, 2).equal(images[0]));
  EXPECT_EQ(grid.sum().item<int64_t>(), 66);
}

TEST(MakeGridTest, ScalesFloatingImages) {
  EXPECT_EQ(BytesOf(MakeGrid(at::full({1, 1, 1, 2}, 2.0), 1, 0)), "\xff\xff");
}

TEST(MakeGridTest, ThrowsForWhatIsNoGrid) {
  const at::Tensor images = at::zeros({4, 3, 2, 2}, at::kByte);
  EXPECT_THROW(MakeGrid(images, 0), c10::Error);
  EXPECT_THROW(MakeGrid(images, 2, -1), c10::Error);
  EXPECT_THROW(MakeGrid(images[0], 2), c10::Error);
}

TEST(SaveImageGridTest, WritesThePicture) {
  const std::string path = MakeTestFolder() + "/grid.png";
  const at::Tensor images =
      ToUnitRange(at::arange(240, at::kByte).view({5, 3, 4, 4}));
  ASSERT_TRUE(SaveImageGrid(path, images, 3).ok());
  ASSERT_OK_AND_ASSIGN(const at::Tensor read, ReadPng(path));
  EXPECT_THAT(read.sizes(), ElementsAre(3, 14, 20));
  EXPECT_TRUE(read.equal(MakeGrid(images, 3)));
}

TEST(SaveImageGridTest, LeavesOutRowsThatAPictureHasNoRoomFor) {
  const std::string path = MakeTestFolder() + "/grid.png";
  const at::Tensor images =
      at::full({1, 1, 1, 1}, 7, at::kByte).expand({3, 1, 5000, 6000});
  // Three rows would be 15008 x 6004 pixels, more than 2^26.
  ASSERT_EQ(SaveImageGrid(path, images, 1), absl::OkStatus());
  ASSERT_OK_AND_ASSIGN(const at::Tensor read, ReadPng(path));
  EXPECT_THAT(read.sizes(), ElementsAre(1, 10006, 6004));
}

TEST(SaveImageGridTest, ReportsWhatMakeGridWouldThrow) {
  const std::string path = MakeTestFolder() + "/grid.png";
  const at::Tensor images = at::zeros({4, 3, 2, 2}, at::kByte);
  ExpectError(SaveImageGrid(path, images, 0), kInvalidArgument,
              {path, "0 columns"});
  ExpectError(SaveImageGrid(path, at::Tensor(), 2), kInvalidArgument,
              {path, "undefined"});
  ExpectError(SaveImageGrid(path, images[0], 2), kInvalidArgument,
              {path, "Byte [3, 2, 2]"});
  ExpectError(SaveImageGrid(path, images.to(at::kLong), 2), kInvalidArgument,
              {path, "Long [4, 3, 2, 2]"});
  ExpectError(SaveImageGrid(path, at::zeros({4, 2, 2, 2}), 2), kInvalidArgument,
              {path, "C = 1 or 3"});
  ExpectError(SaveImageGrid(path, at::zeros({0, 3, 2, 2}), 2), kInvalidArgument,
              {path, "Float [0, 3, 2, 2]"});
  ExpectError(SaveImageGrid(path + "/absent.png", images, 2), kNotFound,
              {path + "/absent.png"});
}

}  // namespace
}  // namespace miniray::ml
